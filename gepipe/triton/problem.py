"""What is wrong with a model repository, where, and how it is put right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from gepipe.triton.edit import Edit

Level: TypeAlias = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Move:
    """Rename a file or folder of a model."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Make:
    """Make a folder of a model, with a file `.keep` that version control does not lose."""

    folder: str


@dataclass(frozen=True, slots=True)
class Repair:
    """A change that puts a problem right.

    Attributes:
        words: What it does.
        edits: Changes of the configuration's text.
        actions: Changes of the model's files.
    """

    words: str
    edits: tuple[Edit, ...] = ()
    actions: tuple[Move | Make, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """Something a rule found in a configuration, or in a file where `file` names one.

    Attributes:
        level: `error`: it does not load, hangs, or fails every request. `warning`: it works, but
            not as one thinks.
        offset: Where in the configuration's text.
        field: Which field, such as `input[0].dims`.
        text: `problem; expected …; hint`.
        repair: How it is put right; None where only a person knows.
        file: A file or folder of the model, for what is not in its configuration.
        line: The line there, 0 for none.
    """

    level: Level
    offset: int
    field: str
    text: str
    repair: Repair | None = None
    file: str = ""
    line: int = 0


def error(offset: int, field: str, text: str, repair: Repair | None = None) -> Finding:
    """Return a finding that keeps a model from serving."""
    return Finding("error", offset, field, text, repair)


def warning(offset: int, field: str, text: str, repair: Repair | None = None) -> Finding:
    """Return a finding that a model serves with."""
    return Finding("warning", offset, field, text, repair)


@dataclass(frozen=True, slots=True)
class Problem:
    """A finding with its place in the files as they were."""

    level: Level
    path: Path
    line: int
    column: int
    field: str
    text: str
    repair: str = ""

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}" if self.line else str(self.path)
        return f"{where}: {self.field}: {self.text}" if self.field else f"{where}: {self.text}"

    def to_plain(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "level": self.level,
            "path": str(self.path),
            "line": self.line or None,
            "column": self.column or None,
            "field": self.field,
            "text": self.text,
            "repair": self.repair or None,
        }


#: Each as name, NumPy's type, and extents.
Tensors: TypeAlias = "tuple[tuple[str, str, tuple[int | str, ...]], ...]"


@dataclass(frozen=True, slots=True)
class ModelFile:
    """What a model file says of itself.

    Attributes:
        kind: `onnx`, `om`, `emulator` or `other`.
        words: For it, in messages.
        inputs: Its inputs; None where the file does not tell.
        outputs: Its outputs; likewise.
    """

    kind: str
    words: str
    inputs: Tensors | None = None
    outputs: Tensors | None = None


#: Opens a model file; None where it cannot be read.
Describe: TypeAlias = "Callable[[Path], ModelFile | None]"
