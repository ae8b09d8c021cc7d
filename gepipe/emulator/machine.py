"""The emulated machine: everything that `acl` keeps behind its functions."""

from __future__ import annotations

import atexit
import itertools
import os
import weakref
from typing import Any

from gepipe.emulator.device import Context, Device, visible_devices
from gepipe.emulator.devicememory import DeviceMemory
from gepipe.emulator.ground import Ground
from gepipe.emulator.handles import Handles
from gepipe.emulator.hostmemory import HostMemory
from gepipe.emulator.loaded import Models
from gepipe.emulator.modes import Mode
from gepipe.emulator.profile import Profile
from gepipe.emulator.report import Report
from gepipe.emulator.reporter import Reporter, Worker
from gepipe.emulator.schedule import Stepped
from gepipe.emulator.stream import Stream


class Machine(Ground):
    """The state of one emulated `acl`.

    Attributes:
        statistics_folder: Where `finalize` leaves statistics; nowhere if empty.
        calls: With a folder for statistics: of each function, how often it was called and the
            CPU seconds that the calling threads spent in it.
        guard: Watches for the host's accesses to device memory, once the machine is installed.
    """

    def __init__(
        self, profile: Profile | None = None, mode: Mode = Mode.STRICT, report: Report | None = None
    ) -> None:
        super().__init__(profile or Profile(), mode, report or Report())
        self.initialised = False
        self.finalised = False
        self.init_count = 0
        self.handles = Handles()
        self.models = Models()
        self.reporters: dict[int, Reporter] = {}
        self.bundles: dict[int, int] = {}
        self.registered: dict[int, str] = {}
        self.workers: dict[int, Worker] = {}
        self.forked = False
        self.statistics_folder = ""
        self.calls: dict[str, list[Any]] = {}
        self.closed = False
        self.guard: Any = None
        self.devices = [
            Device(index, card, self._memory(index, card))
            for index, card in enumerate(visible_devices(len(self.profile.devices)))
        ]
        self._numbers = itertools.count(1)
        self.host = HostMemory(self, self.devices)
        _watch(self)

    def _memory(self, index: int, card: int) -> DeviceMemory:
        spec, on_card = self.profile.devices[card], self.profile.run_mode == "device"
        return DeviceMemory(index, spec, self.lock, is_addressable=on_card)

    # --- objects ----------------------------------------------------------------------------------

    def new_stream(self, context: Context, name: str) -> Stream:
        """Make a stream."""
        number = next(self._numbers)
        stream = Stream(self, context, number, f"{name} {number}")
        stream.handle = self.handles.add(stream)
        self.done[number] = 0
        with self.lock:
            context.device.streams += 1
        return stream

    def drop_stream(self, stream: Stream, what: str) -> None:
        """Forget a stream that has ended; `what` describes it."""
        with self.lock:
            stream.context.device.streams -= 1
        self.done.pop(stream.number, None)
        self.handles.remove(stream.handle, what)

    def stream(
        self, context: Context, handle: int, *, what: str = "stream"
    ) -> tuple[Stream | None, int]:
        """Return the stream of a handle, 0 being the default one, or a code."""
        if handle == 0:
            if not context.default_stream:
                with self.lock:  # another thread may have been faster
                    context.default_stream = (
                        context.default_stream or self.new_stream(context, "default stream").handle
                    )
            handle = context.default_stream
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
        return self.report.leaks()

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
