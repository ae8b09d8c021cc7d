"""A model's configuration in Triton, and the text of its config.pbtxt.

What is described is written whole and always in the same order: nothing is left to a default of the
server, and the same description makes the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

#: The file of a model's folder that holds its configuration.
FILE_NAME: Final = "config.pbtxt"
_INDENT: Final = "  "


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or an output.

    Attributes:
        name: Its name.
        data_type: Triton's name of its type without `TYPE_`, such as `FP32`, or `STRING`.
        dims: Extents of one row; without the batch where the model has one. Not empty.
        reshape: Extents that the model itself takes or makes, where these are others; a row that
            is a single number has none, which `dims` cannot say.
    """

    name: str
    data_type: str
    dims: tuple[int, ...]
    reshape: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class InstanceGroup:
    """How many instances of a model there are, and where.

    Attributes:
        kind: `KIND_CPU`, or `KIND_MODEL` where the backend chooses the device.
        count: Instances.
    """

    kind: Literal["KIND_CPU", "KIND_MODEL"]
    count: int


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """What happens to requests that wait.

    Attributes:
        max_queue_size: Requests that may wait; one more is answered `UNAVAILABLE` at once.
    """

    max_queue_size: int


@dataclass(frozen=True, slots=True)
class DynamicBatching:
    """How requests that wait are merged.

    Attributes:
        preferred_batch_size: Sizes to aim at; empty for any.
        max_queue_delay_us: How long a request may wait for others, in microseconds.
        queue_policy: What happens to requests that wait.
        priority_levels: Levels of priority, 1 first; 0 for none.
        default_priority_level: The level of a request that states none.
    """

    preferred_batch_size: tuple[int, ...] = ()
    max_queue_delay_us: int = 0
    queue_policy: QueuePolicy | None = None
    priority_levels: int = 0
    default_priority_level: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """A model of an ensemble.

    Attributes:
        model_name: The model.
        input_map: Name of each of its inputs, to the tensor of the ensemble.
        output_map: Name of each of its outputs, to the tensor of the ensemble.
    """

    model_name: str
    input_map: Mapping[str, str]
    output_map: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The configuration of one model.

    Attributes:
        max_batch_size: Rows that a request, or requests merged, may have; 0 for no batch axis.
        inputs: What the model takes.
        outputs: What it makes.
        backend: The backend; empty for an ensemble.
        instances: Its instances; None for an ensemble.
        batching: How requests are merged; None for one at a time.
        steps: The models of an ensemble.
        parameters: Texts that the model is told.
        default_model_filename: The model's file in the version folder; empty for the backend's own.
        comment: Lines at the head of the file.
    """

    max_batch_size: int
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    backend: str = ""
    instances: InstanceGroup | None = None
    batching: DynamicBatching | None = None
    steps: Sequence[Step] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    default_model_filename: str = ""
    comment: Sequence[str] = ()


def config_text(config: ModelConfig) -> str:
    """Return the text of config.pbtxt."""
    return "".join(f"{line}\n" for line in _lines(config))


def _lines(config: ModelConfig) -> Iterator[str]:
    for line in config.comment:
        yield f"# {line}".rstrip()
    if config.backend:
        yield f"backend: {_quoted(config.backend)}"
    else:
        yield 'platform: "ensemble"'
    yield f"max_batch_size: {config.max_batch_size}"
    if config.default_model_filename:
        yield f"default_model_filename: {_quoted(config.default_model_filename)}"
    yield from _list("input", [_tensor(tensor) for tensor in config.inputs])
    yield from _list("output", [_tensor(tensor) for tensor in config.outputs])
    if config.instances is not None:
        group = [f"kind: {config.instances.kind}", f"count: {config.instances.count}"]
        yield from _list("instance_group", [group])
    if config.batching is not None:
        yield from _block("dynamic_batching", _batching(config.batching))
    if config.steps:
        steps = _list("step", [list(_step(step)) for step in config.steps])
        yield from _block("ensemble_scheduling", steps)
    for key, value in sorted(config.parameters.items()):
        entry = [f"key: {_quoted(key)}", f"value: {{ string_value: {_quoted(value)} }}"]
        yield from _block("parameters", entry)


def _tensor(tensor: Tensor) -> list[str]:
    lines = [
        f"name: {_quoted(tensor.name)}",
        f"data_type: TYPE_{tensor.data_type}",
        f"dims: {_numbers(tensor.dims)}",
    ]
    if tensor.reshape is not None:
        lines.append(f"reshape: {{ shape: {_numbers(tensor.reshape)} }}")
    return lines


def _batching(batching: DynamicBatching) -> Iterator[str]:
    if batching.preferred_batch_size:
        yield f"preferred_batch_size: {_numbers(batching.preferred_batch_size)}"
    yield f"max_queue_delay_microseconds: {batching.max_queue_delay_us}"
    if batching.priority_levels:
        yield f"priority_levels: {batching.priority_levels}"
        yield f"default_priority_level: {batching.default_priority_level}"
    if batching.queue_policy is not None:
        policy = [
            "timeout_action: REJECT",
            "allow_timeout_override: true",
            f"max_queue_size: {batching.queue_policy.max_queue_size}",
        ]
        yield from _block("default_queue_policy", policy)


def _step(step: Step) -> Iterator[str]:
    yield f"model_name: {_quoted(step.model_name)}"
    yield "model_version: -1"
    for word, names in (("input_map", step.input_map), ("output_map", step.output_map)):
        for key, value in names.items():
            yield f"{word} {{ key: {_quoted(key)} value: {_quoted(value)} }}"


def _list(name: str, entries: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"{name} ["
    for place, entry in enumerate(entries):
        yield f"{_INDENT}{{"
        yield from (f"{_INDENT * 2}{line}" for line in entry)
        yield f"{_INDENT}}}" + "," * (place < len(entries) - 1)
    yield "]"


def _block(name: str, lines: Iterator[str] | Sequence[str]) -> Iterator[str]:
    yield f"{name} {{"
    yield from (f"{_INDENT}{line}" for line in lines)
    yield "}"


def _numbers(numbers: Sequence[int]) -> str:
    return f"[ {', '.join(map(str, numbers))} ]" if numbers else "[ ]"


def _quoted(text: str) -> str:
    r"""Return a string of the text format; what is not plain is written as octal bytes, `\303`."""
    return '"' + "".join(map(_character, text.encode("utf-8", "surrogateescape"))) + '"'


def _character(byte: int) -> str:
    if byte in b'"\\':
        return "\\" + chr(byte)
    return chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}"
