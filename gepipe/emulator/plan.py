"""The shapes and sizes of an execution: from the gear, or from what a request says."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gepipe.emulator.buffers import Dataset
from gepipe.emulator.describe import input_bytes
from gepipe.emulator.loaded import Model
from gepipe.emulator.om import OmModel, Shape

if TYPE_CHECKING:
    from gepipe.emulator.machine import Machine

SHAPE_OUT_OF_RANGE = 100000


@dataclass(frozen=True, slots=True)
class Plan:
    """The shapes and sizes of an execution.

    Attributes:
        shapes: The shape of each input.
        output_shapes: The shape of each output; None while only the result tells.
        input_bytes: What each input needs, the gear input's last.
        output_bytes: What each output needs; 0 while only the result tells.
        gear: The numbers in the gear input; none without gears.
        batch: How many rows the profile is asked about.
    """

    shapes: list[Shape]
    output_shapes: list[Shape] | None
    input_bytes: tuple[int, ...]
    output_bytes: tuple[int, ...]
    gear: Shape
    batch: int


def plan_of(machine: Machine, model: Model, dataset: Dataset) -> tuple[Plan | None, bool, int]:
    """Return the plan of an execution, whether a gear was set for it, and a code."""
    if model.om.is_shape_range:
        shapes, code = _range_shapes(machine, model, dataset)
        if code:
            return None, False, code
        outputs = None
        if not model.om.graph:
            outputs = [_like(shapes, each.shape) for each in model.om.outputs]
        return _plan(model.om, shapes, outputs, ()), False, 0
    gear, was_set = _gear(machine, model, dataset)
    plan = model.plans.get(gear)
    if plan is None:
        om = model.om
        value = om.gears.values[gear] if om.gears else ()
        plan = _plan(om, om.input_shapes(gear), list(om.output_shapes[gear]), value)
        model.plans[gear] = plan
    return plan, was_set, 0


def _plan(om: OmModel, shapes: list[Shape], outputs: list[Shape] | None, gear: Shape) -> Plan:
    needed = [
        om.input_bytes(index) if tensor.name in om.aipp else math.prod(shape) * tensor.itemsize
        for index, (tensor, shape) in enumerate(zip(om.inputs, shapes, strict=True))
    ]
    if om.gears is not None:
        needed.append(input_bytes(om, len(om.inputs)))
    results = [0] * len(om.outputs)
    if outputs is not None:
        pairs = zip(om.outputs, outputs, strict=True)
        results = [math.prod(shape) * tensor.itemsize for tensor, shape in pairs]
    return Plan(
        shapes,
        outputs,
        tuple(needed),
        tuple(results),
        gear,
        shapes[0][0] if shapes and shapes[0] else 1,
    )


def _gear(machine: Machine, model: Model, dataset: Dataset) -> tuple[int, bool]:
    """Return the gear to run at, and whether it was set."""
    if model.om.gears is None:
        return 0, False
    if dataset.gear is not None and dataset.gear[0] == model.id:
        if dataset.gear[1] != model.gear:
            machine.note(f"{model} was last set to another gear than {dataset} has")
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


def _like(shapes: list[Shape], pattern: Shape) -> Shape:
    """Return an output's shape with the first input's batch for -1."""
    return tuple(shapes[0][0] if each < 0 else each for each in pattern)
