r"""What the configuration of a served model says beside its tensors.

In `config.pbtxt`, each a text:

    default_model_filename: "model.om"
    parameters { key: "engine" value: { string_value: "ge" } }            # or onnxruntime
    parameters { key: "device_ids" value: { string_value: "0,1" } }
    parameters { key: "timeout" value: { string_value: "50ms" } }         # of one execution
    parameters { key: "threads" value: { string_value: "2" } }            # of an engine on the CPU
    parameters { key: "precision" value: { string_value: "fp16" } }
    parameters { key: "gears" value: { string_value: "1,4,8" } }
    parameters { key: "stage" value: { string_value: "inference" } }      # its name in messages
    parameters { key: "text_bytes" value: { string_value: "1MiB" } }      # of a row of strings
    parameters { key: "max_queue_size" value: { string_value: "128" } }   # see `dispatcher`
    parameters { key: "instances" value: { string_value: "2" } }          # processes a device
    parameters { key: "max_wait" value: { string_value: "1ms" } }         # of a part-filled batch
    parameters { key: "engine_options" value: { string_value: "{\"device\": \"emulator\"}" } }

Where the server forms the batches, each of its instances works on one of the devices. With
`max_queue_size` an instance forms batches itself and hands them to whichever device is free: one
instance then serves all devices, and several share them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from gepipe import plugins
from gepipe.engines.engine import EngineOptions
from gepipe.engines.ge import modelfile
from gepipe.errors import ConfigError, ModelLoadError
from gepipe.quantities import parse_size
from gepipe.triton import parameters

_SUFFIXES: Final = (".om", ".onnx")
#: The most bytes of a row of strings, unless the configuration says otherwise.
_TEXT: Final = "64KiB"
#: What the file was called where backends expect it without an ending.
_BARE: Final = "model"


@dataclass(frozen=True, slots=True)
class Settings:
    """How a model is to be opened, and where.

    Attributes:
        stage: The stage's name in messages.
        engine: The engine's registered name.
        model: The model file.
        places: How to open it, for each process of this instance.
        queue: Requests that may wait in the backend; None where the server forms the batches.
        max_wait_s: How long a part-filled batch waits for more of them.
    """

    stage: str
    engine: str
    model: Path
    places: tuple[EngineOptions, ...]
    queue: int | None = None
    max_wait_s: float = 0.0

    @classmethod
    def read(
        cls, config: Mapping[str, Any], folder: Path, instance: str = "", batch: int = 0
    ) -> Settings:
        """Read the configuration of a model.

        Args:
            config: `config.pbtxt`, as the server hands it on.
            folder: The version folder.
            instance: The instance's name, whose last number chooses the device.
            batch: Rows of the largest batch.

        Raises:
            ConfigError: A parameter is wrong.
            ModelLoadError: There is no model file that the engine takes.
        """
        texts = parameters_of(config)
        engine = texts.get("engine", "ge")
        if engine not in plugins.names("engines"):
            known = ", ".join(plugins.names("engines"))
            raise ConfigError(f"parameter engine: {engine!r} is not installed; installed: {known}")
        model = model_file(folder, str(config.get("default_model_filename", "")))
        if engine == "ge":
            _require_om(model)
        queue = None
        if texts.get("max_queue_size"):
            (queue,) = _numbers("max_queue_size", texts["max_queue_size"])
            if config.get("dynamic_batching"):
                raise ConfigError(
                    "parameter max_queue_size: has the backend form the batches; expected no "
                    "dynamic_batching beside it"
                )
        counts = [int(group.get("count", 1)) for group in config.get("instance_group") or ()]
        options = EngineOptions(
            threads=_numbers("threads", texts.get("threads", "1"))[0],
            batch_size=batch,
            precision=texts.get("precision", "auto"),
            gears=_numbers("gears", texts["gears"]) if texts.get("gears") else (),
            timeout_s=_duration("timeout", texts.get("timeout", "")),
            text_bytes=_size("text_bytes", texts.get("text_bytes", _TEXT)),
            extra=_extra(texts.get("engine_options", "")),
        )
        number, count = _number_of(instance, counts), sum(counts) or 1
        devices = _devices(texts, number, count, shared=queue is not None)
        places = tuple(replace(options, device=device) for device in devices)
        stage = texts.get("stage") or str(config.get("name", ""))
        wait_s = _duration("max_wait", texts.get("max_wait", "")) or 0.0
        return cls(stage, engine, model, places, queue, wait_s)


def parameters_of(
    config: Mapping[str, Any], known: Sequence[str] = parameters.GE
) -> dict[str, str]:
    """Return the parameters of a configuration, without those of Triton's Python backend itself.

    Args:
        config: `config.pbtxt`, as the server hands it on.
        known: Those that there are.

    Raises:
        ConfigError: One is not known.
    """
    found = {
        name: str(value.get("string_value", ""))
        for name, value in (config.get("parameters") or {}).items()
        if name not in parameters.PYTHON
    }
    for name in found:
        if name not in known:
            hint = plugins.did_you_mean(name, list(known))
            raise ConfigError(f"parameter {name}: unknown; {hint}")
    return found


def model_file(folder: Path, named: str = "") -> Path:
    """Return the model file in a version folder.

    Args:
        folder: The version folder.
        named: The `default_model_filename`, or nothing.

    Raises:
        ModelLoadError: It is missing, or there are several.
    """
    if named:
        if not (folder / named).is_file():
            raise ModelLoadError(f"{folder / named}: no such file; default_model_filename names it")
        return folder / named
    found = sorted(
        path
        for path in folder.iterdir()
        if path.is_file() and (path.suffix.lower() in _SUFFIXES or path.name == _BARE)
    )
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise ModelLoadError(
            f"{folder}: several model files: {names}; name one in default_model_filename"
        )
    if not found:
        raise ModelLoadError(
            f"{folder}: there is no model file; expected one .om or .onnx file in the version "
            "folder"
        )
    return found[0]


def _require_om(model: Path) -> None:
    try:
        modelfile.inspect(model)
    except ModelLoadError as error:
        if "ONNX" not in str(error):
            raise
        raise ModelLoadError(
            f'{error}, or set the parameter engine to "onnxruntime" to run it on the CPU'
        ) from None


def _number_of(instance: str, counts: Sequence[int]) -> int:
    """Return an instance's number among those of all groups; `m_1_0` is the first of group 1."""
    found = re.search(r"_(\d+)_(\d+)$", instance)
    if found is None or int(found[1]) >= len(counts):
        return 0
    return sum(counts[: int(found[1])]) + int(found[2])


def _devices(texts: Mapping[str, str], number: int, count: int, *, shared: bool) -> Sequence[int]:
    """Return the device of each process of an instance.

    Args:
        texts: The parameters.
        number: The instance's number.
        count: Instances of the model.
        shared: Whether an instance may work on several devices.
    """
    devices = _numbers("device_ids", texts.get("device_ids", "0"))
    each = _numbers("instances", texts.get("instances", "1"))[0]
    if shared:
        places = [device for device in devices for _ in range(each)]
        if not each or count > len(places):
            raise ConfigError(
                f"parameter instances: {each} processes on each of {len(devices)} devices for an "
                f"instance_group of {count}; expected at least one for each instance"
            )
        return places[number::count]
    if each != 1:
        raise ConfigError(
            "parameter instances: is for a backend that forms the batches itself; add "
            "max_queue_size, or have the server start more by `count` of instance_group"
        )
    if count < len(devices):
        raise ConfigError(
            f"parameter device_ids: {len(devices)} devices for an instance_group of {count}; "
            f"expected `count: {len(devices)}`, an instance for each, or max_queue_size"
        )
    return (devices[number % len(devices)],)


def _numbers(name: str, text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(each) for each in text.split(","))
    except ValueError:
        numbers = (-1,)
    if min(numbers) < 0:
        raise ConfigError(f'parameter {name}: {text!r}; expected numbers, as in "0,1"')
    return numbers


def _duration(name: str, text: str) -> float | None:
    if not text:
        return None
    from gepipe.spec.units import parse_timeout  # needs pydantic

    try:
        return parse_timeout(text)
    except ValueError as error:
        raise ConfigError(f"parameter {name}: {error}") from None


def _size(name: str, text: str) -> int:
    try:
        nbytes = parse_size(text)
    except ValueError as error:
        raise ConfigError(f"parameter {name}: {error}") from None
    if not nbytes:
        raise ConfigError(f"parameter {name}: {text!r}; expected more than 0 bytes")
    return nbytes


def _extra(text: str) -> Mapping[str, Any]:
    try:
        extra = json.loads(text or "{}")
    except ValueError as error:
        raise ConfigError(f"parameter engine_options: not JSON: {error}") from None
    if not isinstance(extra, dict):
        raise ConfigError(
            f'parameter engine_options: {text!r}; expected a JSON object, as in {{"profile": "x"}}'
        )
    return extra
