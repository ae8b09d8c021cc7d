"""The input that a result was made of, for sinks that show the two together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from gepipe.io.source import Reader
from gepipe.ops.decode import DecodeImage

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Origin(NamedTuple):
    """Where a result comes from. Given to encoders that have `takes_origin` set.

    Attributes:
        meta: What pre noted about the item.
        picture: Reads the item's picture once more: `(height, width, 3)` uint8, BGR, upright as
            the pre stage saw it; the caller's own. Raises `ItemError` where that fails.
    """

    meta: Mapping[str, Any]
    picture: Callable[[], NDArray[Any]]


def takes_origin(encode: Callable[..., bytes]) -> bool:
    """Whether a sink's encoder is given the `Origin` of a result, too."""
    return bool(getattr(encode, "takes_origin", False))


@dataclass(frozen=True)
class Original:
    """Reads pictures a second time, in the post workers.

    That costs a decode, and saves holding every picture in memory from pre to post.

    Attributes:
        reader: The source's reader.
        decode: How pre decodes, at full size and in colour.
    """

    reader: Reader
    decode: DecodeImage

    @classmethod
    def of(cls, reader: Reader, ops: Sequence[Any]) -> Original:
        """Return what decodes as the operators of a pre stage do."""
        first = ops[0] if ops and isinstance(ops[0], DecodeImage) else DecodeImage()
        return cls(reader, replace(first, color="bgr", scale="full"))

    def attach(self, buffer: Any) -> None:
        """Take the memory that payloads point into."""
        self.reader.attach(buffer)  # type: ignore[attr-defined] # only such a reader is given any

    def picture(self, payload: Any) -> NDArray[Any]:
        """Return the picture that `payload` stands for.

        Raises:
            ItemError: It cannot be read any more, or is no picture.
        """
        facts = getattr(self.reader, "facts", None)
        return self.decode(self.reader.read(payload), {} if facts is None else facts(payload))
