"""Data buffers and datasets: what holds a model's inputs and outputs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gepipe.emulator.api import acl_call
from gepipe.emulator.handles import Site
from gepipe.emulator.order import Uses
from gepipe.emulator.tensordesc import TensorDesc, desc_of

if TYPE_CHECKING:
    from gepipe.emulator.machine import Machine

INVALID_PARAM, TOO_MANY = 100000, 300000


@dataclass(eq=False, slots=True)
class DataBuffer:
    """A pointer and a size.

    Attributes:
        datasets: Those that it was added to.
    """

    ptr: int
    size: int
    datasets: list[Dataset] = field(default_factory=list)
    site: Site = field(default_factory=Site)

    def __str__(self) -> str:
        return f"data buffer made at {self.site}"


@dataclass(eq=False, slots=True)
class Dataset:
    """A model's inputs or outputs.

    Attributes:
        gear: The model and gear last set on it.
    """

    buffers: list[int] = field(default_factory=list)
    descs: dict[int, TensorDesc] = field(default_factory=dict)
    desc_handles: dict[int, int] = field(default_factory=dict)
    gear: tuple[int, int] | None = None
    uses: Uses = field(default_factory=Uses)
    site: Site = field(default_factory=Site)

    def __str__(self) -> str:
        return f"dataset made at {self.site}"


def buffer_of(machine: Machine, handle: int) -> DataBuffer | None:
    """Return a live data buffer, or None for 0."""
    if handle == 0:
        machine.fail(INVALID_PARAM, "data buffer is 0")
        return None
    found = machine.handles.get(handle, DataBuffer)
    if found is None:
        machine.misuse(f"data buffer {handle:#x} is {machine.handles.fate(handle)}")
    return found


def dataset_of(machine: Machine, handle: int) -> Dataset | None:
    """Return a live dataset, or None for 0."""
    if handle == 0:
        machine.fail(INVALID_PARAM, "dataset is 0")
        return None
    found = machine.handles.get(handle, Dataset)
    if found is None:
        machine.misuse(f"dataset {handle:#x} is {machine.handles.fate(handle)}")
    return found


def _unused(machine: Machine, uses: Uses, what: str) -> None:
    host = machine.host_clock
    if (use := uses.conflict(host, host, 0, 1, writes=True)) is not None:
        machine.race(what, use)


@acl_call("create_data_buffer", "kk", "v")
def create_data_buffer(machine: Machine, ptr: int, size: int) -> int:
    """Wrap a pointer and a size."""
    return machine.handles.add(DataBuffer(ptr, size))


@acl_call("destroy_data_buffer", "k")
def destroy_data_buffer(machine: Machine, handle: int) -> int:
    """Destroy the wrapper, not the memory."""
    if (buffer := buffer_of(machine, handle)) is None:
        return INVALID_PARAM
    for dataset in buffer.datasets:
        _unused(machine, dataset.uses, f"destroying {buffer}")
    machine.handles.remove(handle, f"{buffer}, destroyed at {Site()}")
    return 0


@acl_call("get_data_buffer_addr", "k", "v")
def get_data_buffer_addr(machine: Machine, handle: int) -> int:
    """Return the pointer."""
    buffer = buffer_of(machine, handle)
    return 0 if buffer is None else buffer.ptr


@acl_call("get_data_buffer_size_v2", "k", "v")
def get_data_buffer_size_v2(machine: Machine, handle: int) -> int:
    """Return the size."""
    buffer = buffer_of(machine, handle)
    return 0 if buffer is None else buffer.size


@acl_call("get_data_buffer_size", "k", "v")
def get_data_buffer_size(machine: Machine, handle: int) -> int:
    """Return the low 32 bits of the size."""
    buffer = buffer_of(machine, handle)
    return 0 if buffer is None else buffer.size & 0xFFFFFFFF


@acl_call("update_data_buffer", "kkk")
def update_data_buffer(machine: Machine, handle: int, ptr: int, size: int) -> int:
    """Point a buffer elsewhere."""
    if (buffer := buffer_of(machine, handle)) is None:
        return INVALID_PARAM
    for dataset in buffer.datasets:
        _unused(machine, dataset.uses, f"updating {buffer}")
    buffer.ptr, buffer.size = ptr, size
    return 0


@acl_call("mdl.create_dataset", "*", "v")
def create_dataset(machine: Machine) -> int:
    """Create an empty dataset."""
    return machine.handles.add(Dataset())


@acl_call("mdl.destroy_dataset", "k")
def destroy_dataset(machine: Machine, handle: int) -> int:
    """Destroy the list, not its data buffers."""
    if (dataset := dataset_of(machine, handle)) is None:
        return INVALID_PARAM
    _unused(machine, dataset.uses, f"destroying {dataset}")
    for desc in dataset.desc_handles.values():
        machine.handles.remove(desc, f"a description that went with {dataset}")
    machine.handles.remove(handle, f"{dataset}, destroyed at {Site()}")
    return 0


@acl_call("mdl.add_dataset_buffer", "kk", "vr")
def add_dataset_buffer(machine: Machine, handle: int, buffer: int) -> tuple[int, int]:
    """Append a data buffer."""
    dataset, added = dataset_of(machine, handle), buffer_of(machine, buffer)
    if dataset is None or added is None:
        return handle, INVALID_PARAM
    if len(dataset.buffers) >= 1 << 16:
        return handle, machine.fail(TOO_MANY, "the dataset is full")
    dataset.buffers.append(buffer)
    added.datasets.append(dataset)
    return handle, 0


@acl_call("mdl.get_dataset_num_buffers", "k", "v")
def get_dataset_num_buffers(machine: Machine, handle: int) -> int:
    """Return how many data buffers there are."""
    dataset = dataset_of(machine, handle)
    return 0 if dataset is None else len(dataset.buffers)


@acl_call("mdl.get_dataset_buffer", "kk", "v")
def get_dataset_buffer(machine: Machine, handle: int, index: int) -> int:
    """Return a data buffer, 0 when there is none."""
    dataset = dataset_of(machine, handle)
    if dataset is None or index >= len(dataset.buffers):
        return 0
    return dataset.buffers[index]


@acl_call("mdl.set_dataset_tensor_desc", "kkk", "vr")
def set_dataset_tensor_desc(
    machine: Machine, handle: int, desc_handle: int, index: int
) -> tuple[int, int]:
    """Copy a description to one place of the dataset; 0 clears it."""
    dataset = dataset_of(machine, handle)
    if dataset is None:
        return handle, INVALID_PARAM
    if index >= len(dataset.buffers):
        text = f"index {index} is not among the {len(dataset.buffers)} buffers"
        return handle, machine.fail(INVALID_PARAM, text)
    if desc_handle == 0:
        dataset.descs.pop(index, None)
        return handle, 0
    if (desc := desc_of(machine, desc_handle)) is None:
        return handle, INVALID_PARAM
    dataset.descs[index] = replace(desc, owned=False)
    return handle, 0


@acl_call("mdl.get_dataset_tensor_desc", "kk", "v")
def get_dataset_tensor_desc(machine: Machine, handle: int, index: int) -> int:
    """Return the description of one place, which belongs to the dataset."""
    dataset = dataset_of(machine, handle)
    if dataset is None or (desc := dataset.descs.get(index)) is None:
        machine.fail(INVALID_PARAM, f"the dataset has no description at {index}")
        return 0
    known = dataset.desc_handles.get(index, 0)
    if machine.handles.get(known, TensorDesc) is not desc:
        if known:
            machine.handles.remove(known, "a description that was replaced")
        known = dataset.desc_handles[index] = machine.handles.add(desc)
    return known
