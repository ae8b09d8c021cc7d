"""The calls of `acl.rt` that ask about devices, wait for them, and connect them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gepipe.emulator.api import acl_call

if TYPE_CHECKING:
    from gepipe.emulator.device import Context
    from gepipe.emulator.machine import Machine

INVALID_PARAM, NO_DEVICE = 100000, 107001


@acl_call("rt.get_device_count", "", "vr")
def get_device_count(machine: Machine) -> tuple[int, int]:
    """Return how many devices the process may use."""
    return len(machine.devices), 0


@acl_call("rt.get_run_mode", "", "vr")
def get_run_mode(machine: Machine) -> tuple[int, int]:
    """Return 1 where the process runs on the host, 0 on the device."""
    return int(machine.profile.run_mode == "host"), 0


def _synchronise(machine: Machine, context: Context, timeout_s: float | None = None) -> int:
    code = 0
    end_s = machine.schedule.now() + (timeout_s or 0.0)
    for stream in machine.streams_of(context.device):
        left_s = None if timeout_s is None else max(end_s - machine.schedule.now(), 0.0)
        code = stream.wait(left_s) or code
    return code


@acl_call("rt.synchronize_device", "*", context=True)
def synchronize_device(machine: Machine, context: Context) -> int:
    """Wait for every stream of the current device."""
    return _synchronise(machine, context)


@acl_call("rt.synchronize_device_with_timeout", "i", context=True)
def synchronize_device_with_timeout(machine: Machine, context: Context, timeout_ms: int) -> int:
    """Wait for every stream of the current device, but not for ever."""
    if timeout_ms < -1 or timeout_ms == 0:
        return machine.fail(INVALID_PARAM, f"timeout {timeout_ms} ms is neither -1 nor above 0")
    return _synchronise(machine, context, None if timeout_ms < 0 else timeout_ms / 1000)


@acl_call("rt.get_device_utilization_rate", "i", "dr")
def get_device_utilization_rate(machine: Machine, index: int) -> tuple[dict[str, int], int]:
    """Return how busy a device is, in percent."""
    device = machine.device(index)
    if device is None:
        return {}, NO_DEVICE
    busy = 100 * (device.busy_s.get("compute", 0.0) > machine.schedule.now())
    return {
        "cube_utilization": busy,
        "vector_utilization": busy,
        "aicpu_utilization": 0,
        "memory_utilization": 100 * device.memory.used // device.memory.total,
        "utilization_extend": 0,
    }, 0


@acl_call("rt.query_device_status", "i", "vr")
def query_device_status(machine: Machine, index: int) -> tuple[int, int]:
    """Return 0 for a device in order, 1 for a lost one."""
    device = machine.device(index)
    return (0, NO_DEVICE) if device is None else (int(bool(device.lost)), 0)


@acl_call("rt.device_get_stream_priority_range", "", "vvr")
def device_get_stream_priority_range(_machine: Machine) -> tuple[int, int, int]:
    """Return the least and the greatest priority of streams."""
    return 7, 0, 0


@acl_call("rt.device_can_access_peer", "ii", "vr")
def device_can_access_peer(machine: Machine, index: int, peer: int) -> tuple[int, int]:
    """Return whether one device can copy from another."""
    if machine.device(index) is None or machine.device(peer) is None:
        return 0, NO_DEVICE
    return int(index != peer), 0


@acl_call("rt.device_enable_peer_access", "iI", context=True)
def device_enable_peer_access(machine: Machine, context: Context, peer: int, flags: int) -> int:
    """Let the current device copy from another."""
    other = machine.device(peer)
    if other is None:
        return NO_DEVICE
    if other is context.device or flags:
        return machine.fail(INVALID_PARAM, "a device is no peer of itself, and flags must be 0")
    context.device.peers.add(peer)
    return 0
