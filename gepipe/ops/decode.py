"""The operator that decodes image files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from gepipe.ops.op import Meta, Op
from gepipe.tensors import DYNAMIC, TensorSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Covers 100-megapixel cameras; the decoded picture then takes 360 MB in each worker.
MAX_PIXELS = 120_000_000


@dataclass(frozen=True)
class DecodeImage(Op):
    """Decode a JPEG, PNG, WebP, BMP, TIFF, GIF or PNM file into an 8-bit image.

    Grey, palette, 16-bit, transparent and CMYK files all become what `color` asks for. Of a file
    with several frames the first is taken, and `meta["frames"]` tells how many there are.
    `meta["height"]` and `meta["width"]` are the size of the original, after orientation.

    Attributes:
        color: Order of the channels: rgb, bgr, or gray (one channel).
        exif: apply turns the picture as its EXIF orientation says; ignore leaves it as stored.
        truncated: fail sets a file aside that is cut off or damaged within; keep takes what is
            there and notes `meta["truncated"]` or `meta["damaged"]`.
        max_pixels: Largest picture accepted, in pixels. Checked before decoding.
        frames: first takes the first frame of an animation or a document.
        alpha: blend lays a transparent picture onto white; drop ignores transparency.
        scale: auto may decode a JPEG at 1/2, 1/4 or 1/8 of its size where the resize that follows
            makes it smaller than that anyway; full always decodes all pixels.
    """

    shorthand: ClassVar[str | None] = "color"
    color: Literal["rgb", "bgr", "gray"] = "rgb"
    exif: Literal["apply", "ignore"] = "apply"
    truncated: Literal["fail", "keep"] = "fail"
    max_pixels: int = MAX_PIXELS
    frames: Literal["first"] = "first"
    alpha: Literal["blend", "drop"] = "blend"
    scale: Literal["auto", "full"] = "auto"

    def __post_init__(self) -> None:
        if self.max_pixels < 1:
            raise ValueError(f"max_pixels must be positive, not {self.max_pixels}")

    def __call__(self, value: Any, meta: Meta) -> NDArray[Any]:
        """Return the picture at full size, `(height, width, 3 or 1)` uint8."""
        from gepipe.ops import codecs

        return codecs.in_order(codecs.decode(value, self, meta), self.color)

    def setup(self) -> None:
        """Keep the codecs from writing to standard error."""
        from gepipe.ops import codecs

        codecs.silence()

    def output_spec(self, spec: TensorSpec | None) -> TensorSpec | None:  # noqa: ARG002
        """Return an 8-bit image of unknown size."""
        return TensorSpec("", "uint8", (DYNAMIC, DYNAMIC, 1 if self.color == "gray" else 3))
