"""Operators for text: tokens in front of a model, and a vector behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from gepipe.ops.op import Meta, Op
from gepipe.tensors import TensorSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gepipe.ops.tokens import Encoder

#: What a tokenizer makes, under the names that exported models give their inputs.
MADE = ("input_ids", "attention_mask", "token_type_ids")


@dataclass(frozen=True)
class Tokenize(Op):
    """Turn a text into the tokens that a language model takes.

    Takes text, or its bytes in UTF-8. Writes `input_ids`, `attention_mask` and `token_type_ids`,
    those of them that the model has, padded on the right to `max_length`. `meta["tokens"]` is the
    number of tokens, `meta["truncated"]` of those that were cut off, where there are any. What the
    file itself says of padding and truncation is not followed. Needs `pip install 'gepipe[text]'`.

    Attributes:
        tokenizer: The model's tokenizer.json.
        max_length: Most tokens of a text, those that frame it included; the rest is cut off.
        lengths: Lengths that a batch is executed at, instead of `max_length`: the smallest that
            holds its longest text. An engine whose model takes any length follows it.
        inputs: The model's names of its inputs, where they are others, such as
            {attention_mask: input_mask}.
    """

    shorthand: ClassVar[str | None] = "tokenizer"
    tokenizer: Path
    max_length: int = 256
    lengths: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
    inputs: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.max_length < 1:
            raise ValueError(f"max_length is {self.max_length}; expected at least 1")
        if min(self.lengths, default=1) < 1:
            raise ValueError(f"lengths has {min(self.lengths)}; expected numbers of at least 1")
        for name in self.inputs:
            if name not in MADE:
                raise ValueError(f"inputs: {name!r} is not made; expected {', '.join(MADE)}")

    @property
    def names(self) -> Mapping[str, str]:
        """The model's name of each tensor."""
        return {made: self.inputs.get(made, made) for made in MADE}

    @property
    def steps(self) -> tuple[int, ...]:
        """Lengths that a batch may be executed at, ascending, the longest included."""
        return (*sorted({n for n in self.lengths if n < self.max_length}), self.max_length)

    @property
    def tensors(self) -> tuple[str, ...]:
        """The model's names of what is made."""
        return tuple(self.names.values())

    def __call__(self, value: Any, meta: Meta) -> dict[str, NDArray[Any]]:
        """Return the tokens as dict of name to int64 array, `max_length` long.

        Raises:
            ItemError: `not_text`: it is no text in UTF-8.
        """
        import numpy as np

        rows = {name: np.empty(self.max_length, np.int64) for name in self.tensors}
        self.write(value, meta, rows)
        return rows

    def write(self, value: Any, meta: Meta, rows: Mapping[str, NDArray[Any]]) -> None:
        """Write the tokens into the model's inputs; see `Op.write`."""
        self._encoder.write(value, meta, rows)

    def setup(self) -> None:
        """Read the tokenizer.

        Raises:
            ConfigError: The library is missing, or the file is no tokenizer.
        """
        _ = self._encoder

    def output_spec(self, spec: TensorSpec | None) -> TensorSpec | None:  # noqa: ARG002
        """Return what each of the tensors is."""
        return TensorSpec("", "int64", (self.max_length,))

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_encoder"}

    @cached_property
    def _encoder(self) -> Encoder:
        from gepipe.ops.tokens import Encoder

        return Encoder(self.tokenizer, self.max_length, self.names)


@dataclass(frozen=True)
class Vector(Op):
    """Return an output of the model as the item's vector: `{"vector": array}`, float32.

    For a model that gives one vector a token, `pooling` makes one of them; padding does not count.

    Attributes:
        output: Name of the model's output; may be left out if there is only one.
        pooling: none takes the output as it is; mean, max, first and last combine the vectors of
            the tokens: their mean, the largest of each value, that of the first token (`[CLS]`),
            that of the last.
        normalize: Whether the vector is scaled to length 1, so that a dot product is a cosine.
        dtype: Data type of the vector: float32 or float16.
        facts: Facts about the item that are put beside the vector: tokens, truncated, and what
            other operators noted in `meta`.
    """

    stage: ClassVar[Literal["pre", "post", "both"]] = "post"
    shorthand: ClassVar[str | None] = "output"
    output: str | None = None
    pooling: Literal["none", "mean", "max", "first", "last"] = "none"
    normalize: bool = False
    dtype: Literal["float32", "float16"] = "float32"
    facts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if "vector" in self.facts:
            raise ValueError("facts has 'vector', which is the name of the vector itself")

    def __call__(self, value: Any, meta: Meta) -> dict[str, Any]:
        """Return the record.

        Raises:
            ItemError: `shape` if the output is no vector, or for `pooling` no vector a token.
            ConfigError: There is no such output, or pooling lacks the number of tokens.
        """
        from gepipe.ops import scores, vectors

        name, array = scores.pick("vector", value, self.output)
        if self.pooling != "none":
            array = vectors.pooled(array, self.pooling, meta, name)
        vector = vectors.finished(array, name, normalize=self.normalize, dtype=self.dtype)
        return {"vector": vector, **{fact: meta.get(fact, 0) for fact in self.facts}}
