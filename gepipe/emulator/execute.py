"""Executing models."""

from __future__ import annotations

import ctypes
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gepipe.emulator.api import acl_call
from gepipe.emulator.buffers import Dataset, TensorDesc, buffer_of, dataset_of
from gepipe.emulator.compute import session_of, view
from gepipe.emulator.copies import End
from gepipe.emulator.describe import input_bytes
from gepipe.emulator.gears import gear_bytes
from gepipe.emulator.handles import Site
from gepipe.emulator.memory import Block
from gepipe.emulator.model import Model, own_model
from gepipe.emulator.om import OmModel, Shape
from gepipe.emulator.stream import Stream, Task
from gepipe.tensors import DTYPES

if TYPE_CHECKING:
    from gepipe.emulator.device import Context
    from gepipe.emulator.machine import Machine
    from gepipe.emulator.order import Uses

INVALID_PARAM, MISMATCH, SHAPE_OUT_OF_RANGE, NO_MEMORY = 100000, 145000, 100000, 245000
#: By how much a buffer may be too small: see the CANN manual on model inputs.
_SLACK_BYTES = 64


@dataclass(slots=True)
class Run:
    """One execution, with everything it needs.

    Attributes:
        inputs: Where each input lies.
        outputs: Where each output lies.
        shapes: The shape of each input.
        output_shapes: The shape of each output; None while only the result tells.
        batch: How many rows the profile is asked about.
    """

    model: Model
    inputs: list[End]
    outputs: list[End]
    shapes: list[Shape]
    output_shapes: list[Shape] | None
    batch: int
    datasets: tuple[Dataset, Dataset]
    gear_end: End | None
    gear: Shape

    def uses(self) -> tuple[tuple[Uses, int, int, bool], ...]:
        """Return what it uses, for `Stream.submit`."""
        used = [(self.model.uses, 0, 1, True)]
        used += [(dataset.uses, 0, 1, False) for dataset in self.datasets]
        for ends, sizes, writes in (
            (self.inputs, self._sizes(), False),
            (self.outputs, self._output_sizes(), True),
        ):
            for end, size in zip(ends, sizes, strict=True):
                assert end.block is not None
                used.append((end.block.uses, end.address, end.address + size, writes))
        if self.gear_end is not None and self.gear_end.block is not None:
            first = self.gear_end.address
            used.append((self.gear_end.block.uses, first, first + 4 * len(self.gear), False))
        used += [
            (block.uses, block.base, block.base + block.size, True)
            for block in self.model.work_blocks
        ]
        return tuple(used)

    def _sizes(self) -> list[int]:
        om = self.model.om
        if om.aipp:
            return [om.input_bytes(index) for index in range(len(om.inputs))]
        pairs = zip(om.inputs, self.shapes, strict=True)
        return [tensor.itemsize * math.prod(shape) for tensor, shape in pairs]

    def _output_sizes(self) -> list[int]:
        if self.output_shapes is None:
            return [1 << 12 for _ in self.outputs]
        pairs = zip(self.model.om.outputs, self.output_shapes, strict=True)
        return [tensor.itemsize * math.prod(shape) for tensor, shape in pairs]

    def compute(self, machine: Machine) -> None:
        """Read all inputs, then write all outputs."""
        om = self.model.om
        if self.gear_end is not None:
            held = ctypes.string_at(self.gear_end.real, 4 * len(self.gear))
            if held != gear_bytes(self.gear):
                machine.lenient("something wrote into the gear input after the gear was set")
        arrays = []
        for index, (tensor, shape, end) in enumerate(
            zip(om.inputs, self.shapes, self.inputs, strict=True)
        ):
            aipp = om.aipp.get(tensor.name)
            if aipp is not None and aipp.input_format == "YUV420SP_U8":
                arrays.append(view(end.real, "uint8", (om.input_bytes(index),)))
            else:
                arrays.append(view(end.real, tensor.dtype, shape))
        if self.model.session is None:
            self.model.session = session_of(om)
        results = self.model.session.run(arrays, self.output_shapes)
        for index, (end, result) in enumerate(zip(self.outputs, results, strict=True)):
            self._store(machine, index, end, result)

    def _store(self, machine: Machine, index: int, end: End, result: Any) -> None:
        assert end.block is not None
        machine.host.locate(end.address, result.nbytes)
        view(end.real, result.dtype, result.shape)[...] = result
        tensor = self.model.om.outputs[index]
        if self.output_shapes is None or self.datasets[1].descs.get(index) is not None:
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
        return None, machine.fail(MISMATCH, text)
    block = machine.host.locate(buffer.ptr, buffer.size)
    if block is None or block.kind != "device memory":
        machine.misuse(
            f"{side} {index} of {model} must be device memory, but {buffer.ptr:#x} is "
            f"{machine.host.describe(buffer.ptr)}"
        )
    if block.device != model.context.device.index:
        machine.misuse(f"{side} {index} of {model} is memory of device {block.device}")
    if needed > block.base + block.size - buffer.ptr:
        machine.lenient(f"{side} {index} of {model} needs {needed} bytes, {block} is too small")
    return End(buffer.ptr, block, known=True), 0


def _gear(machine: Machine, model: Model, dataset: Dataset) -> tuple[int, bool]:
    """Return the gear to run at, and whether it was set."""
    if model.om.gears is None:
        return 0, False
    if dataset.gear is not None and dataset.gear[0] == model.id:
        if dataset.gear[1] != model.gear:
            machine.report.note(f"{model} was last set to another gear than {dataset} has")
        return dataset.gear[1], True
    if model.gear is not None:
        machine.lenient(f"no gear was set on {dataset}: {model} keeps that of another dataset")
        return model.gear, False
    return model.om.largest_gear, False


def _range_shapes(machine: Machine, model: Model, dataset: Dataset) -> tuple[list[Shape], int]:
    shapes = []
    for index, tensor in enumerate(model.om.inputs):
        desc = dataset.descs.get(index)
        shape = tensor.shape if desc is None else desc.dims
        pairs = model.om.ranges.get(tensor.name, tuple((n, n) for n in tensor.shape))
        if len(shape) != len(pairs) or any(
            n < low or (high != -1 and n > high)
            for n, (low, high) in zip(shape, pairs, strict=True)
        ):
            text = f"input {index} of {model}: shape {list(shape)} is not within {list(pairs)}"
            return [], machine.fail(SHAPE_OUT_OF_RANGE, text)
        shapes.append(shape)
    return shapes, 0


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
    om = model.om
    gear, was_set = _gear(machine, model, given)
    shapes, output_shapes, code = _shapes(machine, model, given, gear)
    if code:
        return None, code
    sizes = [_input_bytes(om, index, shape) for index, shape in enumerate(shapes)]
    if om.gears is not None:
        sizes.append(input_bytes(om, len(om.inputs)))
    result_sizes = [0] * len(om.outputs)
    if output_shapes is not None:
        pairs = zip(om.outputs, output_shapes, strict=True)
        result_sizes = [math.prod(shape) * tensor.itemsize for tensor, shape in pairs]
    if allocate and not _filled_in(machine, context, results, result_sizes):
        return None, machine.fail(NO_MEMORY, f"no memory for the outputs of {model}")
    ends, code = _located(machine, model, given, sizes, "input")
    if code:
        return None, code
    results_at, code = _located(machine, model, results, result_sizes, "output")
    if code:
        return None, code
    gear_end = ends.pop() if om.gears else None
    return Run(
        model=model,
        inputs=ends,
        outputs=results_at,
        shapes=shapes,
        output_shapes=output_shapes,
        batch=shapes[0][0] if shapes and shapes[0] else 1,
        datasets=(given, results),
        gear_end=gear_end if was_set else None,
        gear=om.gears.values[gear] if om.gears else (),
    ), 0


def _shapes(
    machine: Machine, model: Model, dataset: Dataset, gear: int
) -> tuple[list[Shape], list[Shape] | None, int]:
    """Return the shapes of inputs and outputs, or a code."""
    om = model.om
    if not om.is_shape_range:
        return om.input_shapes(gear), list(om.output_shapes[gear]), 0
    shapes, code = _range_shapes(machine, model, dataset)
    if code or om.graph:
        return shapes, None, code
    return shapes, [_like(shapes, each.shape) for each in om.outputs], 0


def _input_bytes(om: OmModel, index: int, shape: Shape) -> int:
    tensor = om.inputs[index]
    if tensor.name in om.aipp:
        return om.input_bytes(index)
    return math.prod(shape) * tensor.itemsize


def _located(
    machine: Machine, model: Model, dataset: Dataset, sizes: list[int], side: str
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


def _like(shapes: list[Shape], pattern: Shape) -> Shape:
    """Return an output's shape with the first input's batch for -1."""
    return tuple(shapes[0][0] if each < 0 else each for each in pattern)


def _filled_in(machine: Machine, context: Context, dataset: Dataset, sizes: list[int]) -> bool:
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
    """Execute; return when the hardware was done."""
    om = run.model.om
    paced = not om.graph or machine.profile.pace_computing
    seconds = machine.profile.latency_of(om.name).seconds(run.batch) if paced else 0.0
    began_s = time.monotonic()
    run.compute(machine)
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
    _perform(machine, run, machine.schedule.now(), hold_gil=machine.profile.hold_gil)
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
