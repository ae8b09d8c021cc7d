"""The server's folder of backends: whether a backend is there, with what Python needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gepipe.triton.models import Model
from gepipe.triton.problem import Finding, error

_STUB: Final = "triton_python_backend_stub"
_UTILS: Final = "triton_python_backend_utils.py"
_LIBRARY: Final = "libtriton_python.so"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a configuration names its backend."""

    offset: int
    field: str


def check(backend: str, folder: Path, model: Model, place: Place) -> Iterator[Finding]:
    """Yield what a server with this folder of backends lacks for a model."""
    own = folder / backend
    is_native = (own / f"libtriton_{backend}.so").exists()
    if not is_native and not (own / "model.py").exists():
        known = ", ".join(sorted(each.name for each in folder.iterdir() if each.is_dir()))
        yield error(
            place.offset,
            place.field,
            f"the server has no backend {backend!r}: there is no {own} with libtriton_{backend}.so "
            f"or model.py; expected one of {known or 'those in another folder'}",
        )
    elif backend == "python" or not is_native:
        yield from _python(own, folder / "python", model, place)


def _python(own: Path, python: Path, model: Model, place: Place) -> Iterator[Finding]:
    """Look for what starts Python; without a stub, the server loads for ever."""
    missing = [] if (python / _LIBRARY).exists() else [_LIBRARY]
    has_own = (own / _STUB).exists() and (own / _UTILS).exists()
    if not has_own and _STUB not in model.files:
        missing += [name for name in (_STUB, _UTILS) if not (python / name).exists()]
    if missing:
        yield error(
            place.offset,
            place.field,
            f"the server cannot start Python: {python} has no {', '.join(missing)}; expected the "
            "whole folder of Triton's Python backend; `gepipe triton install` makes one",
        )
