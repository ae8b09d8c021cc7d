"""What a model file says of itself: `.onnx`, `.om` for cards, `.om` for the emulator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gepipe.errors import ModelLoadError
from gepipe.models.header import read_header
from gepipe.models.kind import kind_of
from gepipe.models.onnxfile import read_onnx


@dataclass(frozen=True)
class Tensor:
    """An input or output.

    Attributes:
        name: Its name.
        dtype: Its type, as NumPy has it.
        shape: Extents; a name or -1 where one is open.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    def __str__(self) -> str:
        extents = ", ".join("?" if each == -1 else str(each) for each in self.shape)
        return f"{self.name}: {self.dtype} [{extents}]"


@dataclass(frozen=True)
class Inspection:
    """What a model file says of itself.

    Attributes:
        path: The file.
        format: `onnx`, `om`, or `om for the emulator`.
        nbytes: Its size.
        inputs: What it takes; None where the file does not tell.
        outputs: What it makes; None where the file does not tell.
        gears: What it was made for: (kind, values); None for none, or where it does not tell.
        facts: Whatever else it says, by name.
        notes: What to know about it.
    """

    path: Path
    format: str
    nbytes: int
    inputs: tuple[Tensor, ...] | None
    outputs: tuple[Tensor, ...] | None
    gears: tuple[str, tuple[tuple[int, ...], ...]] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_plain(self) -> dict[str, Any]:
        """Return plain values for JSON."""

        def tensors(side: tuple[Tensor, ...] | None) -> list[dict[str, Any]] | None:
            if side is None:
                return None
            return [{"name": t.name, "dtype": t.dtype, "shape": list(t.shape)} for t in side]

        gears = None
        if self.gears is not None:
            gears = {"kind": self.gears[0], "values": [list(value) for value in self.gears[1]]}
        return {
            "path": str(self.path), "format": self.format, "nbytes": self.nbytes,
            "inputs": tensors(self.inputs), "outputs": tensors(self.outputs), "gears": gears,
            **self.facts, "notes": list(self.notes),
        }  # fmt: skip


def inspect(path: Path) -> Inspection:
    """Look at a model file.

    Raises:
        ConfigError: There is no such file, or it is none that can be read.
        ModelLoadError: It is damaged, or no model that gepipe knows.
    """
    kind, words = kind_of(path)
    if kind == "onnx":
        return _onnx(path)
    if kind == "om":
        return _om(path)
    if kind == "emulator":
        return _emulated(path)
    raise ModelLoadError(f"{path}: neither an ONNX nor an .om model: {words}")


def _misnamed(path: Path, right: str) -> Iterator[str]:
    if path.suffix.lower() in (".onnx", ".om") and path.suffix.lower() != right:
        if right == ".onnx":
            yield (
                "not an .om model: this is ONNX; convert with `gepipe model convert "
                f"{path.with_suffix('.onnx')}`, after renaming it"
            )
        else:
            yield "not an ONNX model: this is an .om model; rename it"


def _onnx(path: Path) -> Inspection:
    model = read_onnx(path)
    notes = list(_misnamed(path, ".onnx"))
    nbytes = model.nbytes
    for name in model.external:
        beside = path.parent / name
        if beside.is_file():
            nbytes += beside.stat().st_size
        else:
            notes.append(f"its weights are in {name}, which is not beside it")
    return Inspection(
        path,
        "onnx",
        nbytes,
        tuple(Tensor(t.name, t.dtype, t.shape) for t in model.inputs),
        tuple(Tensor(t.name, t.dtype, t.shape) for t in model.outputs),
        facts={
            "producer": model.producer, "ir_version": model.ir_version, "opset": model.opset,
            "domains": dict(model.domains), "node_count": model.node_count,
            "external": list(model.external),
        },
        notes=tuple(notes),
    )  # fmt: skip


def _om(path: Path) -> Inspection:
    header = read_header(path)
    notes = list(_misnamed(path, ".om"))
    notes.append(
        "inputs, outputs and gears of an .om model are known to the card that opens it: "
        "gepipe check PIPELINE.yaml"
    )
    facts = {
        "soc": header.soc or None, "name": header.name, "version": header.version,
        "model_type": header.model_type, "model_count": header.model_count,
        "is_dynamic": header.is_dynamic, "is_encrypted": header.is_encrypted,
        "platform": header.platform,
        "partitions": [
            {"kind": part.kind, "offset": part.offset, "nbytes": part.nbytes}
            for part in header.partitions
        ],
    }  # fmt: skip
    return Inspection(path, "om", header.nbytes, None, None, facts=facts, notes=tuple(notes))


def _emulated(path: Path) -> Inspection:
    from gepipe.emulator.errors import OmError
    from gepipe.emulator.om import OmTensor, read_om

    try:
        model = read_om(path)
    except OmError as error:
        raise ModelLoadError(str(error)) from error

    def tensors(side: tuple[OmTensor, ...]) -> tuple[Tensor, ...]:
        return tuple(Tensor(t.name, t.dtype, t.shape) for t in side)

    facts = {
        "soc": model.soc, "name": model.name, "computes": bool(model.graph),
        "weight_bytes": model.weight_bytes, "work_bytes": model.work_bytes,
        "aipp": sorted(model.aipp),
        "ranges": {name: [list(pair) for pair in pairs] for name, pairs in model.ranges.items()},
    }  # fmt: skip
    return Inspection(
        path,
        "om for the emulator",
        path.stat().st_size,
        tensors(model.inputs),
        tensors(model.outputs),
        (model.gears.kind, model.gears.values) if model.gears else None,
        facts,
        (*_misnamed(path, ".om"), "runs on the emulator only: GEPIPE_ACL=emulator"),
    )


def swaps_channels(path: Path) -> bool:
    """Whether a model of the emulator turns the order of its input's channels round."""
    from gepipe.emulator.om import read_om

    return any(aipp.rbuv_swap_switch for aipp in read_om(path).aipp.values())
