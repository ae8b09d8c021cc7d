"""Devices that instance groups name in the dialect of other GE backends."""

from __future__ import annotations

from typing import Final

from gepipe.triton.edit import Edit
from gepipe.triton.placing import appended, removal
from gepipe.triton.problem import Repair
from gepipe.triton.textnodes import Field, Message, Scalar

#: Fields of an instance group that name devices in the dialect.
FIELDS: Final = ("device", "device_id", "devices", "device_ids", "npus", "npu")


def as_parameter(text: str, root: Message, *, is_card: bool) -> Repair | None:
    """Return the repair of devices named in instance groups: a parameter names them.

    Args:
        text: The configuration.
        root: What was read of it.
        is_card: Whether its backend works on cards, so that kinds of processor mean nothing.
    """
    groups = root.messages("instance_group")
    named = [[f for f in group.fields if f.name in FIELDS] for group in groups]
    values = [v for fields in named for f in fields for v in f.values]
    ids = [v.text for v in values if isinstance(v, Scalar) and v.text.isdecimal()]
    if len(ids) != len(values) or not ids:
        return None
    if len(groups) > 1:
        return _one_group(text, root, named, ids)
    kind = groups[0].scalar("kind")
    if kind and not is_card and kind.source == "KIND_GPU" and len(named[0]) == 1:
        gpus = f"gpus: [ {', '.join(ids)} ]"
        return Repair(gpus, (Edit(named[0][0].start, named[0][0].end, gpus),))
    edits = [removal(text, field) for field in named[0]]
    if kind and is_card and kind.source != "KIND_MODEL":
        edits.append(Edit(kind.start, kind.end, "KIND_MODEL"))
    return Repair(
        f"the parameter device_ids {','.join(ids)!r}", (*edits, *_parameter(text, root, ids))
    )


def _one_group(text: str, root: Message, named: list[list[Field]], ids: list[str]) -> Repair | None:
    """Return the repair of a group for each device: one group with all, instance by instance."""
    groups = root.messages("instance_group")
    counts = {group.integer("count") or 1 for group in groups}
    plain = all({f.name for f in g.fields} <= {"count", "kind", *FIELDS} for g in groups)
    if len(counts) > 1 or not plain or any(len(fields) != 1 for fields in named):
        return None
    first, *rest = root.named("instance_group")
    count = counts.pop() * len(ids)
    group = f"instance_group [ {{ count: {count} kind: KIND_MODEL }} ]"
    edits = [Edit(first.start, first.end, group)]
    edits += [Edit(field.start, field.separator_end, "") for field in rest]
    words = f"one group of {count} and the parameter device_ids {','.join(ids)!r}"
    return Repair(words, (*edits, *_parameter(text, root, ids)))


def _parameter(text: str, root: Message, ids: list[str]) -> tuple[Edit, ...]:
    keys = {entry.text("key") for entry in root.messages("parameters")}
    if keys & {"device_ids", "device_id"}:
        return ()
    entry = f'parameters {{ key: "device_ids" value: {{ string_value: "{",".join(ids)}" }} }}'
    return (appended(text, root, entry),)
