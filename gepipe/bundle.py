"""Finds what ships beside the code: ready pipelines, the fetcher of samples, Triton's backend.

In a checkout they are its folders `pipelines`, `samples` and `backend`; a wheel carries them inside
the package.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from gepipe.errors import ConfigError, InternalError
from gepipe.plugins import did_you_mean

Kind = Literal["backend", "pipelines", "samples"]

_PACKAGE = Path(__file__).resolve().parent
_SAMPLES = "gepipe_samples"


def folder(kind: Kind) -> Path:
    """Return where the ready pipelines, the code of the samples, or Triton's backend are."""
    candidates = (_PACKAGE / "_bundled" / kind, _PACKAGE.parent / kind)
    for candidate in candidates:
        if candidate.is_dir():
            return candidate
    raise InternalError(f"the installation is incomplete: {candidates[0]} is missing")


def pipeline_names() -> list[str]:
    """Return the names of the ready pipelines, sorted."""
    return sorted(path.stem for path in folder("pipelines").glob("*.yaml"))


def pipeline_text(name: str) -> str:
    """Return the YAML text of a ready pipeline.

    Raises:
        ConfigError: There is none of that name.
    """
    known = pipeline_names()
    if name not in known:
        raise ConfigError(f"no ready pipeline is called {name!r}; {did_you_mean(name, known)}")
    return (folder("pipelines") / f"{name}.yaml").read_text(encoding="utf-8")


def load_fetcher() -> Any:
    """Return the module `samples/fetch.py`; its `fetch(name, destination, report=…)` does the work.

    The folder becomes a package of a name of our own, because `samples` may mean something else
    in the user's project. The modules that convert models are imported only when they are needed.
    """
    if _SAMPLES not in sys.modules:
        package = ModuleType(_SAMPLES, "The samples that ship with gepipe.")
        package.__path__ = [str(folder("samples"))]
        sys.modules[_SAMPLES] = package
    return importlib.import_module(f"{_SAMPLES}.fetch")
