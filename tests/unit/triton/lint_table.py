"""What lint finds, what it says, and what the server does with it; one row a construct.

Each row is looked at by lint alone, and also by a real server, before and after `--fix`.
"""

# ruff: noqa: E501 - rows of a table
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

PYTHON = '''\
import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Answers zeros in the shape of its configuration."""

    def initialize(self, args):
        self.config = json.loads(args["model_config"])

    def execute(self, requests):
        responses = []
        for request in requests:
            batch = request.inputs()[0].as_numpy().shape[:1] if self.config["max_batch_size"] else ()
            tensors = []
            for output in self.config["output"]:
                dims = [max(int(extent), 1) for extent in output["dims"]]
                dtype = pb_utils.triton_string_to_numpy(output["data_type"])
                tensors.append(pb_utils.Tensor(output["name"], np.zeros([*batch, *dims], dtype)))
            responses.append(pb_utils.InferenceResponse(tensors))
        return responses
'''
HEAD = 'backend: "python"\nmax_batch_size: 8\n'
X = 'input [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } ]\n'
Y = 'output [ { name: "y" data_type: TYPE_FP32 dims: [ 4 ] } ]\n'
ONE = "instance_group [ { count: 1 kind: KIND_CPU } ]\n"
GOOD = HEAD + X + Y + ONE
GE = 'backend: "ge"\nmax_batch_size: 8\n' + X + Y
GE_ONE = "instance_group [ { count: 1 kind: KIND_MODEL } ]\n"
QUEUE = "dynamic_batching { default_queue_policy { max_queue_size: 64 } }\n"

Outcome = Literal["refuses", "hangs", "loads", "fails"]


@dataclass(frozen=True)
class Row:
    """One construct.

    Attributes:
        name: The model's name.
        config: Its `config.pbtxt`; None for none.
        level: What lint calls it.
        place: What lint names: the file below the model, then a line or nothing.
        text: Part of what lint says.
        outcome: What the server does: refuses or never finishes loading, loads and fails every
            request, or loads and works.
        words: Part of what the server says when it refuses or fails, or may say where it mostly hangs.
        is_fixable: Whether `--fix` makes it load and work.
        files: Further files of the model; None for a usual `model.py`.
        has_python: Whether a usual `1/model.py` is there.
    """

    name: str
    config: str | None
    level: str
    place: str
    text: str
    outcome: Outcome
    words: str = ""
    is_fixable: bool = False
    files: dict[str, str | None] = field(default_factory=dict)
    has_python: bool = True


def step(model: str, inputs: str, outputs: str) -> str:
    """Return a step whose maps are written `key:value,key:value`."""

    def entries(side: str, pairs: str) -> str:
        return " ".join(
            f'{side}_map {{ key: "{k}" value: "{v}" }}'
            for k, v in (pair.split(":") for pair in pairs.split(",") if pair)
        )

    maps = f"{entries('input', inputs)} {entries('output', outputs)}"
    return f'  {{ model_name: "{model}" model_version: -1 {maps} }}'


def ensemble(*steps: str, size: int = 8, head: str = 'platform: "ensemble"\n', extra: str = "",
             dims: str = "1", out: str = "4", dtype: str = "FP32") -> str:  # fmt: skip
    """Return an ensemble from bytes to four numbers."""
    return (
        f"{head}max_batch_size: {size}\n"
        f'input [ {{ name: "IN" data_type: TYPE_STRING dims: [ {dims} ] }} ]\n'
        f'output [ {{ name: "OUT" data_type: TYPE_{dtype} dims: [ {out} ] }} ]\n'
        f"{extra}ensemble_scheduling {{ step [\n" + ",\n".join(steps) + "\n] }\n"
    )


PRE = step("pre", "IN:IN", "a:feat")
INF = step("inf", "x:feat", "y:OUT")


def _model(inputs: str, outputs: str, size: int = 8, rest: str = ONE) -> str:
    return f'backend: "python"\nmax_batch_size: {size}\n{inputs}{outputs}{rest}'


IN = 'input [ { name: "IN" data_type: TYPE_STRING dims: [ 1 ] } ]\n'
A = 'output [ { name: "a" data_type: TYPE_FP32 dims: [ 4 ] } ]\n'
#: Sound models that rows build on; lint has nothing to say about them.
BASE = {
    "pre": _model(IN, A, rest=ONE + QUEUE),
    "inf": _model(X, Y),
    "one": _model(X, Y, size=1),
    "flat": _model(X, Y, size=0),
    "rows": _model(X.replace("4", "-1, 4"), Y.replace("4", "-1, 4"), size=0),
    "half": _model(X.replace("FP32", "FP16"), Y),
    "five": _model(X.replace("4", "5"), Y),
}
OM = {"1/model.om": "IMOD" + "\0" * 300}

ROWS = (
    # --- which backend --------------------------------------------------------------------------
    Row("platform-alone", GE.replace('backend: "ge"', 'platform: "ge_backend"') + GE_ONE, "error",
        "config.pbtxt:1", "platform: there is no platform 'ge_backend'; expected backend: \"ge\"",
        "refuses", "unexpected platform type 'ge_backend'", True, OM, False),
    Row("platform-too", 'platform: "ge_backend"\n' + GE + GE_ONE, "warning", "config.pbtxt:1",
        "platform: 'ge_backend' means nothing to the server", "loads", "", True, OM, False),
    Row("backend-dialect", GE.replace('"ge"', '"ge_backend"') + GE_ONE, "error", "config.pbtxt:1",
        "backend: there is no backend 'ge_backend'; expected backend: \"ge\"",
        "refuses", "unable to find backend library for backend 'ge_backend'", True, OM, False),
    Row("backend-typo", GOOD.replace("python", "pyhton"), "error", "config.pbtxt:1",
        "no backend is known as 'pyhton'; did you mean 'python'?",
        "refuses", "unable to find backend library for backend 'pyhton'"),
    Row("backend-elsewhere", GOOD.replace("python", "onnxruntime"), "warning", "config.pbtxt:1",
        "sets up has no backend 'onnxruntime'", "refuses", "unable to find backend library"),
    Row("platform-elsewhere", GOOD.replace('backend: "python"', 'platform: "onnxruntime_onnx"'),
        "warning", "config.pbtxt:1", "sets up has no backend 'onnxruntime'",
        "refuses", "unable to find backend library for backend 'onnxruntime'"),
    Row("runtime", GE + GE_ONE + 'runtime: "libtriton_ge.so"\n', "error", "config.pbtxt:6",
        "no backend 'ge' has a library 'libtriton_ge.so'",
        "refuses", "unable to find backend library 'libtriton_ge.so'", True, OM, False),
    Row("empty-config", "", "error", "config.pbtxt:1", "there is no backend, so the server cannot tell",
        "refuses", "Could not determine backend for model 'empty-config'", False, OM, False),
    Row("no-config", None, "error", "config.pbtxt", "there is no config.pbtxt, so the server cannot",
        "refuses", "failed to (load|poll)", False, OM, False),
    Row("no-model", None, "error", "config.pbtxt", "the server takes every folder of the repository",
        "refuses", "failed to (load|poll)", False, {"notes.txt": "hello"}, False),
    Row("name", 'name: "other"\n' + GOOD, "error", "config.pbtxt:1",
        "name: is 'other', but its folder is 'name'",
        "refuses", "unexpected directory name 'name' for model 'other'", True),
    # --- instances ------------------------------------------------------------------------------
    Row("kind-npu", GE + "instance_group [ { count: 1 kind: KIND_NPU } ]\n", "error", "config.pbtxt:5",
        "instance_group[0].kind: has KIND_NPU; expected KIND_MODEL",
        "refuses", 'Unknown enumeration value of "KIND_NPU"', True, OM, False),
    Row("device", GE + "instance_group [ { count: 1 kind: KIND_CPU device: 0 } ]\n", "error",
        "config.pbtxt:5", "instance_group[0].device: ModelInstanceGroup has no such field; expected "
        "the parameter device_ids '0'", "refuses", 'has no field named "device"', True, OM, False),
    Row("device-id", GE + "instance_group {\n  kind: KIND_NPU # the card\n  device_id: 3\n}\n", "error",
        "config.pbtxt:7", "expected the parameter device_ids '3'",
        "refuses", 'Unknown enumeration value of "KIND_NPU"', True, OM, False),
    Row("group-each", GE + "instance_group [\n  { count: 2 kind: KIND_NPU device: 0 },\n"
        "  { count: 2 kind: KIND_NPU device: 1 }\n]\n", "error", "config.pbtxt:6",
        "expected one group of 4 and the parameter device_ids '0,1'",
        "refuses", "KIND_NPU", True, OM, False),
    Row("gpus", GOOD.replace("KIND_CPU", "KIND_CPU gpus: [ 0 ]"), "error", "config.pbtxt:5",
        "instance_group[0].gpus: stands beside KIND_CPU",
        "refuses", "has kind KIND_CPU but specifies one or more GPUs", True),
    Row("kind-gpu", GE + "instance_group [ { kind: KIND_GPU } ]\n", "error", "config.pbtxt:5",
        "instance_group[0].kind: is KIND_GPU, but an NPU is none; expected KIND_MODEL",
        "refuses", "has kind KIND_GPU but no GPUs are available", True, OM, False),
    Row("kind-gpu-0", GOOD.replace("KIND_CPU", "KIND_GPU gpus: [ 0 ]"), "error", "config.pbtxt:5",
        "is KIND_GPU, but this machine has none; expected KIND_CPU without gpus",
        "refuses", "specifies invalid or unsupported gpu id 0"),
    Row("kind-auto", GOOD.replace("KIND_CPU", "KIND_AUTO"), "warning", "config.pbtxt:5",
        "instance_group[0].kind: is left to the server", "loads", "", True),
    Row("kind-none", GOOD.replace(" kind: KIND_CPU", ""), "warning", "config.pbtxt:5",
        "instance_group[0].kind: is left to the server", "loads", "", True),
    Row("no-group", HEAD + X + Y, "warning", "config.pbtxt:1", "instance_group: there is none",
        "loads", "", True),
    Row("count-0", GOOD.replace("count: 1", "count: 0"), "warning", "config.pbtxt:5",
        "instance_group[0].count: is 0, which the server takes as 1", "loads", "", True),
    Row("count-negative", GOOD.replace("count: 1", "count: -2"), "warning", "config.pbtxt:5",
        "instance_group[0].count: is -2", "loads", "", True),
    Row("profile", GOOD.replace("count: 1", 'count: 1 profile: [ "0" ]'), "error", "config.pbtxt:5",
        "is for TensorRT alone", "refuses", "only supported for TensorRT", True),
    # --- parameters -----------------------------------------------------------------------------
    Row("backend-parameters", GE + GE_ONE + 'backend_parameters {\n  device: "0" # card\n  threads: 1\n}\n',
        "error", "config.pbtxt:6", "backend_parameters: ModelConfig has no such field; expected parameters",
        "refuses", 'no field named "backend_parameters"', True, OM, False),
    Row("backend-parameters-entries", GE + GE_ONE + 'backend_parameters [ { key: "threads" value: "2" } ]\n',
        "error", "config.pbtxt:6", "expected parameters",
        "refuses", 'no field named "backend_parameters"', True, OM, False),
    Row("parameter-bare", GOOD + 'parameters { key: "k" value: "v" }\n', "error", "config.pbtxt:6",
        'parameters[0].value: has the bare value "v"; expected { string_value: "v" }',
        "refuses", 'Expected "{", found ""v""', True),
    Row("parameter-int", GOOD + 'parameters { key: "k" value: { int64_value: 3 } }\n', "error",
        "config.pbtxt:6", 'expected string_value: "3"', "refuses", 'no field named "int64_value"', True),
    Row("parameter-dict", GOOD + 'parameters { k: "v", n: 3 }\n', "error", "config.pbtxt:6",
        "parameters: its parts are no entries of key and value",
        "refuses", 'no field named "k"', True),
    Row("parameter-twice", GOOD + 'parameters [ { key: "k" value: { string_value: "a" } },\n'
        '  { key: "k" value: { string_value: "b" } } ]\n', "warning", "config.pbtxt:7",
        "parameters[1].key: is 'k' a second time", "loads"),
    Row("environment", GOOD + 'parameters { key: "EXECUTION_ENV_PATH" value: { string_value: "/none" } }\n',
        "error", "config.pbtxt:6", "there is no '/none' on this machine",
        "refuses", "Failed to get the canonical path for /none"),
    Row("environment-inside", GOOD + 'parameters { key: "EXECUTION_ENV_PATH" value: { string_value: '
        '"$$TRITON_MODEL_DIRECTORY/env.tar.gz" } }\n', "error", "config.pbtxt:6",
        "there is no 'env.tar.gz' in the model's folder", "refuses", "Failed to get the canonical path"),
    Row("accelerators", GOOD + 'optimization { execution_accelerators { gpu_execution_accelerator '
        '[ { name: "tensorrt" } ] } }\n', "warning", "config.pbtxt:6",
        "optimization.execution_accelerators: is not read by a backend in Python", "loads", "", True),
    # --- text and types -------------------------------------------------------------------------
    Row("type-fp32", GOOD.replace("TYPE_FP32 dims: [ 4 ] } ]\noutput", "FP32 dims: [ 4 ] } ]\noutput"),
        "error", "config.pbtxt:3", "input[0].data_type: has FP32; expected TYPE_FP32",
        "refuses", 'Unknown enumeration value of "FP32"', True),
    Row("type-float", GOOD.replace("TYPE_FP32", "TYPE_FLOAT"), "error", "config.pbtxt:3",
        "has TYPE_FLOAT; expected TYPE_FP32", "refuses", 'value of "TYPE_FLOAT"', True),
    Row("type-bytes", GOOD.replace("TYPE_FP32", "TYPE_BYTES"), "error", "config.pbtxt:4",
        "output[0].data_type: has TYPE_BYTES; expected TYPE_STRING",
        "refuses", 'value of "TYPE_BYTES" for field "data_type"', True),
    Row("type-quoted", GOOD.replace("TYPE_FP32", '"TYPE_FP32"'), "error", "config.pbtxt:3",
        'has "TYPE_FP32"; expected TYPE_FP32', "refuses", 'Expected integer or identifier, got: "TYPE', True),
    Row("shape", GOOD.replace("dims", "shape"), "error", "config.pbtxt:3",
        "input[0].shape: ModelInput has no such field; expected dims",
        "refuses", 'no field named "shape"', True),
    Row("list-comma", GOOD.replace("KIND_CPU } ]", "KIND_CPU }, ]"), "error", "config.pbtxt:5",
        "comma before `]`", "refuses", 'Expected "{", found "]"', True),
    Row("list-no-comma", GOOD + 'parameters [ { key: "a" } { key: "b" } ]\n', "error", "config.pbtxt:6",
        "expected `,` between the parts of a list", "refuses", 'Expected ",", found "{"', True),
    Row("brace", GOOD.replace("dims: [ 4 ] } ]\noutput", "dims: [ 4 ] ]\noutput"), "error",
        "config.pbtxt:3", "expected `}` before `]`", "refuses", "Error parsing text-format", True),
    Row("brace-at-end", GOOD + "dynamic_batching {\n", "error", "config.pbtxt:6",
        "`{` is never closed", "refuses", "Error parsing text-format"),
    Row("bracket", GOOD.replace("} ]\noutput", "}\noutput"), "error", "config.pbtxt:3",
        "`[` is never closed", "refuses", 'Expected ",", found "output"', True),
    Row("yaml", GOOD.replace('"python"', "python"), "error", "config.pbtxt:1",
        'backend: has python; expected "python"', "refuses", "Expected string, got: python", True),
    Row("json", GOOD.replace("backend:", '"backend":'), "error", "config.pbtxt:1",
        "the name of a field stands in quotes", "refuses", 'Expected identifier, got: "backend"', True),
    Row("equals", GOOD.replace("backend:", "backend ="), "error", "config.pbtxt:1", "expected `:`, got `=`",
        "refuses", 'Expected ":", found "="', True),
    Row("no-colon", GOOD.replace("backend:", "backend"), "error", "config.pbtxt:1", "backend: expected `:`",
        "refuses", 'Expected ":", found ""python""', True),
    Row("list-no-colon", GOOD.replace("dims: [ 4 ] } ]\noutput", "dims [ 4 ] } ]\noutput"), "error", "config.pbtxt:3",
        "dims: expected `:`", "refuses", 'Expected ":", found "\\["', True),
    Row("escape", GOOD + 'metric_tags { key: "k" value: "C:\\data" }\n', "error", "config.pbtxt:6",
        "the string has the escape \\d", "refuses", "Invalid escape sequence in string literal"),
    Row("string-end", GOOD.replace('"python"', '"python'), "error", "config.pbtxt:1",
        "this string has no end", "refuses", "String literals cannot cross line boundaries"),
    Row("bom", "\ufeff" + GOOD, "error", "config.pbtxt:1", "byte order mark",
        "refuses", "Interpreting non ascii codepoint", True),
    Row("quoted-number", GOOD.replace("size: 8", 'size: "8"'), "error", "config.pbtxt:2",
        'max_batch_size: has "8"; expected 8', "refuses", 'Expected integer, got: "8"', True),
    Row("float-number", GOOD.replace("size: 8", "size: 8.0"), "error", "config.pbtxt:2",
        "max_batch_size: has 8.0; expected 8", "refuses", "Expected integer, got: 8.0", True),
    Row("large-number", GOOD.replace("size: 8", "size: 99999999999"), "error", "config.pbtxt:2",
        "max_batch_size: has 99999999999; expected a whole number", "refuses", "Integer out of range"),
    Row("boolean", GOOD + "model_transaction_policy { decoupled: no }\n", "error", "config.pbtxt:6",
        "decoupled: has no; expected false", "refuses", "Invalid value for boolean field", True),
    Row("field-twice", GOOD + "max_batch_size: 4\n", "error", "config.pbtxt:6",
        "max_batch_size: is specified a second time", "refuses", "is specified multiple times"),
    Row("list-of-one", GOOD.replace("size: 8", "size: [ 8 ]"), "error", "config.pbtxt:2",
        "max_batch_size: has a list; expected one value", "refuses", "Expected integer, got: \\[", True),
    Row("unknown-field", GOOD + "max_batchsize: 4\n", "error", "config.pbtxt:6",
        "did you mean 'max_batch_size'?", "refuses", 'no field named "max_batchsize"'),
    Row("camel", GOOD.replace("max_batch_size", "maxBatchSize"), "error", "config.pbtxt:2",
        "expected max_batch_size", "refuses", 'no field named "maxBatchSize"', True),
    Row("newer-metrics", GOOD + "model_metrics { }\n", "error", "config.pbtxt:6",
        "the server of release 24.10 has no such field", "refuses", 'no field named "model_metrics"'),
    # --- tensors --------------------------------------------------------------------------------
    Row("no-dims", GOOD.replace("dims: [ 4 ] } ]\noutput", "} ]\noutput"), "error", "config.pbtxt:3",
        "input[0].dims: is missing", "refuses", "must specify 'dims'"),
    Row("dim-0", GOOD.replace("[ 4 ] } ]\noutput", "[ 0 ] } ]\noutput"), "error", "config.pbtxt:3",
        "input[0].dims: has 0; expected 1 or more", "refuses", "dimension must be integer >= 1"),
    Row("dim-2", GOOD.replace("[ 4 ]", "[ -2 ]"), "error", "config.pbtxt:4",
        "output[0].dims: has -2", "refuses", "dimension must be integer >= 1"),
    Row("no-type", GOOD.replace("data_type: TYPE_FP32 ", ""), "error", "config.pbtxt:3",
        "input[0].data_type: is missing", "refuses", "must specify 'data_type'"),
    Row("no-name", GOOD.replace('name: "x" ', ""), "error", "config.pbtxt:3",
        "input[0].name: is missing", "refuses", "must specify 'name'"),
    Row("input-twice", GOOD.replace("} ]\noutput", '}, { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } ]\noutput'),
        "error", "config.pbtxt:3", "input[1].name: is 'x' a second time",
        "fails", "input 'x' already exists in request"),
    Row("no-input", HEAD + Y + ONE, "error", "config.pbtxt:1",
        "input: is missing, and model.py has no auto_complete_config to fill it in: the model loads and "
        "every request fails", "fails", "request has 0 inputs"),
    Row("no-output", HEAD + X + ONE, "error", "config.pbtxt:1", "the model loads and answers nothing",
        "loads"),
    Row("label", GOOD.replace('"y" data_type: TYPE_FP32 dims: [ 4 ]',
                              '"y" data_type: TYPE_FP32 dims: [ 4 ] label_filename: "labels.txt"'),
        "error", "config.pbtxt:4", "there is no 'labels.txt' in the model's folder",
        "refuses", "failed to open text file for read"),
    Row("label-inside", GOOD.replace('"y" data_type: TYPE_FP32 dims: [ 4 ]',
                                     '"y" data_type: TYPE_FP32 dims: [ 4 ] label_filename: "labels.txt"'),
        "error", "config.pbtxt:4", "it is at 1/labels.txt", "refuses", "failed to open text file for read",
        True, {"1/labels.txt": "cat\ndog\n"}),
    Row("format", GOOD.replace("dims: [ 4 ] } ]\noutput", "dims: [ 4 ] format: FORMAT_NCHW } ]\noutput"),
        "error", "config.pbtxt:3", "input[0].format: is for three extents", "refuses", "require 3 dims"),
    Row("reshape", GOOD.replace("dims: [ 4 ] } ]\noutput", "dims: [ 4 ] reshape { shape: [ 5 ] } } ]\noutput"),
        "error", "config.pbtxt:3", "input[0].reshape: has 5 elements", "refuses", "different size for dims and reshape"),
    # --- batches and queues ---------------------------------------------------------------------
    Row("no-size", GOOD.replace("max_batch_size: 8\n", ""), "warning", "config.pbtxt:1",
        "max_batch_size: is missing", "loads"),
    Row("negative-size", GOOD.replace("size: 8", "size: -1"), "error", "config.pbtxt:2",
        "max_batch_size: is -1", "refuses", "'max_batch_size' must be non-negative value"),
    Row("preferred", GOOD + "dynamic_batching { preferred_batch_size: [ 4, 16 ] }\n", "error",
        "config.pbtxt:6", "preferred_batch_size: has 16; expected sizes from 1 to max_batch_size, 8",
        "refuses", "preferred size must be <= max batch size", True),
    Row("preferred-0", GOOD + "dynamic_batching { preferred_batch_size: [ 0 ] }\n", "error",
        "config.pbtxt:6", "has 0; expected sizes from 1", "refuses", "preferred size must be positive", True),
    Row("preferred-alone", GOOD.replace("size: 8", "size: 0") + "dynamic_batching { preferred_batch_size: 1 }\n",
        "error", "config.pbtxt:6", "stands without max_batch_size", "refuses", "must be <= max batch size", True),
    Row("batching-alone", GOOD.replace("size: 8", "size: 0") + "dynamic_batching { }\n", "warning",
        "config.pbtxt:6", "has no effect while max_batch_size is 0", "loads"),
    Row("delay-ms", GOOD + "dynamic_batching { max_queue_delay_ms: 2 }\n", "error", "config.pbtxt:6",
        "expected max_queue_delay_microseconds: 2000", "refuses", 'no field named "max_queue_delay_ms"', True),
    Row("priority", GOOD + "dynamic_batching { priority_levels: 2 }\n", "error", "config.pbtxt:6",
        "default_priority_level: is missing", "refuses", "default priority level must be in range"),
    Row("priority-policy", GOOD + "dynamic_batching { priority_levels: 2 default_priority_level: 1\n"
        "  priority_queue_policy { key: 5 value: { max_queue_size: 2 } } }\n", "error", "config.pbtxt:7",
        "priority_queue_policy[0].key: is 5", "refuses", "must have priority level in range"),
    Row("priority-order", GOOD + "dynamic_batching { priority_levels: 2 default_priority_level: 1\n"
        "  preserve_ordering: true }\n", "error", "config.pbtxt:6", "stands beside 2 levels of priority",
        "refuses", "Only one priority level is allowed"),
    Row("timeout-action", GOOD + "dynamic_batching { default_queue_policy { timeout_action: DELAY } }\n",
        "warning", "config.pbtxt:6", "timeout_action: never acts", "loads"),
    # --- warm-up --------------------------------------------------------------------------------
    *(
        Row(f"warmup-{name}", f'{GOOD}model_warmup [ {{ name: "w" batch_size: {size} inputs {{ key: "{key}" value: '
            f"{{ data_type: TYPE_{dtype} dims: [ {dims} ] {data} }} }} }} ]\n", "error", "config.pbtxt:6", text,
            "hangs" if name == "size" else "refuses", words)
        for name, (size, key, dtype, dims, data), text, words in (
            ("size", (16, "x", "FP32", 4, "zero_data: true"), "batch_size: is above max_batch_size, 8",
             "max allowed is 8"),
            ("name", (1, "z", "FP32", 4, "zero_data: true"), "there is no input 'z'", "expected 1 inputs"),
            ("type", (1, "x", "INT32", 4, "zero_data: true"), "is INT32, but the input is FP32", "data-type"),
            ("dims", (1, "x", "FP32", 5, "zero_data: true"), "is [5], but the input's is [4]", "unexpected shape"),
            ("open", (1, "x", "FP32", -1, "zero_data: true"), "has -1; expected every extent", "variable-size"),
            ("none", (1, "x", "FP32", 4, ""), "says no data", "to have input_data_type set"),
            ("file", (1, "x", "FP32", 4, 'input_data_file: "no"'), "there is no warmup/no", "failed to open"),
        )
    ),
    # --- versions -------------------------------------------------------------------------------
    Row("version-v1", GOOD, "error", "v1", "the folder 'v1' is no version to the server", "refuses",
        "at least one version must be available", True, {"v1/model.py": None}, False),
    Row("version-007", GOOD, "error", "007", "the folder '007' is no version to the server; expected a plain number, 7", "refuses", "at least one version must be available",
        True, {"007/model.py": None}, False),
    Row("version-signed", GOOD, "error", "+1", "takes the folder '+1' for a version", "hangs", "", False,
        {"+1/model.py": None}, False),
    Row("version-none", GOOD, "error", ".", "there is no folder of a version", "refuses",
        "at least one version must be available", True, {"model.py": None}, False),
    Row("version-none-ensemble", ensemble(PRE, INF), "error", ".", "there is no folder of a version",
        "refuses", "at least one version must be available", True, {}, False),
    Row("version-chosen", GOOD + "version_policy: { specific { versions: [ 3 ] } }\n", "error",
        "config.pbtxt:6", "version_policy: chooses none of the versions", "refuses",
        "at least one version must be available"),
    Row("version-empty", GOOD, "error", "2", "there is no model.py", "hangs", "", False, {"2/.keep": ""}),
    # --- model.py -------------------------------------------------------------------------------
    Row("no-python", GOOD, "error", "1", "there is no model.py", "hangs", "", False, {"1/.keep": ""}, False),
    Row("python-late", GOOD, "error", "1/model.py:2", "pb_utils.Tensor is used while the module is imported",
        "refuses", "has no attribute 'Tensor'", False,
        {"1/model.py": "import triton_python_backend_utils as pb_utils\nKIND = pb_utils.Tensor\n" + PYTHON}, False),
    Row("python-class", GOOD, "error", "1/model.py:1", "there is no class TritonPythonModel", "refuses",
        "no attribute 'TritonPythonModel'", False, {"1/model.py": "x = 1\n"}, False),
    Row("python-syntax", GOOD, "error", "1/model.py:2", "invalid syntax", "refuses", "SyntaxError", False,
        {"1/model.py": "x = 1\ndef f(:\n"}, False),
    Row("python-execute", GOOD, "error", "1/model.py:1", "TritonPythonModel has no execute", "fails",
        "does not implement .execute. method", False,
        {"1/model.py": "class TritonPythonModel:\n    pass\n"}, False),
    Row("python-input", GOOD, "warning", "1/model.py:6", "config.pbtxt has no input 'z', so it is None here",
        "fails", "'NoneType' object has no attribute", False,
        {"1/model.py": "import triton_python_backend_utils as pb_utils\n\nclass TritonPythonModel:\n"
         "    def execute(self, requests):\n        for r in requests:\n"
         "            pb_utils.get_input_tensor_by_name(r, 'z').as_numpy()\n"}, False),
    # --- ensembles ------------------------------------------------------------------------------
    *(
        Row(f"e-{name}", config, "error", place, text, outcome, words, fixable, {"1/.keep": ""}, False)
        for name, config, place, text, outcome, words, fixable in (
            ("backend", ensemble(PRE, INF, extra='backend: "python"\n'), "config.pbtxt:5",
             "backend: an ensemble has none", "refuses", "must have platform type 'ensemble'", True),
            ("group", ensemble(PRE, INF, extra=ONE), "config.pbtxt:5", "instance_group: an ensemble has no",
             "refuses", "instance group should not be specified for ensemble", True),
            ("platform", ensemble(PRE, INF, head=""), "config.pbtxt:1", 'expected platform: "ensemble"',
             "refuses", "Ensemble model|platform", True),
            ("batching", ensemble(PRE, INF, extra="dynamic_batching { }\n"), "config.pbtxt:6",
             "stands beside dynamic_batching; expected only one of", "refuses", "another member of oneof", False),
            ("newer", ensemble(PRE, INF).replace("{ step", "{ max_inflight_requests: 4 step"), "config.pbtxt:5",
             "came from 25.11 on", "refuses", 'no field named "max_inflight_requests"', False),
            ("swapped", ensemble(step("pre", "IN:IN", "feat:a"), INF), "config.pbtxt:6",
             "output_map: has the model's names as values", "refuses", "'feat', is not connected", True),
            ("key", ensemble(step("pre", "zz:IN", "a:feat"), INF), "config.pbtxt:6",
             "input_map[0].key: pre has no input 'zz'", "refuses", "mapping to non-existing input zz", False),
            ("ghost", ensemble(step("ghost", "IN:IN", "a:feat"), INF), "config.pbtxt:6",
             "there is no model 'ghost'", "refuses", "not available or ambiguous: ghost", False),
            ("unwritten", ensemble(PRE, step("inf", "x:nope", "y:OUT")), "config.pbtxt:7",
             "nothing writes 'nope'", "refuses", "not connected", False),
            ("unused", ensemble(step("pre", "IN:IN", "a:spare"), step("pre", "IN:IN", "a:feat"), INF),
             "config.pbtxt:6", "nothing reads 'spare'", "refuses", "'spare' is unused in ensemble", False),
            ("no-map", ensemble(PRE, step("inf", "", "y:OUT")), "config.pbtxt:7", "input_map: is missing",
             "refuses", "must specify 'input_map' in step 1", False),
            ("twice", ensemble(PRE, step("pre", "IN:IN", "a:OUT"), INF), "config.pbtxt:8",
             "'OUT' is written already by pre's 'a'", "refuses", "can appear in an output map only once", False),
            ("circle", ensemble(step("inf", "x:b", "y:c"), step("inf", "x:c", "y:b"), PRE,
                                step("inf", "x:feat", "y:OUT")), "config.pbtxt:6",
             "inf, inf wait for each other's tensors", "refuses", "unused|not written|not connected|circular", False),
            ("type", ensemble(PRE, step("half", "x:feat", "y:OUT")), "config.pbtxt:7",
             "'feat' is TYPE_FP32 from pre's 'a', but half's 'x' is TYPE_FP16", "refuses", "inconsistent data type", False),
            ("dims", ensemble(PRE, step("five", "x:feat", "y:OUT")), "config.pbtxt:7",
             "'feat' is [-1, 4] from pre's 'a', but five's 'x' is [-1, 5]", "refuses", "inconsistent shape", False),
            ("out", ensemble(PRE, INF, out="3"), "config.pbtxt:4",
             "'OUT' is [-1, 4] from inf's 'y', but the ensemble's output[0] is [-1, 3]", "refuses",
             "inconsistent shape", False),
            ("size", ensemble(PRE, step("one", "x:feat", "y:OUT")), "config.pbtxt:2",
             "is 8, but the step one takes 1 at most", "refuses", "only allows maximum batch size to be 1", False),
            ("version", ensemble(PRE.replace("model_version: -1", "model_version: 9"), INF), "config.pbtxt:6",
             "pre serves no version 9", "refuses", "", False),
            ("itself", ensemble(step("e-itself", "IN:IN", "a:feat"), INF), "config.pbtxt:6",
             "is the ensemble itself", "refuses", "", False),
            ("no-step", ensemble(), "config.pbtxt:5", "has no step", "refuses", "", False),
        )
    ),
    Row("e-flat", ensemble(PRE, step("flat", "x:feat", "y:OUT")), "warning", "config.pbtxt:7",
        "flat takes no batches, so requests of more than one row fail here", "fails",
        "unexpected shape for input 'x' for model 'flat'. Expected \\[4\\], got \\[2,4\\]", False,
        {"1/.keep": ""}, False),
    Row("e-unbounded", ensemble(step("open", "IN:IN", "a:feat"), INF), "warning", "config.pbtxt:6",
        "open comes first and its queue has no bound", "loads", "", False, {"1/.keep": ""}, False),
)  # fmt: skip
BASE["open"] = _model(IN, A)
#: What only gepipe's own backend looks at: the server itself loads all of these.
CARDS = (
    Row("ge-bare", GE + GE_ONE, "warning", "1/model", "has no extension: this is an .om model", "loads", "",
        True, {"1/model": OM["1/model.om"]}, False),
    Row("ge-empty", GE + GE_ONE, "error", "1", "there is no model in it; expected one .om", "loads", "",
        False, {"1/.keep": ""}, False),
    *(
        Row(f"ge-parameter-{name}", GE + GE_ONE + f'parameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}\n'
            + rest, "error", "config.pbtxt:6", text, "loads", "", fixable, OM, False)
        for name, key, value, rest, text, fixable in (
            ("device", "device_id", "0", "", "ge has no parameter 'device_id'; expected device_ids", True),
            ("typo", "timeouts", "5ms", "", "ge has no parameter 'timeouts'; did you mean 'timeout'?", False),
            ("numbers", "device_ids", "npu0", "", 'device_ids is "npu0"; expected numbers', False),
            ("options", "engine_options", "x", "", 'engine_options is "x"; expected a JSON object', False),
            ("count", "device_ids", "0,1", "", "names 2 devices for 1 instances; expected count: 2", True),
            ("queue", "max_queue_size", "8", "dynamic_batching { }\n", "expected no dynamic_batching beside it", False),
        )
    ),
    Row("ge-two", GE + GE_ONE, "error", "1", "has 2 models, a.om, b.om", "loads", "", False,
        {"1/a.om": OM["1/model.om"], "1/b.om": OM["1/model.om"]}, False),
    Row("ge-misnamed", GE + GE_ONE + 'default_model_filename: "b.om"\n', "error", "config.pbtxt:6",
        "there is no 1/b.om; expected a file that is there, a.om", "loads", "", True,
        {"1/a.om": OM["1/model.om"]}, False),
    Row("ge-python", GE + GE_ONE, "warning", "1/model.py", "is never run", "loads", "", False, OM),
    Row("ge-other", GE + GE_ONE, "error", "1/model.om", "is no model: this is text", "loads", "", False,
        {"1/model.om": "<html>"}, False),
    Row("ge-kind", GE + ONE, "warning", "config.pbtxt:5", "is KIND_CPU for a model of an NPU", "loads", "",
        True, OM, False),
    Row("ge-undeclared", 'backend: "ge"\nmax_batch_size: 8\n' + GE_ONE, "error", "config.pbtxt:1",
        "input: is missing, and an .om model tells it only to a card", "loads", "", False, OM, False),
    Row("ge-suspicious", GE.replace("[ 4 ]", "[ -1, 3, 8, 8 ]") + GE_ONE, "warning", "config.pbtxt:3",
        "looks as if it began with the batch", "loads", "", False, OM, False),
)  # fmt: skip


def files_of(row: Row) -> dict[str, str]:
    """Return the files of a row's model, by their paths in it."""
    files = {name: PYTHON if text is None else text for name, text in row.files.items()}
    if row.has_python:
        files["1/model.py"] = PYTHON
    if row.config is not None:
        files["config.pbtxt"] = row.config
    return files


def base_files() -> dict[str, str]:
    """Return the files of the sound models, by their paths in the repository."""
    files = {f"{name}/config.pbtxt": config for name, config in BASE.items()}
    return files | {f"{name}/1/model.py": PYTHON for name in BASE}
