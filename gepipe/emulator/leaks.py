"""What a program did not release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gepipe.emulator.aipp import DynamicAipp
from gepipe.emulator.buffers import DataBuffer, Dataset
from gepipe.emulator.config import ExecConfig, LoadConfig
from gepipe.emulator.describe import Desc
from gepipe.emulator.device import Context
from gepipe.emulator.event import Event
from gepipe.emulator.stream import Stream
from gepipe.emulator.tensordesc import TensorDesc

if TYPE_CHECKING:
    from gepipe.emulator.machine import Machine


def find_leaks(machine: Machine) -> list[str]:
    """List what is not released, with where it was made."""
    handles = machine.handles
    found = [str(model) for model in machine.models.all()]
    found += [str(stream) for stream in handles.all(Stream) if not stream.is_default]
    for kind in (Event, Dataset, DataBuffer, Desc, LoadConfig, ExecConfig, DynamicAipp):
        found += [str(each) for each in handles.all(kind)]
    found += [str(desc) for desc in handles.all(TensorDesc) if desc.owned]
    for device in machine.devices:
        found += [str(block) for block in device.memory.blocks.all()]
    found += [str(block) for block in machine.host.pinned.all()]
    found += [
        f"host memory {ptr:#x} registered at {site}" for ptr, site in machine.registered.items()
    ]
    found += [str(context) for context in handles.all(Context) if context.explicit]
    found += [
        f"device {device.index}, set {device.set_count} times more than reset"
        for device in machine.devices
        if device.set_count
    ]
    return found
