"""The numeric side of the result operators. Loaded by workers only."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gepipe.errors import ConfigError, ItemError
from gepipe.plugins import did_you_mean
from gepipe.regular import read_regular

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Far more than names of classes take.
_LABELS_BYTES: Final = 64 << 20


@dataclass(frozen=True)
class Labels:
    """Names of the classes.

    Attributes:
        path: The file they were read from.
        names: Class to name.
        count: One more than the highest class.
        dense: Whether every class has a name, so that the count must equal the model's.
    """

    path: Path
    names: Mapping[int, str]
    count: int
    dense: bool

    @classmethod
    def read(cls, path: Path) -> Labels:
        """Read a JSON list, a JSON object with class numbers as keys, or text lines.

        Raises:
            ConfigError: The file cannot be read or understood.
        """
        try:
            text = read_regular(path, _LABELS_BYTES).decode("utf-8-sig")
            content = json.loads(text) if text.lstrip()[:1] in ("[", "{") else text.splitlines()
            if isinstance(content, list):
                while content and not str(content[-1]).strip():
                    content.pop()
                content = dict(enumerate(content))
            names = {int(number): str(name) for number, name in content.items()}
        except OSError as error:
            raise ConfigError(f"labels: cannot read {path}: {error.strerror or error}") from error
        except (ValueError, RecursionError) as error:
            raise ConfigError(
                f"labels: {path}: expected a JSON list, a JSON object such as "
                f'{{"282": "tiger cat"}}, or text with one name a line: {error}'
            ) from error
        if not names or min(names) < 0:
            raise ConfigError(f"labels: {path}: holds no names of classes counted from 0")
        count = max(names) + 1
        return cls(Path(path), names, count, dense=len(names) == count)

    def check(self, classes: int, output: str) -> None:
        """Raise ConfigError unless these can be the names of `classes` classes."""
        if classes < self.count or (self.dense and classes != self.count):
            raise ConfigError(
                f"labels: {self.path} names {self.count} classes, but the output {output!r} has "
                f"{classes}; use the label file that belongs to the model"
            )


def pick(op: str, value: Any, output: str | None) -> tuple[str, NDArray[Any]]:
    """Return name and array of the output that an operator works on.

    Raises:
        ConfigError: There is no such output, or none is named and there are several.
    """
    if not isinstance(value, Mapping) or not value:
        raise ConfigError(
            f"{op}: needs the model's outputs, but the operator before it returned "
            f"{type(value).__name__}"
        )
    if output is None:
        if len(value) > 1:
            names = ", ".join(map(repr, value))
            raise ConfigError(f"{op}: the model has the outputs {names}; say which: output: …")
        output = next(iter(value))
    elif output not in value:
        hint = did_you_mean(output, [str(name) for name in value])
        raise ConfigError(f"{op}: the model has no output {output!r}; {hint}")
    return output, np.asarray(value[output])


def one_table(
    op: str, name: str, array: NDArray[Any], expected: str, *, may_be_empty: bool = False
) -> NDArray[Any]:
    """Return the output of one item as a 2-D array, (rows, columns).

    Args:
        op: The operator, for the message.
        name: The output.
        array: One item of it.
        expected: What it should be, for the message.
        may_be_empty: Whether there may be nothing in it.

    Raises:
        ItemError: `shape`: more than two axes are longer than 1, or there is nothing in it.
    """
    if array.ndim < 2 or max(array.shape[:-2], default=1) > 1 or not (array.size or may_be_empty):
        raise ItemError(
            "shape",
            f"{op}: the output {name!r} is {list(array.shape)} for one item; expected {expected}",
        )
    return array.reshape(array.shape[-2:])


def one_row(op: str, name: str, array: NDArray[Any]) -> NDArray[Any]:
    """Return the scores of one item as a 1-D array.

    Raises:
        ItemError: More than one axis is longer than 1.
    """
    row = array.reshape(-1)
    if row.size == 0 or (array.ndim > 1 and max(array.shape) != row.size):
        raise ItemError(
            "shape",
            f"{op}: the output {name!r} is {list(array.shape)} for one item; expected one row of "
            "scores, one a class",
        )
    return row


def softmax(array: NDArray[Any], axis: int) -> NDArray[np.float32]:
    """Return probabilities along an axis; shifted by the maximum, so that nothing overflows."""
    logits = array.astype(np.float32)
    logits -= logits.max(axis=axis, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=axis, keepdims=True)
    return logits


def top(row: NDArray[Any], k: int) -> NDArray[np.intp]:
    """Return the classes of the k highest scores, highest first, lower class first on a tie.

    Args:
        row: (classes,) scores. NaN counts as lower than anything.
        k: How many; fewer come back if there are fewer classes.
    """
    k = min(k, row.size)
    highest = np.partition(row, row.size - k)[-k:]
    if row.dtype.kind == "f" and np.isnan(highest.max()):  # NumPy sorts NaN behind everything
        order = np.lexsort((-row, np.isnan(row)))
        return order[:k]
    candidates = np.flatnonzero(row >= highest[0])  # more than k where scores are equal
    return candidates[np.argsort(-_signed(row[candidates]), kind="stable")[:k]]


def above(row: NDArray[Any], min_score: float) -> NDArray[np.intp]:
    """Return the classes with at least that score, highest first, lower class first on a tie."""
    candidates = np.flatnonzero(row >= min_score)
    return candidates[np.argsort(-_signed(row[candidates]), kind="stable")]


def entries(
    row: NDArray[Any], classes: NDArray[np.intp], labels: Labels | None, output: str
) -> list[dict[str, Any]]:
    """Return one plain dict a class, with its label if there are labels.

    Raises:
        ConfigError: The labels do not fit the number of classes.
    """
    numbers, values = classes.tolist(), row[classes].tolist()
    if labels is None:
        return [
            {"class": number, "score": value} for number, value in zip(numbers, values, strict=True)
        ]
    labels.check(row.size, output)
    return [
        {"class": number, "label": labels.names.get(number), "score": value}
        for number, value in zip(numbers, values, strict=True)
    ]


def dump(value: Any, names: Iterable[str] | None) -> dict[str, Any]:
    """Return copies of the named outputs, or of all.

    Raises:
        ConfigError: There is no such output.
    """
    chosen = list(value) if names is None else list(names)
    return {name: np.array(pick("identity", value, name)[1], copy=True) for name in chosen}


def _signed(values: NDArray[Any]) -> NDArray[Any]:
    return values if values.dtype.kind == "f" else values.astype(np.float64)
