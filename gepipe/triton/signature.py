"""Inputs and outputs as a configuration states them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gepipe.triton.models import Model
from gepipe.triton.textnodes import Message

#: Numbers of data types, which a configuration may write instead of names.
_NUMBERED: Final = dict(
    enumerate(
        [
            "INVALID",
            "BOOL",
            "UINT8",
            "UINT16",
            "UINT32",
            "UINT64",
            "INT8",
            "INT16",
            "INT32",
            "INT64",
            "FP16",
            "FP32",
            "FP64",
            "STRING",
            "BF16",
        ]
    )
)


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output.

    Attributes:
        side: `input` or `output`.
        path: The field, such as `input[0]`.
        message: Where it is stated.
        name: Its name.
        dtype: Its type without `TYPE_`; `INVALID` where none is stated.
        dims: Its extents; -1 where they vary.
        max_batch: The largest batch of its model; 0 without batches.
    """

    side: str
    path: str
    message: Message
    name: str
    dtype: str
    dims: tuple[int, ...]
    max_batch: int

    @property
    def shape(self) -> tuple[int, ...]:
        """What a request has: with the batch, where there is one."""
        return (-1, *self.dims) if self.max_batch > 0 else self.dims

    @property
    def is_optional(self) -> bool:
        """Whether a request may leave it out."""
        value = self.message.scalar("optional")
        return value is not None and value.source in ("true", "True", "t", "1")

    def fits(self, other: Tensor) -> bool:
        """Whether the server takes both for the same tensor of an ensemble."""
        return _equal(self.dims, other.dims) or _equal(self.shape, other.shape)

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


def tensors(model: Model, side: str) -> list[Tensor]:
    """Return the inputs or the outputs of a model."""
    return list(_tensors(model, side))


def _tensors(model: Model, side: str) -> Iterator[Tensor]:
    for number, message in enumerate(model.root.messages(side)):
        value = message.scalar("data_type")
        dtype = value.source.removeprefix("TYPE_") if value else "INVALID"
        if value and value.integer is not None:
            dtype = _NUMBERED.get(value.integer, "INVALID")
        dims = tuple(d.integer for d in message.scalars("dims") if d.integer is not None)
        yield Tensor(
            side, f"{side}[{number}]", message, message.text("name"), dtype, dims, model.max_batch
        )


def _equal(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return len(one) == len(other) and all(
        a == b or -1 in (a, b) for a, b in zip(one, other, strict=True)
    )
