"""Operators that turn an image into the tensor a model takes: values, layout, data type."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from gepipe.errors import ConfigError
from gepipe.ops.op import Meta, Op
from gepipe.tensors import DYNAMIC, TensorSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Data types a tensor can be converted to, as NumPy names them.
DTypeName = Literal[
    "float32", "float16", "float64", "uint8", "int8", "uint16", "int16",
    "uint32", "int32", "uint64", "int64", "bool",
]  # fmt: skip


def each_channel(value: float | tuple[float, ...]) -> tuple[float, ...]:
    """Return a number or list of numbers as a tuple."""
    return (value,) if isinstance(value, int | float) else tuple(value)


@dataclass(frozen=True)
class Normalize(Op):
    """Bring values to the range a model was trained on: (value x scale - mean) / std, in float32.

    Takes an array whose last axis is the channel, so it stands before `to_tensor`. `mean` and `std`
    are in units of `value x scale`: with a scale of 1/255 they lie between 0 and 1.

    Attributes:
        mean: Subtracted; one number, or one a channel in the order of the image's channels.
        std: Divided by; one number, or one a channel.
        scale: Multiplied first; a number, or a fraction written as text such as 1/255.
    """

    mean: float | tuple[float, ...] = 0.0
    std: float | tuple[float, ...] = 1.0
    scale: float | str = 1.0

    def __post_init__(self) -> None:
        mean, std = each_channel(self.mean), each_channel(self.std)
        if not mean or not std or (len(mean) != len(std) and 1 not in (len(mean), len(std))):
            raise ValueError(
                f"mean has {len(mean)} values and std has {len(std)}; expected as many"
            )
        if 0 in std:
            raise ValueError("std must not be 0")
        if not self.factor:
            raise ValueError("scale must not be 0")

    @property
    def factor(self) -> float:
        """`scale` as a number."""
        if not isinstance(self.scale, str):
            return float(self.scale)
        try:
            return float(Fraction(self.scale.replace(" ", "")))
        except (ValueError, ZeroDivisionError):
            raise ValueError(
                f"scale must be a number or a fraction such as 1/255, not {self.scale!r}"
            ) from None

    def __call__(self, value: Any, meta: Meta) -> NDArray[Any]:  # noqa: ARG002
        """Return the normalised values, float32, in the shape of `value`."""
        from gepipe.ops import arrays

        return arrays.normalize(value, each_channel(self.mean), each_channel(self.std), self.factor)

    def output_spec(self, spec: TensorSpec | None) -> TensorSpec | None:
        """Return the same shape in float32.

        Raises:
            ConfigError: There are not as many values as channels.
        """
        channels = spec.shape[-1] if spec and spec.shape else DYNAMIC
        for name, given in (("mean", self.mean), ("std", self.std)):
            count = len(each_channel(given))
            if channels != DYNAMIC and count not in (1, channels):
                raise ConfigError(
                    f"normalize: {name} has {count} values, but the last axis of its input "
                    f"({spec}) has {channels}; give one value a channel, and put normalize "
                    "before to_tensor"
                )
        return spec and TensorSpec(spec.name, "float32", spec.shape)


@dataclass(frozen=True)
class ToTensor(Op):
    """Give an image the layout and data type of the model's input.

    Values are not rescaled: that is what `normalize` is for.

    Attributes:
        layout: nchw (channel, height, width for each item) or nhwc (height, width, channel).
        dtype: Data type of the result. Fractions are rounded and clipped if it is an integer type.
    """

    shorthand: ClassVar[str | None] = "layout"
    layout: Literal["nchw", "nhwc"] = "nchw"
    dtype: DTypeName = "float32"

    def __call__(self, value: Any, meta: Meta) -> NDArray[Any]:  # noqa: ARG002
        """Return `(channels, height, width)` or `(height, width, channels)`; maybe a view."""
        from gepipe.ops import arrays, pixels

        image = pixels.as_image(value)
        return arrays.cast(image.transpose(2, 0, 1) if self.layout == "nchw" else image, self.dtype)

    def output_spec(self, spec: TensorSpec | None) -> TensorSpec | None:
        """Return the shape in the new layout and data type."""
        shape = (DYNAMIC,) * 3 if spec is None else spec.shape
        if len(shape) == 2:
            shape = (*shape, 1)
        if len(shape) == 3 and self.layout == "nchw":
            shape = (shape[2], shape[0], shape[1])
        return TensorSpec("", self.dtype, shape)


@dataclass(frozen=True)
class Cast(Op):
    """Convert an array to another data type; every array, where there are several.

    Attributes:
        dtype: Data type of the result. Fractions are rounded and clipped if it is an integer type.
    """

    shorthand: ClassVar[str | None] = "dtype"
    dtype: DTypeName

    def __call__(self, value: Any, meta: Meta) -> Any:  # noqa: ARG002
        """Return the array, or dict of arrays, in the new data type."""
        from gepipe.ops import arrays

        if isinstance(value, dict):
            return {name: arrays.cast(array, self.dtype) for name, array in value.items()}
        return arrays.cast(value, self.dtype)

    def output_spec(self, spec: TensorSpec | None) -> TensorSpec | None:
        """Return the same shape in the new data type."""
        return spec and TensorSpec(spec.name, self.dtype, spec.shape)
