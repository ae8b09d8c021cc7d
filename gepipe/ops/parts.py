"""What a chain of models passes on: the parts of an item, and the item with its parts gathered."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from gepipe.ops.op import Meta, Op
from gepipe.tensors import DYNAMIC, TensorSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Part(NamedTuple):
    """One part of an item, such as a box of a picture.

    Attributes:
        picture: Reads the item's picture: `(height, width, 3)` uint8, upright, in the colour order
            of the pipeline's `decode_image`; shared by the parts of an item, not to be changed.
            Raises `ItemError` where that fails.
        facts: What `Splitter.parts` said of this part; plain values.
        color: The colour order of the picture.
    """

    picture: Callable[[], NDArray[Any]]
    facts: dict[str, Any]
    color: Literal["rgb", "bgr", "gray"] = "rgb"


@dataclass(frozen=True)
class Splitter(Op):
    """An operator of a mid stage that splits an item into parts and makes a picture of each.

    `parts` runs where the model before has run, once an item; a call runs in the workers of the
    next model, once a part. Between the two travel the facts alone, never pixels.
    """

    stage: ClassVar[Literal["pre", "mid", "post", "both"]] = "mid"
    #: Whether an item has exactly one part: its result is merged into the item's, not listed.
    single: ClassVar[bool] = False

    @abstractmethod
    def parts(self, value: Any, meta: Meta) -> list[dict[str, Any]]:
        """Return the facts of each part, in order.

        Args:
            value: What the operator before returned: the record of the item so far.
            meta: Facts about the item.

        Raises:
            ItemError: The item cannot be split; it fails as a whole.
        """

    def key(self, value: Any) -> str:  # noqa: ARG002
        """Return the key of the item's record under which its parts are listed again.

        Args:
            value: As for `parts`.
        """
        return "parts"

    def part_size(self, facts: Mapping[str, Any]) -> tuple[int, int] | None:  # noqa: ARG002
        """Return height and width of the picture that a call makes; None if not known before."""
        return None

    @abstractmethod
    def __call__(self, value: Part, meta: Meta) -> Any:
        """Return the picture of a part.

        Args:
            value: The part.
            meta: Facts about the part; may be added to. `height` and `width` are set to those of
                the returned picture.

        Raises:
            ItemError: The part fails, and no other one of its item.
        """

    def output_spec(self, spec: TensorSpec | None) -> TensorSpec | None:  # noqa: ARG002
        """Return a picture in colour of unknown size."""
        return TensorSpec("", "uint8", (DYNAMIC, DYNAMIC, 3))


class Gathered(NamedTuple):
    """What `gather` is given: an item whose parts have all been through the last model.

    Attributes:
        record: What the operator before the splitting one returned.
        parts: For each part its facts merged with its own result, or with `failure`: a mapping of
            `stage`, `kind` and `error`.
        key: What `Splitter.key` said.
    """

    record: Any
    parts: list[dict[str, Any]]
    key: str
