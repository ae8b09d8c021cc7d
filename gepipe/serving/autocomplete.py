"""Fills in what a configuration leaves out, from the model file, without opening a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gepipe.engines import texts
from gepipe.errors import ConfigError, GepipeError
from gepipe.models.inspection import Inspection, Tensor, inspect
from gepipe.serving.declared import ROWS, Declared, triton_type
from gepipe.serving.rawrows import STRING
from gepipe.serving.settings import Settings
from gepipe.tensors import DTYPES, DYNAMIC, TensorSpec


def complete(auto: Any, folder: Path) -> None:
    """Complete a configuration, or hold it against the model.

    Args:
        auto: The server's `ModelConfig`.
        folder: The version folder.

    Raises:
        GepipeError: The model file is wrong, or the configuration does not fit it.
    """
    config = auto.as_dict()
    found = inspect(Settings.read(config, folder).model)
    if found.inputs is None or found.outputs is None:
        if not config.get("input") or not config.get("output"):
            raise ConfigError(
                f"{found.path}: an .om model tells its inputs and outputs only to a card; expected "
                "them in config.pbtxt"
            )
        Declared.read(config)
        return
    inputs, outputs = _specs(found.inputs), _specs(found.outputs)
    batched = int(config.get("max_batch_size", 0)) > 0
    if not batched and _counts_rows_only(config, inputs):
        auto.set_max_batch_size(_batch(found, inputs))
        auto.set_dynamic_batching()
        batched = True
    first = 1 if batched else 0
    for side, add, specs in (
        ("input", auto.add_input, inputs),
        ("output", auto.add_output, outputs),
    ):
        if config.get(side):
            continue
        for spec in specs:
            if not spec.shape:
                raise ConfigError(
                    f"{found.path}: it does not tell the shape of {side} {spec.name!r}; expected "
                    f"{side} in config.pbtxt"
                )
            add(_entry(spec, spec.shape[first:]))
    told = [spec.row for spec in outputs if spec.shape]
    untold = {spec.name for spec in outputs if not spec.shape}
    declared = Declared.read(auto.as_dict())
    kept = tuple(spec for spec in declared.outputs if spec.name not in untold)
    replace(declared, outputs=kept).filled([spec.row for spec in inputs], told)


def _counts_rows_only(config: Any, inputs: Sequence[TensorSpec]) -> bool:
    """Whether the inputs are declared without a batch axis, or not at all.

    Then `max_batch_size` was left out, which the server does not tell from 0.
    """
    given = config.get("input") or ()
    raw = {
        entry["name"]
        for entry in given
        if entry["data_type"] == f"TYPE_{STRING}" and list(entry.get("dims") or ()) == [1]
    }
    declared = {entry["name"]: len(entry.get("dims") or ()) for entry in given}
    return not declared or all(
        spec.name in raw or declared.get(spec.name, 0) == len(spec.shape) - 1 for spec in inputs
    )


def _batch(found: Inspection, inputs: Sequence[TensorSpec]) -> int:
    if found.gears is not None and found.gears[0] == "batch":
        return max(value[0] for value in found.gears[1])
    extents = [spec.shape[0] for spec in inputs if spec.shape]
    return max(extents, default=DYNAMIC) if max(extents, default=DYNAMIC) > 0 else ROWS


def _specs(tensors: Sequence[Tensor]) -> list[TensorSpec]:
    specs = []
    for tensor in tensors:
        if tensor.dtype not in (*DTYPES, texts.STRING):
            raise ConfigError(
                f"{tensor.name!r} is {tensor.dtype}, which no engine takes; expected one of "
                f"{', '.join((*DTYPES, texts.STRING))}"
            )
        shape = tuple(e if isinstance(e, int) and e >= 0 else DYNAMIC for e in tensor.shape)
        specs.append(TensorSpec(tensor.name, tensor.dtype, shape))
    return specs


def _entry(spec: TensorSpec, dims: Sequence[int]) -> dict[str, Any]:
    return {
        "name": spec.name,
        "data_type": triton_type(spec.dtype),
        "dims": list(dims) or [1],
    }


def complete_config(auto: Any) -> Any:
    """Answer the server's `auto_complete_config`.

    Raises:
        Exception: `pb_utils.TritonModelException`, whose text the server shows as it is.
    """
    import triton_python_backend_utils as pb_utils

    try:
        complete(auto, Path(pb_utils.get_model_dir()))
    except GepipeError as error:
        raise pb_utils.TritonModelException(str(error)) from None
    return auto
