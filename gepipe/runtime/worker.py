"""The process of one worker: set up, then serve tickets until the supervisor's end closes.

    supervisor ── ("attach", …) + memfds, then tickets ──▶ worker ──▶ body (user's stage)
    supervisor ◀── ("ready", …) or ("failed", …), then (ticket, busy_ns, results) ──┘

A worker shares no lock with anybody. The end of its socket is the request to stop, which reaches it
also when the supervisor was killed.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import traceback
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from gepipe.errors import ConfigError, DeviceError, GepipeError, ItemError, PluginError
from gepipe.runtime import tuning
from gepipe.runtime.board import Board, Line
from gepipe.runtime.channel import WorkerChannel
from gepipe.runtime.memory import SharedBuffer, SlotLayout, Slots
from gepipe.tensors import TensorSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gepipe.runtime.events import Role

log = logging.getLogger(__name__)

#: Longest message of a fault that is kept; some libraries put whole arrays into theirs.
_TEXT_MAX: Final = 2000
#: Exit status of a worker whose device must be opened anew.
_FATAL_STATUS: Final = 5


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What an infer worker says of its model once it is open.

    Attributes:
        inputs: Row specs of the inputs, without the batch axis; `DYNAMIC` where unknown.
        outputs: Row specs of the outputs, likewise.
        gears: Batch sizes that the model takes; empty means any.
        notes: Facts worth telling the user.
        in_flight: Batches that the engine works on at once.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    gears: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    in_flight: int = 1

    def to_plain(self) -> tuple[Any, ...]:
        """Return plain values for a message."""
        specs = [tuple((s.name, s.dtype, s.shape) for s in t) for t in (self.inputs, self.outputs)]
        return (*specs, self.gears, self.notes, self.in_flight)

    @classmethod
    def from_plain(cls, plain: tuple[Any, ...]) -> ModelInfo:
        """Rebuild from `to_plain`."""
        inputs, outputs, gears, notes, in_flight = plain
        specs = [tuple(TensorSpec(*spec) for spec in side) for side in (inputs, outputs)]
        return cls(specs[0], specs[1], tuple(gears), tuple(notes), in_flight)


class Writer(Protocol):
    """What a pre worker runs."""

    def setup(self) -> None:
        """Load what the stage needs; called once in the worker."""

    def write(self, payload: bytes, rows: Mapping[str, NDArray[Any]]) -> bytes:
        """Make an item's tensors in place.

        Args:
            payload: The item, as its source described it.
            rows: Input name to array of one row; views into the slot, valid during the call.

        Returns:
            The item's meta, for post.
        """
        ...


class Runner(Protocol):
    """What an infer worker runs."""

    #: Batches that may be submitted before the first is collected.
    in_flight: int

    def setup(self) -> ModelInfo:
        """Open the model; called once in the worker."""
        ...

    def submit(
        self,
        inputs: Mapping[str, NDArray[Any]],
        outputs: Mapping[str, NDArray[Any]],
        count: int,
    ) -> Any:
        """Start the inference of `count` rows; see `gepipe.engines.engine.Engine.submit`."""
        ...

    def collect(self, pending: Any) -> None:
        """Wait for a submitted batch."""

    def close(self) -> None:
        """Release the device."""


class Reader(Protocol):
    """What a post worker runs."""

    def setup(self) -> None:
        """Load what the stage needs; called once in the worker."""

    def read(self, rows: Mapping[str, NDArray[Any]], meta: bytes) -> bytes:
        """Make an item's record.

        Args:
            rows: Output name to array of one row; views into the slot, valid during the call.
            meta: What pre returned for this item.
        """
        ...


def main(
    sock: socket.socket, role: Role, place: int, body: bytes, environ: Mapping[str, str]
) -> None:
    """Run a worker. The target of its process; does not return."""
    tuning.quiet_signals()
    tuning.speak_on_standard_error()
    tuning.die_with_parent()
    tuning.let_server_end()
    tuning.keep_freed_memory()
    tuning.take_environment(environ)
    channel = WorkerChannel(sock)
    try:
        import dill

        stage = dill.loads(body)
        info = stage.setup()
    except BaseException as error:  # noqa: BLE001 - whatever it is, the supervisor must hear of it
        channel.send(("failed", type(error).__name__, _text(error), traceback.format_exc()))
        _leave()
    if not channel.send(("ready", info.to_plain() if role == "infer" else None)):
        _leave()
    attach = channel.receive()
    if attach is not None:
        _serve(channel, role, place, stage, attach)
    if role == "infer":
        try:
            stage.close()
        except Exception as error:  # noqa: BLE001 - nothing is lost by it: all results are out
            log.warning("the model did not close: %s", _text(error))
    _leave()


def _leave(status: int = 0) -> NoReturn:
    """End the process at once: nothing of it is worth a tidy interpreter shutdown."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(status)


def _serve(
    channel: WorkerChannel, role: Role, place: int, stage: Any, attach: tuple[Any, ...]
) -> None:
    _, board_nbytes, links = attach
    fds = channel.take_fds()
    line = Board(SharedBuffer(fds[0], board_nbytes)).line(place)
    slots = [
        Slots(SharedBuffer(fd, nbytes), SlotLayout.from_plain(layout))
        for fd, (nbytes, layout) in zip(fds[1:], links, strict=True)
    ]
    if role == "pre":
        _serve_rows(channel, line, slots[0], stage.write, payload_first=True)
    elif role == "post":
        _serve_rows(channel, line, slots[0], stage.read, payload_first=False)
    else:
        _serve_batches(channel, line, slots[0], slots[1], stage)


def _serve_rows(
    channel: WorkerChannel, line: Line, slots: Slots, call: Any, *, payload_first: bool
) -> None:
    while (message := channel.receive()) is not None:
        ticket, slot, rows, seqs, extras, _shapes = message
        views = slots[slot]
        results: list[Any] = []
        start = perf_counter_ns()
        for row, seq, extra in zip(rows, seqs, extras, strict=True):
            line.begin(seq)
            # The ellipsis keeps a row of rank 0 a view.
            row_views = {name: view[row, ...] for name, view in views.items()}
            try:
                result = call(extra, row_views) if payload_first else call(row_views, extra)
                if type(result) is not bytes:
                    raise TypeError(f"expected bytes, got {type(result).__name__}")
            except (ConfigError, PluginError) as error:  # every item would fail alike
                channel.send(("failed", type(error).__name__, _text(error), ""))
                return
            except BaseException as error:  # noqa: BLE001 - user code must not end a worker
                result = fault_of(error)
            results.append(result)
        busy_ns = perf_counter_ns() - start
        line.begin(-1)
        if not channel.send((ticket, busy_ns, results)):
            return


def _serve_batches(
    channel: WorkerChannel, line: Line, inputs: Slots, outputs: Slots, stage: Runner
) -> None:
    # Ticket, seq, start, and the engine's token or the error that there is instead of one: replies
    # leave in the order of the tickets.
    pending: deque[tuple[int, int, int, Any]] = deque()
    free_since = 0
    while True:
        if pending and (len(pending) >= stage.in_flight or not channel.pending()):
            ticket, seq, start, token = pending.popleft()
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
            if not channel.send((ticket, busy_ns, [result])):
                return
            if fatal:  # the device is in no state to go on: another process must open it anew
                _leave(_FATAL_STATUS)
            continue
        message = channel.receive()
        if message is None:
            return
        ticket, input_slot, output_slot, first, last, holes, seq, _shapes = message
        if not pending:
            line.begin(seq)
        start = perf_counter_ns()
        ins = {name: view[first:last] for name, view in inputs[input_slot].items()}
        outs = {name: view[first:last] for name, view in outputs[output_slot].items()}
        for row in holes:
            for view in ins.values():
                view[row - first] = 0
        try:
            token = stage.submit(ins, outs, last - first)
        except Exception as failed:  # noqa: BLE001 - a failed execution is data
            token = failed
        pending.append((ticket, seq, start, token))


def fault_of(error: BaseException) -> tuple[str, str, Any]:
    """Return the fields of the `Fault` that an exception of a stage is."""
    if isinstance(error, TimeoutError):
        return "timeout", _text(error), None
    if isinstance(error, ItemError | DeviceError):
        return str(error.kind), _text(error), getattr(error, "role", None)
    return type(error).__name__, _text(error), None


def _text(error: BaseException) -> str:
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
