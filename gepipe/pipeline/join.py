"""What runs last in a chain: an item's parts are put together, and the record is encoded."""

from __future__ import annotations

import marshal
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from gepipe.errors import ItemError
from gepipe.io.frames import stamped
from gepipe.io.original import Origin, Original
from gepipe.ops.gather import Gather
from gepipe.ops.op import Op
from gepipe.ops.parts import Gathered as Value
from gepipe.pipeline.fan import is_broken
from gepipe.pipeline.meta import decode
from gepipe.pipeline.payloadstore import taken_out

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gepipe.pipeline.fan import Gathered, Result
    from gepipe.runtime.memory import SharedBuffer


class EarlierError(ItemError):
    """A failure of an earlier stage, told again under that stage's name."""

    def __init__(self, stage: str, kind: str, error: str) -> None:
        super().__init__(kind, error)
        self.role = stage


@dataclass
class JoinBody:
    """Makes records of items whose parts are gathered. The body of a run that has nothing but pre.

    Attributes:
        ops: The operators from `gather` on, it included; without it its default runs.
        encode: The sink's encoder.
        singles: For each split, in order, whether an item has exactly one part.
        original: Reads inputs once more, where the encoder is given their `Origin` too.
    """

    ops: tuple[Op, ...]
    encode: Callable[..., bytes]
    singles: tuple[bool, ...]
    original: Original | None = None

    def setup(self) -> None:
        """Prepare the operators."""
        import cv2

        cv2.setNumThreads(1)
        for op in self.ops:
            op.setup()

    def attach(self, buffer: SharedBuffer) -> None:
        """Take the memory that payloads point into."""
        attach: Callable[[SharedBuffer], None] | None = getattr(self.original, "attach", None)
        if attach is not None:
            attach(buffer)

    def write(self, payload: tuple[Any, Any], rows: Mapping[str, Any]) -> bytes:  # noqa: ARG002
        """Return the record of an item; see `gepipe.runtime.body.Writer`.

        Args:
            payload: The item's own payload, and the item with its parts, or why it failed.
            rows: Nothing.
        """
        where, item = payload
        if is_broken(item):
            raise EarlierError(*item)
        head, parts = item
        record, meta, key = marshal.loads(head)
        value, facts = pickle.loads(record), decode(meta)
        entries = [self._entry(part, 1) for part in parts]
        ops = self.ops
        if self.singles[0]:
            value = _merged(value, entries[0])
            ops = tuple(op for op in ops if not isinstance(op, Gather))
        else:
            value = Value(value, entries, key)
            if not any(isinstance(op, Gather) for op in ops):
                ops = (Gather(), *ops)
        for op in ops:
            value = op(value, facts)
        value = stamped(value, facts)
        if self.original is None:
            return self.encode(value)
        picture = partial(_picture, self.original, where)
        return self.encode(value, Origin(facts, picture))

    def _entry(self, part: tuple[bytes, Result], depth: int) -> dict[str, Any]:
        """Return what is known of a part."""
        encoded, result = part
        facts = decode(encoded)
        if is_broken(result):
            return {**facts, "failure": dict(zip(("stage", "kind", "error"), result, strict=True))}
        if isinstance(result, bytes):
            return _merged(facts, pickle.loads(result))
        return self._nested(facts, result, depth)  # type: ignore[arg-type] # told apart above

    def _nested(self, facts: dict[str, Any], item: Gathered, depth: int) -> dict[str, Any]:
        head, parts = item
        record, _, key = marshal.loads(head)
        entries = [self._entry(part, depth + 1) for part in parts]
        value = _merged(facts, pickle.loads(record))
        if self.singles[depth]:
            return {**value, **entries[0]}
        return {**value, key: entries}


def _picture(original: Original, where: Any) -> NDArray[Any]:
    return original.picture(taken_out(where))


def _merged(record: Any, more: Any) -> dict[str, Any]:
    """Return two records as one; what is no mapping is called `value`."""
    first = record if isinstance(record, dict) else {"value": record}
    return {**first, **(more if isinstance(more, dict) else {"value": more})}
