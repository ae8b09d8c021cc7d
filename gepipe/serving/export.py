"""Makes a Triton repository of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from gepipe.errors import ExportError
from gepipe.serving import npu_ge
from gepipe.serving.client_text import (
    client_text,
    curl_text,
    example_of,
    readme_text,
    tensor_lines,
)
from gepipe.serving.export_folder import Repository
from gepipe.serving.export_plan import ExportPlan, plan_export
from gepipe.serving.layout_ensemble import ensemble_files
from gepipe.serving.layout_fused import fused_files

if TYPE_CHECKING:
    from gepipe.spec.model import PipelineSpec

Layout = Literal["ensemble", "fused"]
Target = Literal["ge", "npu_ge"]

#: Triton takes whole numbers below 2**63 as versions.
_VERSIONS: Final = range(1, 1 << 63)


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export has made.

    Attributes:
        name: The served model.
        folder: The repository.
        models: Folders in it that belong to the pipeline.
        version: The version that was written.
        removed: Models of an earlier export that were removed.
        notes: What was chosen, and why.
        lines: What clients send and get, in plain words.
        needs: What the server needs.
        warnings: What is worth a second look.
        curl: A line that sends one file; empty where curl cannot.
        client: A client in Python.
        example: What a file to send could be called.
        start_script: A script that starts the server, for `npu_ge`.
    """

    name: str
    folder: Path
    models: tuple[str, ...]
    version: int
    removed: tuple[str, ...]
    notes: tuple[str, ...]
    lines: tuple[str, ...]
    needs: tuple[str, ...]
    warnings: tuple[str, ...]
    curl: str
    client: Path
    example: str
    start_script: Path | None


def export(
    spec: PipelineSpec,
    folder: Path,
    *,
    layout: Layout | None = None,
    target: Target = "ge",
    version: int | None = None,
) -> Exported:
    """Export a pipeline into a repository, whole or not at all.

    Args:
        spec: The pipeline.
        folder: The repository; made if it is missing.
        layout: `ensemble` for four models, `fused` for one. By default the first, and the second
            for a pipeline of several models.
        target: `ge` for gepipe's own backend, `npu_ge` for CANN's.
        version: The version to write; by default the highest that is there, which is replaced, or
            the first. Other versions stay.

    Raises:
        ExportError: The pipeline cannot be served, or nothing can be written there.
        GepipeError: It could not be run either.
    """
    _require_sense(spec, layout, target, version)
    notes: tuple[str, ...] = ()
    if layout is None:
        layout = "fused" if spec.mids else "ensemble"
        if spec.mids:
            notes = (f"layout fused: {_several(spec)}",)
    is_cann = target == "npu_ge"
    plan = plan_export(npu_ge.as_onnx(spec) if is_cann else spec)
    if layout == "ensemble":
        _require_one_size(plan)
    repository = Repository(folder)
    there = repository.versions(plan.name)
    version = version or max(there, default=1)
    make = {"ensemble": ensemble_files, "fused": fused_files}[layout]
    files, modules = (npu_ge.npu_ge_files if is_cann else make)(plan, version)
    needs = (*_needs(modules), *(npu_ge.needs(plan) if is_cann else ()))
    start = f"sh {npu_ge.SCRIPT}" if is_cann else "gepipe triton serve .."
    files[f"{plan.name}/client.py"] = client_text(plan).encode()
    files[f"{plan.name}/README.md"] = readme_text(plan, start, needs).encode()
    # CANN's backend takes the first model it meets in any version.
    removed = repository.put(plan.name, files, version, keep=not is_cann)
    return Exported(
        plan.name,
        folder,
        tuple(sorted({name.partition("/")[0] for name in files})),
        version,
        removed,
        notes,
        tuple(tensor_lines(plan)),
        needs,
        tuple(npu_ge.warnings(plan) if is_cann else _hidden(folder / plan.name, there, version)),
        curl_text(plan),
        folder / plan.name / "client.py",
        example_of(plan),
        folder / plan.name / npu_ge.SCRIPT if is_cann else None,
    )


def _require_sense(
    spec: PipelineSpec, layout: Layout | None, target: Target, version: int | None
) -> None:
    if version is not None and version not in _VERSIONS:
        limit = "at least 1" if version < 1 else "at most 2**63 - 1"
        raise ExportError(f"version: expected a whole number of {limit}, got {version}")
    if spec.mids and target == "npu_ge":
        raise ExportError(
            f"target npu_ge: {_several(spec)}; use --target ge, or export each model with the "
            "stages around it as a pipeline of its own"
        )
    if spec.mids and layout == "ensemble":
        raise ExportError(f"layout ensemble: {_several(spec)}; use --layout fused")
    if target == "npu_ge" and layout == "fused":
        raise ExportError(
            "target npu_ge: is a layout of its own, the model apart from its steps; "
            "use --layout ensemble"
        )


def _several(spec: PipelineSpec) -> str:
    names = ", ".join(leg.infer.name for leg in spec.legs)
    return (
        f"{spec.name!r} has several models ({names}), and what splits an item into parts is no "
        "step of an ensemble"
    )


def _require_one_size(plan: ExportPlan) -> None:
    for row in (*plan.inputs, *plan.outputs):
        if not row.is_static:
            raise ExportError(
                f"{plan.spec.pre.name}: items keep sizes of their own ({row}), which the steps of "
                "an ensemble cannot hand on; use --layout fused, which keeps them in one model, "
                "or give all items one size, as with `resize: {size: [height, width]}`"
            )


def _hidden(model: Path, there: Sequence[int], version: int) -> Iterator[str]:
    """Warn where another version than the one that was written is served."""
    highest = max(there, default=0)
    if highest > version:
        yield (
            f"version {highest} is there too, and the server serves the highest: remove "
            f"{model / str(highest)}, or export as a higher one"
        )


def _needs(modules: tuple[str, ...]) -> tuple[str, ...]:
    """Return what the server's Python must have."""
    needs = ["Python 3.10 or newer with gepipe and numpy<2, which `gepipe triton install` makes"]
    if modules:
        names = ", ".join(modules)
        needs.append(f"in that Python also {names}, which the pipeline imports")
    return tuple(needs)
