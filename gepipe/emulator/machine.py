"""The emulated machine: everything that `acl` keeps behind its functions."""

from __future__ import annotations

import atexit
import itertools
import os
import threading
import weakref
from typing import Any, NoReturn

from gepipe.emulator.callback import Reporter, Worker
from gepipe.emulator.device import Context, Device, visible_devices
from gepipe.emulator.errors import EmulatorError
from gepipe.emulator.faults import Faults
from gepipe.emulator.handles import Handles, Site
from gepipe.emulator.hostmemory import HostMemory
from gepipe.emulator.leaks import find_leaks
from gepipe.emulator.memory import DeviceMemory
from gepipe.emulator.messages import message
from gepipe.emulator.model import Models
from gepipe.emulator.modes import Mode
from gepipe.emulator.order import Access, Clock, merge
from gepipe.emulator.profile import Profile
from gepipe.emulator.report import Report
from gepipe.emulator.schedule import Schedule, Stepped, Threaded
from gepipe.emulator.stream import Stream


class Thread(threading.local):
    """What ACL keeps for each thread.

    Attributes:
        context: The current context.
        call: The function of `acl` that runs, without `acl.`.
        messages: What `get_recent_err_msg` returns next.
        last_error: What `rt.get_last_error` returns next.
    """

    def __init__(self) -> None:
        self.context: Context | None = None
        self.call = ""
        self.messages: list[str] = []
        self.last_error = 0


class Machine:
    """The state of one emulated `acl`.

    Attributes:
        statistics_folder: Where `finalize` leaves statistics; nowhere if empty.
        calls: With a folder for statistics: of each function, how often it was called and the
            CPU seconds that the calling threads spent in it.
        trouble: Whether calls must look closer before they begin: faults, or after a fork.
        host_clock: What the program has waited for. See `gepipe.emulator.order`.
    """

    def __init__(
        self, profile: Profile | None = None, mode: Mode = Mode.STRICT, report: Report | None = None
    ) -> None:
        self.profile = profile or Profile()
        self.mode = mode
        self.report = report or Report()
        self.lock = threading.RLock()
        self.thread = Thread()
        self.initialised = False
        self.finalised = False
        self.init_count = 0
        self.handles = Handles()
        self.host = HostMemory(self)
        seed = self.profile.seed
        self.schedule: Schedule = Threaded() if seed is None else Stepped(seed, self.lock)
        self.host_clock: Clock = {}
        self.models = Models()
        self.faults = Faults(self)
        self.reporters: dict[int, Reporter] = {}
        self.bundles: dict[int, int] = {}
        self.registered: dict[int, str] = {}
        self.workers: dict[int, Worker] = {}
        self.trouble = bool(self.profile.faults)
        self.forked = False
        self.statistics_folder = ""
        self.calls: dict[str, list[Any]] = {}
        self.closed = False
        self.guard: Any = None
        self.devices = [
            Device(index, card, DeviceMemory(self, index, self.profile.devices[card]))
            for index, card in enumerate(visible_devices(len(self.profile.devices)))
        ]
        self._numbers = itertools.count(1)
        self.report.leaks = self.leaks
        _watch(self)

    # --- telling ----------------------------------------------------------------------------------

    def fail(self, code: int, text: str) -> int:
        """Leave a message for `get_recent_err_msg` and return `code`."""
        thread = self.thread
        thread.messages.append(message(code, thread.call, text))
        del thread.messages[:-16]
        if thread.call.startswith("rt."):
            thread.last_error = code
        return code

    def misuse(self, text: str) -> NoReturn:
        """Refuse what is undefined on hardware."""
        where = self._where()
        self.report.breaks.add(where, text)
        raise EmulatorError(where + text)

    def lenient(self, text: str) -> None:
        """Refuse in strict mode; note in compatible mode."""
        if self.mode is Mode.STRICT:
            self.misuse(text)
        self.note(text)

    def note(self, text: str) -> None:
        """Tell about a liberty, in strict mode too."""
        self.report.note(self._where(), text)

    def _where(self) -> str:
        call = f"acl.{self.thread.call}" if self.thread.call else "acl"
        return f"{call} at {Site()}: "

    @property
    def strict(self) -> bool:
        """Whether the mode is strict."""
        return self.mode is Mode.STRICT

    def race(self, label: str, use: Access) -> None:
        """Refuse two uses that nothing orders; compatible mode does so only if it does harm."""
        verb = "writes" if use.writes else "reads"
        text = (
            f"{label} is not ordered after {use.label}, which {verb} the same bytes; "
            "wait for its stream, or let an event order them"
        )
        running = any(
            stream.number == use.stream and stream.completed < use.seq
            for stream in self.handles.all(Stream)
        )
        if running or self.strict:
            self.misuse(text)
        self.note(text)

    # --- objects ----------------------------------------------------------------------------------

    def observe(self, clock: Clock) -> None:
        """Note that the program waited for the tasks that `clock` covers."""
        with self.lock:
            merge(self.host_clock, clock)

    def new_stream(self, context: Context, name: str) -> Stream:
        """Make a stream."""
        number = next(self._numbers)
        stream = Stream(self, context, number, f"{name} {number}")
        stream.handle = self.handles.add(stream)
        with self.lock:
            context.device.streams += 1
        return stream

    def stream(
        self, context: Context, handle: int, *, what: str = "stream"
    ) -> tuple[Stream | None, int]:
        """Return the stream of a handle, 0 being the default one, or a code."""
        if handle == 0:
            if context.default_stream is None:
                context.default_stream = self.new_stream(context, "default stream")
            return context.default_stream, 0
        stream = self.handles.get(handle, Stream)
        if stream is None:
            self.misuse(f"{what} {handle:#x} is {self.handles.fate(handle)}")
        if stream.context is not context:
            return None, self.fail(107003, f"{stream} belongs to {stream.context}, not {context}")
        return stream, 0

    def device(self, index: int) -> Device | None:
        """Return a device, or None and leave a message."""
        if 0 <= index < len(self.devices):
            return self.devices[index]
        self.fail(107001, f"device {index} is not in 0..{len(self.devices) - 1}")
        return None

    def streams_of(self, device: Device) -> list[Stream]:
        """Return all streams of a device."""
        return [each for each in self.handles.all(Stream) if each.context.device is device]

    def leaks(self) -> list[str]:
        """List what is not released."""
        return find_leaks(self)

    # --- the end ----------------------------------------------------------------------------------

    def go_inline(self) -> None:
        """Let calls do their work themselves from now on: threads will soon be gone."""
        if isinstance(self.schedule, Stepped):
            return
        self.schedule = Stepped(None, self.lock)
        for stream in self.handles.all(Stream):
            stream.end()

    def close(self) -> None:
        """End all threads and give back all memory. For tests; nothing works afterwards."""
        if self.closed:
            return
        self.closed = True
        for stream in self.handles.all(Stream):
            stream.abort()
        for device in self.devices:
            device.leave()
            device.memory.close()
        self.host.close()
        self.handles.close()


_machines: weakref.WeakSet[Machine] = weakref.WeakSet()


def _watch(machine: Machine) -> None:
    _machines.add(machine)


def _end_threads() -> None:
    for machine in list(_machines):
        if not machine.closed and not machine.forked:
            machine.go_inline()


def _mark_forked() -> None:
    for machine in list(_machines):
        machine.forked = machine.initialised
        machine.trouble = machine.trouble or machine.forked
        for device in machine.devices:
            device.leave(forked=True)


atexit.register(_end_threads)
os.register_at_fork(after_in_child=_mark_forked)
