"""Faults that the profile asks for."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from gepipe.emulator.profile import Fault

if TYPE_CHECKING:
    from gepipe.emulator.api import Call
    from gepipe.emulator.device import Device
    from gepipe.emulator.machine import Machine

#: Calls whose faults happen when the task runs, not when it is submitted.
ASYNCHRONOUS = frozenset(
    {"mdl.execute_async", "mdl.execute_v2", "rt.memcpy_async", "rt.memset_async"}
)
#: What still works on a lost card.
_HARMLESS = frozenset(
    {"init", "get_recent_err_msg", "get_soc_name", "rt.get_context", "rt.get_device"}
)


class Faults:
    """Decides at each call whether it goes wrong."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._faults = machine.profile.faults
        self._counts = [0] * len(self._faults)
        self.pending: dict[int, Fault] = {}

    def before(self, call: Call, args: list[Any]) -> int:
        """Return the code that a call fails with, or 0. May raise, or hang.

        A fault of an asynchronous call is left for `take`.
        """
        machine = self._machine
        if machine.forked:
            machine.misuse(
                "this process was forked from one that had initialised ACL, which the CANN manual "
                'forbids; use the start method "spawn", and initialise ACL in the child'
            )
        device = self._device(call, args)
        if device is not None and device.lost and call.name not in _HARMLESS:
            return self._lost(call, device)
        fault = self._due(call.name, device.index if device else None)
        if fault is None:
            return 0
        if call.name in ASYNCHRONOUS:
            self.pending[threading.get_ident()] = fault
            return 0
        if fault.hang:
            machine.report.say(f"acl.{call.name} hangs, as the profile demands")
            threading.Event().wait()
        if fault.lost and device is not None:
            device.lost = fault.code
        return machine.fail(fault.code, "injected by the emulator's profile")

    def take(self) -> Fault | None:
        """Return the fault of the asynchronous call that this thread is in, once."""
        return self.pending.pop(threading.get_ident(), None) if self.pending else None

    def _device(self, call: Call, args: list[Any]) -> Device | None:
        machine = self._machine
        if call.name in ("rt.set_device", "rt.create_context", "rt.reset_device") and args:
            index = args[0]
            return machine.devices[index] if 0 <= index < len(machine.devices) else None
        context = machine.thread.context
        return context.device if context else None

    def _lost(self, call: Call, device: Device) -> int:
        if call.name.startswith(("util.", "mdl.get_", "mdl.create_", "create_", "get_")):
            return 0
        return self._machine.fail(device.lost, f"device {device.index} is lost")

    def _due(self, name: str, device: int | None) -> Fault | None:
        due = None
        for at, fault in enumerate(self._faults):
            if fault.call != name or fault.device not in (None, device):
                continue
            self._counts[at] += 1
            if due is None and fault.at <= self._counts[at] < fault.at + fault.times:
                due = fault if _first_time(fault) else None
        return due


def _first_time(fault: Fault) -> bool:
    """Whether a fault that strikes once, in whichever process, did not do so yet."""
    if not fault.once_file:
        return True
    try:
        os.close(os.open(fault.once_file, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC))
    except FileExistsError:
        return False
    return True
