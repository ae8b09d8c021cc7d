"""What the workers between two models do: they split items, and cut their parts for the next.

post worker of the leg before            pre worker of the leg behind
result ─▶ Split ─▶ facts of each part ─▶ CutReader ─▶ Cut ─▶ picture of the part
"""

from __future__ import annotations

import marshal
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from gepipe.errors import ConfigError, ItemError
from gepipe.io.files import FileReader
from gepipe.io.original import Original
from gepipe.io.source import Reader
from gepipe.io.textfiles import TextReader
from gepipe.ops.op import Op
from gepipe.ops.parts import Part, Splitter
from gepipe.pipeline.meta import decode, encode
from gepipe.pipeline.objects import to_bytes
from gepipe.pipeline.payloadstore import taken_out
from gepipe.tensors import TensorSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gepipe.runtime.memory import Shapes, SharedBuffer

#: Facts of a part, in bytes: they travel four times between processes.
_FACTS_MAX: Final = 64 << 10
#: Pictures, in bytes, that a worker keeps.
_KEPT_NBYTES: Final = 64 << 20
#: A size to ask operators with whether they tell what they make of one.
_ANY_SIZE: Final = (64, 64)


@dataclass(frozen=True)
class Split:
    """Makes of a result what the next leg and the join need. The encoder of a leg that is not last.

    Attributes:
        splitter: The operator that splits.
        ops: Those behind it, which tell the shape of each part's row.
        tells_shapes: Whether parts say their row shapes before they are cut.
    """

    splitter: Splitter
    ops: tuple[Op, ...]
    tells_shapes: bool
    takes_meta: bool = True

    def __call__(self, result: Any, meta: dict[str, Any]) -> bytes:
        """Return head and parts of an item, see `gepipe.pipeline.fan`.

        Raises:
            ItemError: It cannot be split.
        """
        facts = self.splitter.parts(result, meta)
        if self.splitter.single and len(facts) != 1:
            raise ItemError("parts", f"{self.splitter.title}: made {len(facts)} parts, not one")
        head = marshal.dumps((to_bytes(result), encode(meta), self.splitter.key(result)))
        return marshal.dumps((head, [(self._encoded(each), self._shapes(each)) for each in facts]))

    def _encoded(self, facts: dict[str, Any]) -> bytes:
        encoded = encode(facts)
        if len(encoded) > _FACTS_MAX:
            raise ItemError(
                "parts",
                f"{self.splitter.title}: the facts of a part take {len(encoded):,} bytes; expected "
                f"at most {_FACTS_MAX:,}",
            )
        return encoded

    def _shapes(self, facts: dict[str, Any]) -> Shapes:
        if not self.tells_shapes:
            return ()
        # A part that cannot be cut, or used, fails where that is tried, and no other one with it.
        with suppress(ConfigError):
            return row_shapes(self.splitter.part_size(facts) or _ANY_SIZE, self.ops) or ()
        return row_shapes(_ANY_SIZE, self.ops) or ()


def row_shapes(size: tuple[int, int], ops: Sequence[Op]) -> Shapes | None:
    """Return the row shapes of a part of that size, None if the operators do not tell.

    Args:
        size: Height and width of the picture that the splitting operator makes.
        ops: Those behind it.

    Raises:
        ConfigError: An operator can never work on it.
    """
    spec: TensorSpec | None = TensorSpec("", "uint8", (*size, 3))
    for op in ops:
        spec = op.output_spec(spec)
    return None if spec is None or not spec.is_static else (spec.shape,)


def tells_shapes(splitter: Splitter, ops: Sequence[Op]) -> bool:
    """Return whether the row shapes of parts are known before they are cut.

    Args:
        splitter: The operator that splits.
        ops: Those behind it.
    """
    if type(splitter).part_size is Splitter.part_size:
        return False
    with suppress(ConfigError):  # told where the tensors are compared
        return row_shapes(_ANY_SIZE, ops) is not None
    return False


@dataclass(frozen=True)
class Cut(Op):
    """The splitting operator as the workers of the next model call it.

    Attributes:
        splitter: The operator.
    """

    splitter: Splitter

    def __call__(self, value: Part, meta: dict[str, Any]) -> Any:
        """Return the picture of a part; its size and facts become meta."""
        meta["part"] = value.facts
        picture = self.splitter(value, meta)
        meta["height"], meta["width"] = picture.shape[:2]
        return picture

    def setup(self) -> None:
        """Set the operator up."""
        self.splitter.setup()

    @property
    def title(self) -> str:
        """The operator as people write it."""
        return self.splitter.title

    def output_spec(self, spec: TensorSpec | None) -> TensorSpec | None:
        """Return what the operator says."""
        return self.splitter.output_spec(spec)


@dataclass
class CutReader:
    """Reads parts: the pictures that they lie in, which the parts of an item share.

    Parts of one shape are batched, so that those of an item come in several batches, mixed with
    those of its neighbours: the last pictures are kept.

    Attributes:
        reader: The source's reader.
        original: Reads pictures.
        color: The colour order of the pipeline's pictures.
        decodes: Whether they are decoded; otherwise inputs are pictures already.
        before: The splitting operators of the legs before, for parts of parts.

    Raises:
        ConfigError: The source gives no pictures, and nothing else is known that makes them.
    """

    reader: Reader
    original: Original
    color: Literal["rgb", "bgr"]
    decodes: bool
    before: tuple[Splitter, ...] = ()
    _kept: OrderedDict[Any, NDArray[Any]] = field(
        default_factory=OrderedDict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        if self.decodes or not isinstance(self.reader, FileReader | TextReader):
            return
        gives = "texts" if isinstance(self.reader, TextReader) else "the bytes of files"
        raise ConfigError(
            f"parts are cut out of pictures, and the source gives {gives}: what other operators "
            "make of them does not reach those who cut; begin with `- decode_image` and put your "
            "own function behind it, or use a source that gives 8-bit arrays of height, width and "
            "channels, such as npy"
        )

    def attach(self, buffer: SharedBuffer) -> None:
        """Take the memory that payloads point into."""
        self._kept.clear()
        attach: Callable[[SharedBuffer], None] | None = getattr(self.reader, "attach", None)
        if attach is not None:
            attach(buffer)

    def read(self, payload: tuple[Any, bytes]) -> Part:
        """Return the part."""
        where, facts = payload
        return self._part(where, facts, len(self.before))

    def _part(self, where: Any, facts: bytes, depth: int) -> Part:
        color = getattr(self.before[depth - 1], "color", None) if depth else None
        return Part(lambda: self._picture(where, depth), decode(facts), color or self.color)

    def _picture(self, payload: Any, depth: int) -> NDArray[Any]:
        """Return the picture that parts of this depth lie in."""
        kept, key = self._kept, (depth, _hashable(payload))
        if key in kept:
            kept.move_to_end(key)
            return kept[key]
        room = _KEPT_NBYTES - sum(picture.nbytes for picture in kept.values())
        while kept and room < next(reversed(kept.values())).nbytes:  # as large as the last one
            room += kept.popitem(last=False)[1].nbytes
        if depth:
            where, facts = payload
            part = self._part(where, facts, depth - 1)
            picture = self.before[depth - 1](part, {})
        else:
            picture = self._whole(taken_out(payload))
            if self.color == "rgb":
                import cv2

                picture = cv2.cvtColor(picture, cv2.COLOR_BGR2RGB)
        picture.flags.writeable = False
        kept[key] = picture
        return picture  # type: ignore[no-any-return]

    def _whole(self, payload: Any) -> NDArray[Any]:
        """Return an item's picture."""
        if self.decodes:
            return self.original.picture(payload)
        import numpy as np

        value = self.reader.read(payload)
        if not isinstance(value, np.ndarray) or value.ndim != 3 or value.dtype != np.uint8:
            told = getattr(value, "shape", type(value).__name__)
            raise ItemError(
                "shape",
                f"parts are cut out of pictures, but the input is {told}; begin with decode_image, "
                "or give 8-bit arrays of height, width and channels",
            )
        return value.view()


def _hashable(payload: Any) -> Any:
    """Return a payload, or what stands for it where it is a list or dict."""
    try:
        hash(payload)
    except TypeError:
        return marshal.dumps(payload, 2)  # later versions write equal values in several ways
    return payload


def cutting(ops: Sequence[Any]) -> tuple[Op, ...]:
    """Return the operators of a leg's pre stage as its workers run them."""
    first, *others = ops
    return (Cut(first), *others)
