"""A few sizes in place of any, for a device whose models are compiled for the sizes they take.

    resize to at most 1920 ─▶ pad to the smallest of 24 sizes ─▶ model ─▶ padding cut from maps

So a pipeline of pictures of any size runs as it is on a CPU and on an NPU.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Final

from gepipe.models.onnxfile import read_onnx
from gepipe.ops.geometry import Geometry
from gepipe.ops.image import Pad
from gepipe.ops.padding import CutPadding
from gepipe.ops.plan import plan_pre
from gepipe.ops.resize import Resize
from gepipe.ops.results import Identity
from gepipe.tensors import DYNAMIC

if TYPE_CHECKING:
    from gepipe.spec.model import PipelineSpec

#: Parts of the largest side that a size may have.
_PARTS: Final = 4
#: The same for a size whose other side is the largest, as it is of all pictures that shrink.
_FINE_PARTS: Final = 8
#: Grey, as in letterbox: next to nothing for a network.
_FILL: Final = 114


def bucketed(spec: PipelineSpec) -> PipelineSpec:
    """Return a pipeline whose items have a few sizes, where they would have any.

    Args:
        spec: A pipeline whose model is an ONNX file.
    """
    program = plan_pre(spec.pre.ops)
    made, variants = program.output_specs(), program.variants()
    places = [at for at, op in enumerate(spec.pre.ops) if isinstance(op, Geometry)]
    if made is None or made.is_static or variants is None or not places:
        return spec
    if variants.complete or not variants.is_bounded or len(variants.specs) != 1:
        return spec
    assert spec.infer.model is not None
    axes = [axis for axis, extent in enumerate(made.shape) if extent == DYNAMIC]
    inputs = read_onnx(spec.infer.model).inputs
    if len(axes) != 2 or len(inputs) != 1 or len(inputs[0].shape) != 1 + len(made.shape):
        return spec
    if any(isinstance(extent := inputs[0].shape[1 + axis], int) and extent > 0 for axis in axes):
        return spec
    height, width = (variants.specs[0].shape[axis] for axis in axes)
    resizes = [op for op in spec.pre.ops if isinstance(op, Resize)]
    least = max((op.min_side or op.short_side or 1 for op in resizes[-1:]), default=1)
    pad = Pad(sizes=sizes_up_to(height, width, variants.step, least), fill=_FILL)
    ops = spec.pre.ops
    pre = spec.pre.model_copy(update={"ops": (*ops[: places[-1] + 1], pad, *ops[places[-1] + 1 :])})
    post = spec.post.model_copy(update={"ops": (CutPadding(), *(spec.post.ops or (Identity(),)))})
    changed = {spec.pre.name: pre, spec.post.name: post}
    stages = tuple(changed.get(stage.name, stage) for stage in spec.stages)
    return spec.model_copy(update={"stages": stages})


def sizes_up_to(height: int, width: int, step: int, least: int = 1) -> tuple[tuple[int, int], ...]:
    """Return sizes of which the smallest that holds a picture is not much larger than it.

    Args:
        height: The largest.
        width: The largest.
        step: What each side is a multiple of.
        least: What the longer side of a picture has at least.
    """

    def sides(most: int, parts: int) -> list[int]:
        return [min(most, step * -(-most * part // (parts * step))) for part in range(1, parts + 1)]

    sizes = {
        *product(sides(height, _PARTS), sides(width, _PARTS)),
        *((height, side) for side in sides(width, _FINE_PARTS)),
        *((side, width) for side in sides(height, _FINE_PARTS)),
    }
    return tuple(sorted(size for size in sizes if max(size) >= least))
