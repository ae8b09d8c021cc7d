"""The characters of a text recogniser, and its output read with them.

The numeric side of `ctc`. Loaded by workers only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gepipe.errors import ConfigError, reason_of
from gepipe.regular import read_regular

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Far more than all of Unicode takes.
_FILE_BYTES: Final = 16 << 20


@dataclass(frozen=True)
class Characters:
    """What the classes of a recogniser stand for.

    Attributes:
        path: The file they were read from.
        texts: Of each class but the blank; mostly one character.
    """

    path: Path
    texts: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> Characters:
        """Read a JSON list, or text with one entry a line; a line may be a space.

        Raises:
            ConfigError: The file cannot be read or understood.
        """
        try:
            text = read_regular(path, _FILE_BYTES).decode("utf-8-sig")
        except OSError as error:
            why = reason_of(error)
            raise ConfigError(f"characters: cannot read {path}: {why}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"characters: {path} is not UTF-8: {error}") from error
        listed = _json_list(text)
        # Not splitlines(): it would also split at characters that are entries themselves.
        texts = text.removesuffix("\n").split("\n") if listed is None else listed
        texts = [entry.removesuffix("\r") for entry in texts]
        if not texts or "" in texts:
            line = texts.index("") + 1 if texts else 1
            raise ConfigError(
                f"characters: {path}: entry {line} is missing; expected the model's characters, "
                "one a line or as a JSON list, without the blank"
            )
        return cls(Path(path), tuple(texts))

    def for_classes(self, count: int, output: str, blank: int) -> tuple[str, ...]:
        """Return the text of each class of a model, that of the blank being empty.

        Args:
            count: How many classes the model has.
            output: Its output, for the message.
            blank: The class of the blank; -1 is the last.

        Raises:
            ConfigError: There are not as many characters.
        """
        texts = self.texts if len(self.texts) == count - 1 else (*self.texts, " ")
        at = count - 1 if blank == -1 else blank
        if len(texts) != count - 1 or at >= count:
            raise ConfigError(
                f"characters: {self.path} has {len(self.texts)} characters, but the output "
                f"{output!r} has {count} classes with the blank, which is {blank}; use the file "
                "that belongs to the model"
            )
        return (*texts[:at], "", *texts[at:])


def steps_of(steps: int, filled: Sequence[int]) -> int:
    """Return how many steps of a line lie on what it was not filled up with, at least 1.

    Args:
        steps: Of the whole line.
        filled: Pixels that the line itself has, and with the filling.
    """
    return max(1, math.ceil(steps * filled[0] / filled[1]))


def decode(steps: NDArray[Any], texts: tuple[str, ...]) -> tuple[str, float]:
    """Return the text of a line, and the mean probability of its characters, 0 of none.

    Args:
        steps: (steps, classes) probabilities. A step that holds NaN is taken for a blank.
        texts: Of each class; the blank's is empty.
    """
    best = steps.argmax(axis=1)  # that of a NaN, where there is one
    probabilities = steps[np.arange(len(best)), best].astype(np.float64)
    fresh = np.append(True, best[1:] != best[:-1]) & ~np.isnan(probabilities)
    kept = [i for i in np.flatnonzero(fresh).tolist() if texts[best[i]]]
    if not kept:
        return "", 0.0
    return "".join(texts[best[i]] for i in kept), float(probabilities[kept].mean())


def _json_list(text: str) -> list[str] | None:
    """Return a JSON list of texts; None where it is something else, such as lines of text."""
    if not text.startswith("["):
        return None
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return [str(entry) for entry in content] if isinstance(content, list) else None
