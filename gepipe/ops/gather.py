"""The operator behind which a post stage deals with items again, and no longer with their parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from gepipe.ops.op import Meta, Op
from gepipe.ops.parts import Gathered


@dataclass(frozen=True)
class Gather(Op):
    """Put the parts of an item together again, in order.

    For the post stage of a pipeline with several models. The operators before it run once a part,
    those behind it once an item. Its result is the record that the item had before it was split,
    in which the list that it was split by is replaced by that of its parts: each is what was known
    of it before, such as its box, with its own result added; or with `failure`, a mapping of
    `stage`, `kind` and `error`. A post stage without it does the same at its end.

    Attributes:
        into: Another key for the list of the parts; the list that there was then stays.
    """

    stage: ClassVar[Literal["pre", "mid", "post", "both"]] = "post"
    shorthand: ClassVar[str | None] = "into"
    into: str | None = None

    def __post_init__(self) -> None:
        if self.into == "":
            raise ValueError("into is empty; expected the key of the list of parts")

    def __call__(self, value: Gathered, meta: Meta) -> Any:  # noqa: ARG002
        """Return the item's record with its parts."""
        record = value.record if isinstance(value.record, dict) else {"value": value.record}
        return {**record, self.into or value.key: value.parts}
