"""What every call passes before it begins, once there is trouble: faults, lost cards, forks."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gepipe.emulator.api import Call
    from gepipe.emulator.device import Device
    from gepipe.emulator.machine import Machine

#: Calls whose faults happen when the task runs, not when it is submitted.
_ASYNCHRONOUS = frozenset(
    {"mdl.execute_async", "mdl.execute_v2", "rt.memcpy_async", "rt.memset_async"}
)
#: What still works on a lost card.
_HARMLESS = frozenset(
    {"init", "get_recent_err_msg", "get_soc_name", "rt.get_context", "rt.get_device"}
)


def pass_gate(machine: Machine, call: Call, args: list[Any]) -> int:
    """Return the code that a call fails with, or 0. May raise, or hang.

    A fault of an asynchronous call is left for the task that it submits.
    """
    if machine.forked:
        machine.misuse(
            "this process was forked from one that had initialised ACL, which the CANN manual "
            'forbids; use the start method "spawn", and initialise ACL in the child'
        )
    machine.faults.take()  # of an earlier call, which was refused before it submitted anything
    device = _device(machine, call, args)
    if device is not None and device.lost and call.name not in _HARMLESS:
        return _lost(machine, call, device)
    fault = machine.faults.due(call.name, device.index if device else None)
    if fault is None:
        return 0
    if call.name in _ASYNCHRONOUS:
        machine.faults.keep(fault)
        return 0
    if fault.hang:
        machine.report.say(f"acl.{call.name} hangs, as the profile demands")
        threading.Event().wait()
    if fault.lost and device is not None:
        device.lost = fault.code
    return machine.fail(fault.code, "injected by the emulator's profile")


def _device(machine: Machine, call: Call, args: list[Any]) -> Device | None:
    if call.name in ("rt.set_device", "rt.create_context", "rt.reset_device") and args:
        index = args[0]
        return machine.devices[index] if 0 <= index < len(machine.devices) else None
    context = machine.thread.context
    return context.device if context else None


def _lost(machine: Machine, call: Call, device: Device) -> int:
    if call.name.startswith(("util.", "mdl.get_", "mdl.create_", "create_", "get_")):
        return 0
    return machine.fail(device.lost, f"device {device.index} is lost")
