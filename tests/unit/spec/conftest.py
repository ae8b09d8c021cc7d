"""Operators, a source and a sink of a made-up package, so that messages do not depend on ours."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gepipe import plugins

MODULE = '''
"""Plugins of a made-up package."""
from __future__ import annotations
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

@dataclass(frozen=True)
class Op:
    stage: ClassVar[str] = "pre"
    shorthand: ClassVar[str | None] = None
    __pydantic_config__: ClassVar[dict] = {"extra": "forbid"}
    def __call__(self, value, meta):
        return value

@dataclass(frozen=True)
class Blur(Op):
    """Blur an image.

    Args:
        radius: Radius in pixels.
        size: Kernel, (height, width).
        mode: How to treat the border.
        mask: File with a mask.
    """
    radius: float
    size: tuple[int, int] | int = 3
    mode: Literal["edge", "wrap"] = "edge"
    mask: Path | None = None
    def __post_init__(self):
        if self.radius <= 0:
            raise ValueError(f"radius is {self.radius}; expected more than 0")

@dataclass(frozen=True)
class Cut(Op):
    """Cut.

    Attributes:
        at: The level.
        names: Which.
        code: Your function.
    """
    stage: ClassVar[str] = "both"
    shorthand: ClassVar[str | None] = "at"
    at: float = 0.5
    names: tuple[str, ...] = ()
    code: str = ""

@dataclass(frozen=True)
class Rank(Op):
    """Rank."""
    stage: ClassVar[str] = "post"

@dataclass(frozen=True)
class Words(Op):
    """Take words."""
    shorthand: ClassVar[str | None] = "words"
    words: tuple[str, ...]

class Odd:
    """Is no dataclass, and takes anything."""
    stage = "pre"
    def __init__(self, *args):
        pass
'''
POINTS = """\
[gepipe.ops]
blur = spec_test_plugins:Blur
cut = spec_test_plugins:Cut
rank = spec_test_plugins:Rank
words = spec_test_plugins:Words
odd = spec_test_plugins:Odd
broken = spec_test_plugins_that_are_not_there:Broken
"""


def _forget() -> None:
    plugins._found.cache_clear()
    plugins.load.cache_clear()
    sys.modules.pop("spec_test_plugins", None)


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Register the operators blur, cut, rank, words, odd, and broken, whose module is missing."""
    folder = tmp_path / "site"
    info = folder / "spec_test_plugins-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "spec_test_plugins.py").write_text(MODULE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: spec-test-plugins\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(folder)
    _forget()
    yield
    _forget()
