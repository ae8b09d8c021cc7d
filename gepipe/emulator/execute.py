"""Executing models."""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gepipe.emulator.api import acl_call
from gepipe.emulator.blocks import Block
from gepipe.emulator.buffers import Dataset, buffer_of, dataset_of
from gepipe.emulator.compute import KernelError, session_of, view
from gepipe.emulator.ends import End
from gepipe.emulator.gears import gear_bytes
from gepipe.emulator.handles import Site
from gepipe.emulator.loaded import Model
from gepipe.emulator.memory import ALIGNMENT
from gepipe.emulator.model import own_model
from gepipe.emulator.plan import Plan, plan_of
from gepipe.emulator.stream import Stream
from gepipe.emulator.task import Task, TaskError
from gepipe.emulator.tensordesc import TensorDesc
from gepipe.tensors import DTYPES

if TYPE_CHECKING:
    from gepipe.emulator.device import Context
    from gepipe.emulator.machine import Machine
    from gepipe.emulator.order import Uses

INVALID_PARAM, MISMATCH, NO_MEMORY, KERNEL_FAILED = 100000, 145000, 245000, 507011
#: By how much a buffer may be too small: see the CANN manual on model inputs.
_SLACK_BYTES = 64


@dataclass(slots=True)
class Run:
    """One execution, with everything it needs.

    Attributes:
        inputs: Where each input lies.
        outputs: Where each output lies.
        plan: Their shapes and sizes.
        gear_end: Where the gear input lies, if a gear was set.
    """

    model: Model
    inputs: list[End]
    outputs: list[End]
    plan: Plan
    datasets: tuple[Dataset, Dataset]
    gear_end: End | None

    def uses(self) -> tuple[tuple[Uses, int, int, bool], ...]:
        """Return what it uses, for `Stream.submit`."""
        used = [(self.model.uses, 0, 1, True)]
        used += [(dataset.uses, 0, 1, False) for dataset in self.datasets]
        written = self.plan.output_bytes
        if self.plan.output_shapes is None:  # it may write all that it is given
            written = tuple(end.room for end in self.outputs)
        for ends, sizes, writes in (
            (self.inputs, self.plan.input_bytes, False),
            (self.outputs, written, True),
        ):
            for end, size in zip(ends, sizes):  # noqa: B905 - the gear input comes below
                assert end.block is not None
                used.append((end.block.uses, end.address, end.address + size, writes))
        if self.gear_end is not None and self.gear_end.block is not None:
            first = self.gear_end.address
            used.append((self.gear_end.block.uses, first, first + self._gear_bytes, False))
        used += [
            (block.uses, block.base, block.base + block.size, True)
            for block in self.model.work_blocks
        ]
        return tuple(used)

    @property
    def _gear_bytes(self) -> int:
        return 4 * len(self.plan.gear)

    def compute(self, machine: Machine) -> None:
        """Read all inputs, then write all outputs."""
        om = self.model.om
        if self.gear_end is not None:
            held = ctypes.string_at(self.gear_end.real, self._gear_bytes)
            if held != gear_bytes(self.plan.gear):
                machine.lenient("something wrote into the gear input after the gear was set")
        arrays = []
        for index, (tensor, shape, end) in enumerate(
            zip(om.inputs, self.plan.shapes, self.inputs, strict=True)
        ):
            aipp = om.aipp.get(tensor.name)
            if aipp is not None and aipp.input_format == "YUV420SP_U8":
                arrays.append(view(end.real, "uint8", (om.input_bytes(index),)))
            else:
                arrays.append(view(end.real, tensor.dtype, shape))
        if self.model.session is None:
            self.model.session = session_of(om)
        results = self.model.session.run(arrays, self.plan.output_shapes)
        for index, (end, result) in enumerate(zip(self.outputs, results, strict=True)):
            self._store(machine, index, end, result)

    def _store(self, machine: Machine, index: int, end: End, result: Any) -> None:
        assert end.block is not None
        if self.plan.output_shapes is None and result.nbytes > end.room + _SLACK_BYTES:
            text = f"output {index} of {self.model} needs {result.nbytes} bytes"
            raise TaskError(MISMATCH, f"{text}, its data buffer has {end.room}")
        machine.host.locate(end.address, result.nbytes)
        view(end.real, result.dtype, result.shape)[...] = result
        tensor = self.model.om.outputs[index]
        if self.plan.output_shapes is None or self.datasets[1].descs.get(index) is not None:
            self.datasets[1].descs[index] = TensorDesc(
                DTYPES[tensor.dtype].acl, tuple(result.shape), 2, tensor.name, owned=False
            )


def _locate(  # noqa: PLR0913, PLR0917 - they belong together
    machine: Machine, model: Model, dataset: Dataset, index: int, needed: int, side: str
) -> tuple[End | None, int]:
    buffer = buffer_of(machine, dataset.buffers[index])
    if buffer is None or buffer.ptr == 0:
        text = f"{side} {index} of {model} has no memory"
        return None, machine.fail(INVALID_PARAM, text)
    if buffer.size + _SLACK_BYTES < needed:
        text = f"{side} {index} of {model} needs {needed} bytes, its data buffer has {buffer.size}"
        if model.om.gears is None:
            return None, machine.fail(MISMATCH, text)
        machine.lenient(f"{text}, which ACL does not check for models with gears")
    block = machine.host.locate(buffer.ptr, buffer.size)
    if block is None or block.kind != "device memory":
        machine.misuse(
            f"{side} {index} of {model} must be device memory, but {buffer.ptr:#x} is "
            f"{machine.host.describe(buffer.ptr)}"
        )
    if block.device != model.context.device.index:
        machine.misuse(f"{side} {index} of {model} is memory of device {block.device}")
    if buffer.ptr % ALIGNMENT:
        text = f"{buffer.ptr:#x} is not on a {ALIGNMENT}-byte boundary"
        machine.lenient(f"{side} {index} of {model}: {text}")
    if needed > block.base + block.size - buffer.ptr:
        machine.lenient(f"{side} {index} of {model} needs {needed} bytes, {block} is too small")
    return End(buffer.ptr, block, known=True, room=buffer.size), 0


def _prepare(  # noqa: PLR0911, PLR0913 - one argument after the other is checked
    machine: Machine, context: Context, model_id: int, ins: int, outs: int, *, allocate: bool
) -> tuple[Run | None, int]:
    """Check an execution's arguments as ACL does when it is submitted."""
    model, code = own_model(machine, context, model_id)
    if model is None:
        return None, code
    given, results = dataset_of(machine, ins), dataset_of(machine, outs)
    if given is None or results is None:
        return None, INVALID_PARAM
    plan, was_set, code = plan_of(machine, model, given)
    if plan is None:
        return None, code
    if allocate and not _filled_in(machine, context, results, plan.output_bytes):
        return None, machine.fail(NO_MEMORY, f"no memory for the outputs of {model}")
    ends, code = _located(machine, model, given, plan.input_bytes, "input")
    if code:
        return None, code
    results_at, code = _located(machine, model, results, plan.output_bytes, "output")
    if code:
        return None, code
    gear_end = ends.pop() if plan.gear else None
    return Run(model, ends, results_at, plan, (given, results), gear_end if was_set else None), 0


def _located(
    machine: Machine, model: Model, dataset: Dataset, sizes: tuple[int, ...], side: str
) -> tuple[list[End], int]:
    """Return where each buffer of a dataset lies, or a code."""
    if len(dataset.buffers) != len(sizes):
        text = (
            f"the number of {side}s is inconsistent: {model} has {len(sizes)}, the dataset "
            f"{len(dataset.buffers)}"
        )
        return [], machine.fail(MISMATCH, text)
    ends = []
    for index, size in enumerate(sizes):
        end, code = _locate(machine, model, dataset, index, size, side)
        if end is None:
            return [], code
        ends.append(end)
    return ends, 0


def _filled_in(
    machine: Machine, context: Context, dataset: Dataset, sizes: tuple[int, ...]
) -> bool:
    """Allocate the outputs whose buffers are (0, 0); return whether that worked."""
    for handle, size in zip(dataset.buffers, sizes):  # noqa: B905 - their number is checked later
        buffer = buffer_of(machine, handle)
        if buffer is None or buffer.ptr or buffer.size:
            continue
        block: Block | None = context.device.memory.allocate(max(size, 1))
        if block is None:
            return False
        buffer.ptr, buffer.size = block.base, block.size
    return True


def _perform(machine: Machine, run: Run, ready_s: float, *, hold_gil: bool = False) -> float:
    """Execute; return when the hardware was done, or raise a TaskError."""
    om = run.model.om
    paced = not om.graph or machine.profile.pace_computing
    seconds = machine.profile.latency_of(om.name).seconds(run.plan.batch) if paced else 0.0
    began_s = time.monotonic()
    try:
        run.compute(machine)
    except KernelError as error:
        raise TaskError(KERNEL_FAILED, f"{run.model}: {error}") from error
    if om.graph and not paced:
        seconds = time.monotonic() - began_s
    end_s = run.model.context.device.occupy("compute", ready_s, seconds)
    machine.schedule.sleep_until(end_s, hold_gil=hold_gil)
    return end_s


@acl_call("mdl.execute", "Ikk", context=True)
def execute(machine: Machine, context: Context, model_id: int, ins: int, outs: int) -> int:
    """Execute a model and wait for it."""
    run, code = _prepare(machine, context, model_id, ins, outs, allocate=True)
    if run is None:
        return code
    with machine.lock:
        for what, first, last, writes in run.uses():
            host = machine.host_clock
            if use := what.conflict(host, host, first, last, writes=writes):
                machine.race(f"acl.mdl.execute at {Site()}", use)
    try:
        _perform(machine, run, machine.schedule.now(), hold_gil=machine.profile.hold_gil)
    except TaskError as error:
        return machine.fail(error.code, str(error))
    return 0


@acl_call("mdl.execute_async", "Ikkk", context=True)
def execute_async(  # noqa: PLR0913, PLR0917 - acl has as many
    machine: Machine, context: Context, model_id: int, ins: int, outs: int, stream_handle: int
) -> int:
    """Execute a model in a stream."""
    stream, code = machine.stream(context, stream_handle)
    if stream is None:
        return code
    run, code = _prepare(machine, context, model_id, ins, outs, allocate=False)
    if run is None:
        return code

    def perform(stream: Stream) -> int:
        stream.now_s = _perform(machine, run, stream.begin_s(task))
        return 0

    task = Task(perform, f"acl.mdl.execute_async at {Site()}")
    stream.submit(task, run.uses())
    return 0
