"""Converts a model for the emulator, in a process of its own: `python -m gepipe.models.emulated`.

ONNX Runtime is loaded here and not in the process that asks. The request is JSON on standard
input; what is wrong with it is printed, and the exit code is then 2.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from gepipe.errors import ModelLoadError
from gepipe.models.aipp import Aipp
from gepipe.models.onnxfile import OnnxFile
from gepipe.models.options import ConvertOptions
from gepipe.models.shapes import Shapes

#: An ONNX graph with its weights is one protobuf message.
_MOST_BYTES: Final = (2 << 30) - 1


def convert_emulated(  # noqa: PLR0913, PLR0917 - what a conversion is made of
    model: OnnxFile,
    output: Path,
    shapes: Shapes,
    options: ConvertOptions,
    aipp: Aipp | None,
    log: Path,
    timeout_s: float,
) -> None:
    """Write a model of the emulator.

    Args:
        model: The ONNX file.
        output: Where to.
        shapes: Inputs and gears.
        options: The rest, which the emulator has no use for.
        aipp: Preprocessing of the only input.
        log: What the process prints goes here.
        timeout_s: When it is ended.

    Raises:
        ModelLoadError: It failed.
    """
    del options
    files = (model.path, *(model.path.parent / name for name in model.external))
    if sum(file.stat().st_size for file in files) > _MOST_BYTES:
        raise ModelLoadError(
            f"{model.path}: the emulator takes models of at most 2 GiB, weights included"
        )
    request = {
        "model": str(model.path),
        "external": list(model.external),
        "output": str(output),
        "name": model.path.stem,
        "kind": shapes.kind,
        "inputs": {name: list(shape) for name, shape in shapes.inputs.items()},
        "gears": [list(gear) for gear in shapes.gears],
        "input_format": shapes.input_format,
        "aipp": None if aipp is None else _described(aipp),
    }
    environ = {**os.environ, "ORT_DISABLE_TELEMETRY": os.environ.get("ORT_DISABLE_TELEMETRY", "1")}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "gepipe.models.emulated"], env=environ, text=True,
            input=json.dumps(request), capture_output=True, timeout=timeout_s, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ModelLoadError(f"{model.path}: not converted within {timeout_s:g} s") from None
    log.write_text(done.stdout + done.stderr)
    if done.returncode:
        said = (done.stdout if done.returncode == 2 else done.stderr).strip().splitlines()
        reason = said[-1] if said else f"the process ended with {done.returncode}"
        raise ModelLoadError(f"{model.path}: cannot be converted for the emulator: {reason}")


def _described(aipp: Aipp) -> dict[str, Any]:
    """Return AIPP by the names that the emulator has from atc."""
    return {
        "input_format": aipp.input_format,
        "src_image_size_w": aipp.width,
        "src_image_size_h": aipp.height,
        "rbuv_swap_switch": aipp.swap,
        "mean_chn": [0.0] * aipp.channels,
        "min_chn": list(aipp.min_chn),
        "var_reci_chn": list(aipp.var_reci_chn),
    }


def main() -> None:
    """Do what standard input asks for."""
    request = json.load(sys.stdin)
    try:
        _convert(request)
    except (ValueError, OSError, ImportError, RuntimeError) as error:
        print(str(error).replace("\n", " "))  # noqa: T201 - read by the process that asked
        raise SystemExit(2) from None
    except Exception as error:
        if type(error).__module__.startswith("onnxruntime"):  # which have no common base
            print(str(error).replace("\n", " "))  # noqa: T201
            raise SystemExit(2) from None
        raise


def _convert(request: dict[str, Any]) -> None:
    from gepipe.emulator.convert import convert_onnx
    from gepipe.emulator.om import Aipp as EmulatorAipp
    from gepipe.emulator.om import Gears

    kind = request["kind"]
    inputs: dict[str, Sequence[Any]] = request["inputs"]
    ranges: dict[str, list[tuple[int, int]]] | None = None
    if kind == "ranges":
        ranges = {
            name: [tuple(each) if isinstance(each, list) else (each, each) for each in shape]
            for name, shape in inputs.items()
        }
    aipp = None
    if request["aipp"] is not None:
        plain = request["aipp"]
        lists = {key: tuple(plain[key]) for key in ("mean_chn", "min_chn", "var_reci_chn")}
        aipp = {next(iter(inputs)): EmulatorAipp(**{**plain, **lists})}
    convert_onnx(
        Path(request["output"]),
        _graph(Path(request["model"]), request["external"]),
        input_shapes=None if ranges else {name: tuple(shape) for name, shape in inputs.items()},
        gears=Gears(kind, tuple(map(tuple, request["gears"]))) if request["gears"] else None,
        ranges=ranges,
        aipp=aipp,
        input_format="NHWC" if request["input_format"] == "NHWC" else "NCHW",
        name=request["name"],
    )


def _graph(path: Path, external: Sequence[str]) -> bytes:
    """Return the ONNX bytes with all weights in them."""
    if not external:
        return path.read_bytes()
    try:
        import onnx
    except ImportError:
        raise ValueError(
            f"its weights are in other files ({external[0]}, …), which needs the package onnx: "
            "pip install onnx"
        ) from None
    model = onnx.load(str(path), load_external_data=False)
    for tensor in _tensors(model.graph):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            where = {entry.key: entry.value for entry in tensor.external_data}
            with (path.parent / where["location"]).open("rb") as file:
                file.seek(int(where.get("offset", 0)))
                tensor.raw_data = file.read(int(where.get("length", -1)))
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]
    return bytes(model.SerializeToString())


def _tensors(graph: Any) -> Iterator[Any]:
    """Yield every constant of a graph, those within its operators included."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield attribute.t
            yield from attribute.tensors
            for inner in (attribute.g, *attribute.graphs):
                yield from _tensors(inner)


if __name__ == "__main__":
    main()
