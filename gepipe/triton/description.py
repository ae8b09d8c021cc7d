"""Says in plain words what a server serves, and how to call it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

_WORDS: Final = {
    "TYPE_STRING": "bytes or text",
    "TYPE_BOOL": "bool",
    "TYPE_FP16": "float16",
    "TYPE_FP32": "float32",
    "TYPE_FP64": "float64",
    "TYPE_BF16": "bfloat16",
}


def described(configs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return lines about the models that a client calls; those below an ensemble are its steps.

    Args:
        configs: Name to configuration, as the server tells it.
    """
    lines: list[str] = []
    for name in called(configs):
        config = configs[name]
        steps = [step["model_name"] for step in _steps(config)]
        batch = int(config.get("max_batch_size", 0))
        facts = [f"runs {', '.join(steps)}"] if steps else []
        facts.append(f"batches up to {batch}" if batch else "no batches")
        lines.append(f"  {name}: {'; '.join(facts)}")
        for word, tensors in (("takes", config["input"]), ("gives", config["output"])):
            lines += [f"    {word} {_tensor(each, batch)}" for each in tensors]
    return lines


def emulated(configs: Mapping[str, Mapping[str, Any]], chosen: str) -> list[str]:
    """Return the models of the backend `ge` that no real card runs, by their configurations.

    Args:
        configs: Name to configuration, as the server tells it.
        chosen: What stands in for pyACL where a model does not say, or nothing: `GEPIPE_ACL`.
    """
    found = []
    for name, config in sorted(configs.items()):
        texts = {
            key: str(value.get("string_value", ""))
            for key, value in (config.get("parameters") or {}).items()
        }
        if config.get("backend") != "ge" or texts.get("engine", "ge") != "ge":
            continue
        try:
            device = json.loads(texts.get("engine_options") or "{}").get("device", chosen)
        except (ValueError, AttributeError):  # which the backend refuses
            continue
        if device == "emulator":
            found.append(name)
    return found


def called(configs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the models that are no steps of an ensemble, sorted."""
    below = {step["model_name"] for config in configs.values() for step in _steps(config)}
    return sorted(set(configs) - below)


def curl_line(url: str, configs: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a command that sends a file to a model; empty if none takes a single text."""
    for name in called(configs):
        inputs = configs[name]["input"]
        takes_file = len(inputs) == 1 and inputs[0]["data_type"] == "TYPE_STRING"
        if takes_file and _extents(inputs[0]) in (["1"], []):
            file = "photo.jpg" if inputs[0]["name"] == "IMAGE" else "input.bin"
            return (
                f"curl -s {url}/v2/models/{name}/infer -H 'Inference-Header-Content-Length: 0'"
                f" -H 'Content-Type: application/octet-stream' --data-binary @{file}"
                " | tr '\\0' '\\n' | tail -n 1"  # the text stands behind JSON and its length
            )
    return ""


def _steps(config: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = config.get("ensemble_scheduling", {}).get("step", [])
    return found


def _tensor(tensor: Mapping[str, Any], batch: int) -> str:
    kind = tensor["data_type"]
    word = _WORDS.get(kind, kind.removeprefix("TYPE_").lower())
    extents = [*(["batch"] if batch else []), *_extents(tensor)]
    return f"{tensor['name']}: {word} ({', '.join(extents)})"


def _extents(tensor: Mapping[str, Any]) -> list[str]:
    return ["any" if int(each) < 0 else str(each) for each in tensor["dims"]]
