"""AIPP: the last steps of the pre stage, done by the card on 8-bit pixels.

`(value x scale - mean) / std` of `normalize` is `(pixel - min_chn) x var_reci_chn` of AIPP, with
min_chn = mean / scale and var_reci_chn = scale / std. Both are worked out in exact decimal
fractions, and rounded once. The card computes in float16, so its results differ in the last digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final, Literal

from gepipe.errors import ConfigError
from gepipe.ops.decode import DecodeImage
from gepipe.ops.geometry import Geometry
from gepipe.ops.op import Op
from gepipe.ops.tensor import Cast, Normalize, ToTensor, each_channel
from gepipe.tensors import DYNAMIC, TensorSpec

Order = Literal["rgb", "bgr"]

_FORMATS: Final = {3: "RGB888_U8", 1: "YUV400_U8"}
#: Range of min_chn in the manual of atc.
_MOST_MIN: Final = 255


@dataclass(frozen=True)
class Aipp:
    """Static AIPP of a model's only input.

    Attributes:
        input_format: RGB888_U8 (three channels, in any order) or YUV400_U8 (grey).
        height: Rows of the image; 0 where it varies.
        width: Columns of the image; 0 where it varies.
        swap: Whether the card turns the order of the channels round first.
        min_chn: Subtracted from each channel, in the order that the model takes.
        var_reci_chn: Multiplied after that.
        layout: nchw or nhwc: what the dropped operators made, so what the model must take.
    """

    input_format: str
    height: int
    width: int
    swap: bool
    min_chn: tuple[float, ...]
    var_reci_chn: tuple[float, ...]
    layout: Literal["nchw", "nhwc"]

    @property
    def channels(self) -> int:
        """Channels of a pixel."""
        return len(self.min_chn)

    def with_size(self, height: int, width: int) -> Aipp:
        """Return the same for an image of another size."""
        return replace(self, height=height, width=width)

    def config(self) -> str:
        """Return the text of the file that atc takes as `--insert_op_conf`."""
        lines = [
            "aipp_mode: static",
            "related_input_rank: 0",
            f"input_format: {self.input_format}",
            f"src_image_size_w: {self.width}",
            f"src_image_size_h: {self.height}",
            "crop: false",
            "csc_switch: false",
            f"rbuv_swap_switch: {str(self.swap).lower()}",
            *(f"mean_chn_{channel}: 0" for channel in range(self.channels)),
            *(f"min_chn_{channel}: {value!r}" for channel, value in enumerate(self.min_chn)),
            *(
                f"var_reci_chn_{channel}: {value!r}"
                for channel, value in enumerate(self.var_reci_chn)
            ),
        ]
        return "aipp_op {\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


@dataclass(frozen=True)
class Split:
    """A pre stage's operators, parted between the host and the card.

    Attributes:
        ops: What the host still does; they make uint8 pixels, NHWC.
        aipp: What the card does.
        dropped: The operators that the card does now.
        changed: Operators that were changed: before and after.
    """

    ops: tuple[Op, ...]
    aipp: Aipp
    dropped: tuple[Op, ...]
    changed: tuple[tuple[Op, Op], ...] = ()


def split_for_aipp(ops: Sequence[Op], *, order: Order | None = None) -> Split:
    """Part a pre stage's operators between the host and the card.

    Args:
        ops: Operators in order; the last must be normalize, cast and to_tensor, in that order.
        order: Order of the channels that the host is to send; the pipeline's own by default. If
            the other one, decode_image is changed, and the card swaps them.

    Raises:
        ConfigError: The card's preprocessing cannot express it, and why.
    """
    start = len(ops)
    while start and type(ops[start - 1]) in (Normalize, Cast, ToTensor):
        start -= 1
    kept, tail = tuple(ops[:start]), tuple(ops[start:])
    pixels = _pixels(kept)
    if not tail:
        raise _refusal("the operators do not end with normalize and to_tensor", "nothing to move")
    channels = pixels.shape[2]
    gain, offset, layout = _affine(tail, channels)
    changed: tuple[tuple[Op, Op], ...] = ()
    if order is not None and (before := _decoder(kept)).color != order:
        after = replace(before, color=order)
        if channels != 3 or not all(isinstance(op, Geometry) for op in kept[1:]):
            raise _refusal(
                f"the order {order} was asked for",
                "only a colour image can be swapped, and nothing but resize, crop, letterbox and "
                "pad may stand between decode_image and normalize",
            )
        changed, kept = ((before, after),), (after, *kept[1:])
    least = [-o / g for g, o in zip(gain, offset, strict=True)]
    for value in least:
        if not 0 <= value <= _MOST_MIN:
            raise _refusal(
                f"it would have to subtract {float(value):g} from the pixels",
                f"the manual allows 0 to {_MOST_MIN}",
            )
    aipp = Aipp(
        _FORMATS[channels],
        max(0, pixels.shape[0]),
        max(0, pixels.shape[1]),
        bool(changed),
        tuple(float(value) for value in least),
        tuple(float(g) for g in gain),
        layout,
    )
    return Split(kept, aipp, tail, changed)


def _refusal(what: str, why: str) -> ConfigError:
    return ConfigError(f"AIPP cannot take this pre stage over: {what}; {why}")


def _pixels(ops: Sequence[Op]) -> TensorSpec:
    spec: TensorSpec | None = None
    for op in ops:
        spec = op.output_spec(spec)
    if not ops or spec is None:
        last = f"what {ops[-1].title} returns" if ops else "what the source gives"
        raise _refusal(
            f"{last} is not known before it runs",
            "expected decode_image and operators such as resize in front of normalize",
        )
    if spec.dtype != "uint8" or len(spec.shape) != 3:
        raise _refusal(f"{ops[-1].title} makes {spec}", "expected a uint8 image (h, w, channels)")
    if spec.shape[2] not in _FORMATS:
        raise _refusal(f"an image has {spec.shape[2]} channels", "expected 3, or 1 for grey")
    return spec


def _decoder(ops: Sequence[Op]) -> DecodeImage:
    if ops and type(ops[0]) is DecodeImage:
        return ops[0]
    raise _refusal("an order of the channels was asked for", "there is no decode_image to change")


def _affine(
    tail: Sequence[Op], channels: int
) -> tuple[list[Fraction], list[Fraction], Literal["nchw", "nhwc"]]:
    """Return factor and summand of each channel, and the layout."""
    gain, offset = [Fraction(1)] * channels, [Fraction(0)] * channels
    layouts = [op.layout for op in tail if isinstance(op, ToTensor)]
    for place, op in enumerate(tail):
        dtype = op.dtype if isinstance(op, ToTensor | Cast) else "float32"
        if dtype not in ("float32", "float16"):
            raise _refusal(f"{op.title} makes {dtype}", "AIPP makes floating-point numbers only")
        if not isinstance(op, Normalize):
            continue
        if any(isinstance(before, ToTensor) for before in tail[:place]):
            raise _refusal(f"{op.title} stands behind to_tensor", "put it in front")
        mean, std = (_spread(op, each_channel(v), channels) for v in (op.mean, op.std))
        scale = Fraction(str(op.scale).replace(" ", ""))
        gain = [g * scale / s for g, s in zip(gain, std, strict=True)]
        offset = [(o * scale - m) / s for o, m, s in zip(offset, mean, std, strict=True)]
    if len(layouts) > 1:
        raise _refusal("to_tensor stands there twice", "expected one")
    if not any(isinstance(op, Normalize) for op in tail) and not layouts:
        raise _refusal("there is neither normalize nor to_tensor", "nothing to move")
    return gain, offset, layouts[0] if layouts else "nhwc"


def _spread(op: Op, values: tuple[float, ...], channels: int) -> list[Fraction]:
    if len(values) not in (1, channels):
        raise _refusal(f"{op.title} has {len(values)} values", f"the image has {channels} channels")
    return [Fraction(str(value)) for value in values * (channels // len(values))]


def fit_model(aipp: Aipp, shape: Sequence[int | str], *, varies: bool) -> Aipp:
    """Return AIPP with the image size of a model's input.

    Args:
        aipp: As derived from a pipeline.
        shape: The input's shape, with the batch in front.
        varies: Whether the model is made for several image sizes.

    Raises:
        ConfigError: The pipeline's image is not what the model takes.
    """
    order = (2, 3, 1) if aipp.layout == "nchw" else (1, 2, 3)
    if len(shape) != 4:
        raise _refusal(f"the model's input has shape {list(shape)}", "expected an image of 4 axes")
    height, width, channels = (shape[axis] for axis in order)
    wanted = (aipp.height or height, aipp.width or width, aipp.channels)
    for ours, theirs in zip(wanted, (height, width, channels), strict=True):
        if isinstance(theirs, int) and theirs > 0 and ours != theirs:
            raise _refusal(
                f"the pipeline makes {_sized(wanted)} and the model takes "
                f"{_sized((height, width, channels))} ({aipp.layout})",
                "make them fit first (gepipe check)",
            )
    if varies:
        return aipp.with_size(0, 0)
    fixed = [each for each in wanted[:2] if isinstance(each, int) and each > 0]
    if len(fixed) < 2:
        raise _refusal(
            "the size of the image is open in pipeline and model",
            "give the pipeline a fixed size, as with `resize: {size: [224, 224]}`",
        )
    return aipp.with_size(*fixed)


def _sized(shape: Sequence[int | str]) -> str:
    return " x ".join("?" if each == DYNAMIC else str(each) for each in shape)
