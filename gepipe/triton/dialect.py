"""Words that articles about the GE backend and other servers use, in the words of this server."""

from __future__ import annotations

import re
from typing import Any, Final

from gepipe.triton.edit import Edit
from gepipe.triton.problem import Repair
from gepipe.triton.textnodes import Field, Message, Scalar

#: Names of backends where Triton has a fixed list of platforms.
BACKEND_OF_PLATFORM: Final = {
    "ge_backend": "ge", "ge": "ge", "npu_ge": "npu_ge", "python": "python",
}  # fmt: skip
#: Data types as ONNX, NumPy, TensorFlow and C++ call them.
_TYPES: Final = {
    "FLOAT": "FP32", "FLOAT32": "FP32", "HALF": "FP16", "FLOAT16": "FP16", "DOUBLE": "FP64",
    "FLOAT64": "FP64", "BYTES": "STRING", "STR": "STRING", "INT": "INT32", "LONG": "INT64",
    "BFLOAT16": "BF16", "BOOLEAN": "BOOL",
}  # fmt: skip
_KINDS: Final = {"NPU": "MODEL", "ASCEND": "MODEL", "DEVICE": "MODEL"}
_TENSOR: Final = {
    "shape": "dims",
    "datatype": "data_type",
    "dtype": "data_type",
    "type": "data_type",
}
_RENAMED: Final = {
    "ModelInput": _TENSOR,
    "ModelOutput": _TENSOR,
    "ModelConfig": {
        "inputs": "input",
        "outputs": "output",
        "instance_groups": "instance_group",
        "backend_parameters": "parameters",
        "parameter": "parameters",
        "max_batch": "max_batch_size",
    },
    "ModelEnsembling": {"steps": "step"},
    "ModelInstanceGroup": {"gpu": "gpus"},
    "ModelDynamicBatching": {"preferred_batch_sizes": "preferred_batch_size"},
}
_UNITS: Final = {
    "_ms": 1000,
    "_us": 1,
    "_milliseconds": 1000,
    "_s": 1_000_000,
    "_seconds": 1_000_000,
}
_WHOLE: Final = re.compile(r"(-?\d+)\.0*")
_YES: Final = {
    "true": "true",
    "yes": "true",
    "on": "true",
    "false": "false",
    "no": "false",
    "off": "false",
}


def type_name(described: Any) -> str:
    """Return the type of a field as protobuf's own files write it."""
    names = (
        "int32",
        "int64",
        "uint32",
        "uint64",
        "double",
        "float",
        "bool",
        "enum",
        "string",
        "message",
    )
    return names[described.cpp_type - 1]


def unknown(message: Message, field: Field, kind: Any) -> Repair | None:
    """Return the repair of a field that the protobuf has not."""
    renamed = _RENAMED.get(kind.name, {}).get(field.name) or _from_camel(field.name, kind)
    if renamed and (renamed in ("input", "output", "parameters") or not message.named(renamed)):
        edits = [Edit(field.start, field.name_end, renamed)]
        described = kind.fields_by_name[renamed]
        if field.name == "backend_parameters" and (inner := entries(field, described)):
            edits += inner.edits
        return Repair(renamed, tuple(edits))
    if kind.name == "ModelParameter" and len(field.values) == 1:
        return _string_value(field)
    return _in_microseconds(field, kind)


def _from_camel(name: str, kind: Any) -> str:
    return next((f.name for f in kind.fields if name == f.json_name or name.lower() == f.name), "")


def _string_value(field: Field) -> Repair | None:
    value = field.values[0]
    if not isinstance(value, Scalar) or not field.name.endswith(("value", "string")):
        return None
    edits = (
        Edit(field.start, field.name_end, "string_value"),
        Edit(value.start, value.end, _quoted(value)),
    )
    return Repair(f"string_value: {_quoted(value)}", edits)


def _in_microseconds(field: Field, kind: Any) -> Repair | None:
    for ending, factor in _UNITS.items():
        name = field.name.removesuffix(ending) + "_microseconds"
        if not field.name.endswith(ending) or name not in kind.fields_by_name:
            continue
        value = field.values[0] if len(field.values) == 1 else None
        if isinstance(value, Scalar) and value.kind == "number":
            try:
                micros = float(value.source) * factor
            except ValueError:
                return None
            if micros == int(micros):
                return Repair(
                    f"{name}: {int(micros)}",
                    (
                        Edit(field.start, field.name_end, name),
                        Edit(value.start, value.end, str(int(micros))),
                    ),
                )
    return None


def entries(field: Field, described: Any) -> Repair | None:
    """Return the repair of `{ name: value … }` where entries of key and value belong."""
    if not _is_parameters(described):
        return None
    message = field.values[0] if len(field.values) == 1 and not field.is_list else None
    if not isinstance(message, Message) or not message.fields:
        return None
    if {each.name for each in message.fields} <= {"key", "value"}:
        return None
    values = [each.values[0] if len(each.values) == 1 else None for each in message.fields]
    edits = [Edit(message.start, message.start + 1, "["), Edit(message.end - 1, message.end, "]")]
    for number, (each, value) in enumerate(zip(message.fields, values, strict=True), 1):
        if not isinstance(value, Scalar):
            return None
        comma = "," if number < len(values) else ""
        text = f'{{ key: "{each.name}" value: {{ string_value: {_quoted(value)} }} }}{comma}'
        edits.append(Edit(each.start, each.separator_end, text))
    return Repair(f"{len(values)} entries with string_value", tuple(edits))


def _is_parameters(described: Any) -> bool:
    entry = described.message_type
    value = entry.fields_by_name.get("value") if entry.GetOptions().map_entry else None
    return value is not None and value.message_type and value.message_type.name == "ModelParameter"


def wrap(value: Scalar, kind: Any) -> Repair | None:
    """Return the repair of a bare value where a message belongs."""
    if kind.name != "ModelParameter":
        return None
    text = f"{{ string_value: {_quoted(value)} }}"
    return Repair(text, (Edit(value.start, value.end, text),))


def scalar(value: Scalar, described: Any) -> Repair | None:
    """Return the repair of a value that its field does not take."""
    kind = type_name(described)
    text = None
    if kind == "enum":
        text = _enumerated(value.text, described.enum_type)
    elif kind == "string":
        text = _quoted(value)
    elif kind == "bool":
        text = _YES.get(value.text.lower())
    elif kind != "message":
        whole = _WHOLE.fullmatch(value.text)
        text = whole[1] if whole else value.text
        if (
            not re.fullmatch(r"-?(0|[1-9]\d*)", text)
            or text == value.source
            or (text.startswith("-") and kind.startswith("uint"))
        ):
            text = None
    return Repair(text, (Edit(value.start, value.end, text),)) if text is not None else None


def _enumerated(text: str, kind: Any) -> str | None:
    names = list(kind.values_by_name)
    prefix = names[0].split("_")[0] + "_"  # every enumeration here has one
    bare = text.upper().replace(" ", "").removeprefix("TENSORPROTO.").removeprefix("NP.")
    for start in (prefix, "DT_", "KIND_"):
        bare = bare.removeprefix(start)
    if prefix == "TYPE_" and kind.name == "DataType":
        bare = _TYPES.get(bare, bare)
    if prefix == "KIND_" and kind.full_name.endswith("ModelInstanceGroup.Kind"):
        bare = _KINDS.get(bare, bare)
    return next((name for name in (prefix + bare, bare) if name in names), None)


def unlist(field: Field) -> Repair | None:
    """Return the repair of a list of one where a single value belongs."""
    if len(field.values) != 1:
        return None
    value = field.values[0]
    return Repair(
        "the value without brackets",
        (Edit(field.name_end, value.start, ": "), Edit(value.end, field.end, "")),
    )


def platform(root: Message, removal: Edit) -> Repair | None:
    """Return the repair of a `platform` that names a backend."""
    value = root.scalar("platform")
    backend = BACKEND_OF_PLATFORM.get(value.text) if value else None
    if backend is None:
        return None
    if root.named("backend"):
        return Repair("no platform beside backend", (removal,))
    field = root.named("platform")[-1]
    return Repair(f'backend: "{backend}"', (Edit(field.start, field.end, f'backend: "{backend}"'),))


def _quoted(value: Scalar) -> str:
    if value.kind == "string":
        return value.source
    return f'"{value.source}"'
