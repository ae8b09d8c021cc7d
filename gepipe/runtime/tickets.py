"""How a worker serves its tickets, one at a time, in the order in which they come."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, NoReturn

from gepipe.errors import ConfigError, DeviceError, GepipeError, ItemError, PluginError
from gepipe.runtime.board import Board, Line
from gepipe.runtime.channel import WorkerChannel
from gepipe.runtime.lent import LentMemory
from gepipe.runtime.memory import Shapes, SharedBuffer, SlotLayout, Slots

if TYPE_CHECKING:
    from gepipe.runtime.body import Runner
    from gepipe.runtime.events import Role

log = logging.getLogger(__name__)

#: Longest message of a fault that is kept; some libraries put whole arrays into theirs.
_TEXT_MAX: Final = 2000
#: Exit status of a worker whose device must be opened anew.
_FATAL_STATUS: Final = 5


def serve(
    channel: WorkerChannel, role: Role, place: int, stage: Any, attach: tuple[Any, ...]
) -> None:
    """Serve tickets until the supervisor's end closes.

    Args:
        channel: To the supervisor.
        role: What the worker does.
        place: Its line on the board.
        stage: The body, set up.
        attach: The first message: what the descriptors are that came with it.
    """
    _, board_nbytes, links = attach
    post = _Post(channel, stage)
    line = Board(SharedBuffer(post.take_fd(), board_nbytes)).line(place)
    slots = [
        Slots(SharedBuffer(post.take_fd(), nbytes), SlotLayout.from_plain(layout))
        for nbytes, layout in links
    ]
    if role == "infer":
        _serve_batches(post, line, slots[0], slots[1], stage)
    elif role == "post":
        _serve_rows(post, line, slots[0], stage.read, payload_first=False)
    else:
        _serve_rows(post, line, slots[0] if slots else None, stage.write, payload_first=True)


class _Post:
    """Tickets as they come in; memory that comes between them goes to who takes it."""

    def __init__(self, channel: WorkerChannel, stage: Any) -> None:
        self.send = channel.send
        self.pending = channel.pending
        self._channel = channel
        self._stage = stage
        self._fds: deque[int] = deque()
        #: What takes memory that comes between tickets, by what it is for.
        self.takers: dict[str, Callable[[int, int], None]] = {"memory": self._attach}

    def receive(self) -> tuple[Any, ...] | None:
        """Wait for a ticket; None when the supervisor closed its end or died."""
        while (message := self._channel.receive()) is not None and message[0] in self.takers:
            self.takers[message[0]](self.take_fd(), message[1])
        return message

    def take_fd(self) -> int:
        """Return the oldest descriptor that nobody has taken."""
        self._fds += self._channel.take_fds()
        return self._fds.popleft()

    def _attach(self, fd: int, nbytes: int) -> None:
        buffer = SharedBuffer.mapped(fd, nbytes)
        if hasattr(self._stage, "attach"):
            self._stage.attach(buffer)
        else:
            buffer.close()


def _serve_rows(
    post: _Post, line: Line, slots: Slots | None, call: Any, *, payload_first: bool
) -> None:
    own_pid = os.getpid()
    while (message := post.receive()) is not None:
        ticket, slot, rows, seqs, extras, shapes = message
        buffers = None
        views: Mapping[str, Any] = {}
        results: list[Any] = []
        start = perf_counter_ns()
        if slots is not None and shapes is None and slots.layout.is_open:
            buffers = slots.unshaped(slot)
        elif slots is not None:
            try:
                views = slots.view(slot, shapes)
            except ItemError as error:  # there is no room for rows of that shape
                results = [fault_of(error)] * len(rows)
        for row, seq, extra in zip(rows[len(results) :], seqs, extras, strict=not results):
            line.begin(seq)
            if buffers is None:
                # The ellipsis keeps a row of rank 0 a view.
                row_views = {name: view[row, ...] for name, view in views.items()}
            else:
                row_views = {name: buffer.part(row, row + 1) for name, buffer in buffers.items()}
            try:
                result = call(extra, row_views) if payload_first else call(row_views, extra)
                if type(result) is not bytes:
                    raise TypeError(f"expected bytes, got {type(result).__name__}")
            except (ConfigError, PluginError) as error:  # every item would fail alike
                post.send(("failed", type(error).__name__, text_of(error), ""))
                return
            except BaseException as error:  # noqa: BLE001 - user code must not end a worker
                result = fault_of(error)
            if os.getpid() != own_pid:  # it would write into slots that others have by then
                log.warning("an operator forked, and its child returned: the child ends here")
                leave()
            results.append(result)
        busy_ns = perf_counter_ns() - start
        line.begin(-1)
        reply = (ticket, busy_ns, results)
        if not post.send(reply if buffers is None else (*reply, settled(row_views))):
            return


def settled(rows: Mapping[str, Any]) -> Shapes | None:
    """Return the shapes that buffers have got; None where one has none: nothing was written."""
    shapes = tuple(buffer.row for buffer in rows.values())
    return None if None in shapes else shapes


def _serve_batches(post: _Post, line: Line, inputs: Slots, outputs: Slots, stage: Runner) -> None:
    # Ticket, seq, start, buffers of the outputs, and the engine's token or the error that there is
    # instead of one: replies leave in the order of the tickets.
    pending: deque[tuple[int, int, int, Mapping[str, Any], Any]] = deque()
    opened = outputs.layout.is_open
    lent = LentMemory(inputs.layout)
    post.takers["lent"] = lent.attach
    free_since = 0
    while True:
        if pending and (len(pending) >= stage.in_flight or not post.pending()):
            ticket, seq, start, made, token = pending.popleft()
            line.begin(seq)
            error = token if isinstance(token, Exception) else None
            if error is None:
                try:
                    stage.collect(token)
                except Exception as failed:  # noqa: BLE001 - a failed execution is data
                    error = failed
            now = perf_counter_ns()
            busy_ns, free_since = now - max(start, free_since), now
            fatal = getattr(error, "fatal", False)
            line.begin(pending[0][1] if pending and not fatal else -1)
            result = b"" if error is None else (*fault_of(error), fatal)
            reply = (ticket, busy_ns, [result])
            if not post.send((*reply, settled(made)) if opened and error is None else reply):
                return
            if fatal:  # the device is in no state to go on: another process must open it anew
                leave(_FATAL_STATUS)
            continue
        message = post.receive()
        if message is None:
            return
        ticket, source, output_slot, first, last, holes, seq, shapes = message
        if not pending:
            line.begin(seq)
        start = perf_counter_ns()
        ins = (
            lent.rows(source, last - first)
            if isinstance(source, tuple)
            else {name: view[first:last] for name, view in inputs.view(source, shapes).items()}
        )
        outs = _outputs(outputs, output_slot, first, last)
        for row, view in product(holes, ins.values()):
            view[row - first] = 0
        try:
            token = stage.submit(ins, outs, last - first)
        except Exception as failed:  # noqa: BLE001 - a failed execution is data
            token = failed
        pending.append((ticket, seq, start, outs, token))


def _outputs(outputs: Slots, slot: int, first: int, last: int) -> Mapping[str, Any]:
    """Return name to array of the rows [first, last), or to the memory for them."""
    if outputs.layout.is_open:
        return {name: buffer.part(first, last) for name, buffer in outputs.unshaped(slot).items()}
    return {name: view[first:last] for name, view in outputs[slot].items()}


def fault_of(error: BaseException) -> tuple[str, str, Any]:
    """Return the fields of the `Fault` that an exception of a stage is."""
    if isinstance(error, TimeoutError):
        return "timeout", text_of(error), None
    if isinstance(error, ItemError | DeviceError):
        return str(error.kind), text_of(error), getattr(error, "role", None)
    return type(error).__name__, text_of(error), None


def text_of(error: BaseException) -> str:
    """Return what an exception says, and where it was raised if that helps."""
    try:
        said = str(error)
    except Exception:  # noqa: BLE001 - the user's own class
        said = "its text cannot be had"
    if isinstance(error, GepipeError):
        return said[:_TEXT_MAX]
    text = f"{type(error).__name__}: {said}" if said else type(error).__name__
    frames: Sequence[traceback.FrameSummary] = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return text[:_TEXT_MAX] + where


def leave(status: int = 0) -> NoReturn:
    """End the process at once: nothing of it is worth a tidy interpreter shutdown."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(status)
