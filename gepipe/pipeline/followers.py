"""Whether what a model makes is what the operators behind it read: names, shapes, labels.

Each mismatch names both ends and what to change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gepipe.errors import ConfigError
from gepipe.ops.detection import Yolo
from gepipe.ops.reading import Ctc
from gepipe.ops.results import Identity, Softmax, Threshold, TopK
from gepipe.ops.text import Vector
from gepipe.ops.textboxes import TextBoxes
from gepipe.pipeline.neighbours import text
from gepipe.plugins import did_you_mean
from gepipe.tensors import DYNAMIC, TensorSpec

if TYPE_CHECKING:
    from gepipe.runtime.body import ModelInfo
    from gepipe.spec.model import PipelineSpec


def output_mismatches(spec: PipelineSpec, info: ModelInfo) -> Iterator[str]:
    """Compare the model's outputs with what the post operators name and need."""
    outputs = {row.name: row for row in info.outputs}
    for op in spec.post.ops:
        if isinstance(op, Identity):
            for kept in op.outputs or ():
                if kept not in outputs:
                    yield _no_output(spec.post.name, op, kept, outputs)
            continue
        if not isinstance(op, Softmax | TopK | Threshold | Vector | Yolo | TextBoxes | Ctc):
            return  # user code: what follows gets what it returns
        name = op.output
        if name is None and len(outputs) > 1:
            yield (
                f"stage {spec.post.name!r}: {op.title}: the model has the outputs "
                f"{', '.join(map(repr, outputs))}; say which one it works on: `output: …`"
            )
        elif name is not None and name not in outputs:
            yield _no_output(spec.post.name, op, name, outputs)
        else:
            yield from _mismatches(spec.post.name, op, outputs[name or next(iter(outputs))])
        if not isinstance(op, Softmax):
            return  # what follows gets its record


def _mismatches(stage: str, op: Any, row: TensorSpec) -> Iterator[str]:
    match op:
        case Vector():
            yield from _vector_mismatches(stage, op, row)
        case Yolo():
            yield from _box_mismatches(stage, op, row)
        case TextBoxes():
            if not _is_table(row):
                yield _refused(stage, "text_boxes takes a map of probabilities", row)
        case Ctc():
            yield from _character_mismatches(stage, op, row)
        case TopK() | Threshold():
            yield from _score_mismatches(stage, op, row)


def _no_output(stage: str, op: Any, name: str, outputs: dict[str, TensorSpec]) -> str:
    return (
        f"stage {stage!r}: {op.title}: the model has no output {name!r}; "
        f"{did_you_mean(name, list(outputs))}"
    )


def _vector_mismatches(stage: str, op: Vector, row: TensorSpec) -> Iterator[str]:
    if len(row.shape) != 2 and op.pooling != "none":
        yield (
            f"stage {stage!r}: {op.title}: pooling takes one vector a token; the model's output "
            f"{row.name!r} makes {text(row)} for one item; leave pooling out"
        )
    elif op.pooling == "none" and len(row.shape) > 1 and row.shape.count(1) < len(row.shape) - 1:
        yield (
            f"stage {stage!r}: {op.title} takes one vector; the model's output {row.name!r} makes "
            f"{text(row)} for one item; where that is one vector a token, set pooling: mean, as "
            "the model's card says"
        )


def _score_mismatches(stage: str, op: TopK | Threshold, row: TensorSpec) -> Iterator[str]:
    if not row.is_static:
        return
    classes = 1
    for extent in row.shape:
        classes *= extent
    if row.shape and max(row.shape) != classes:
        yield _refused(stage, f"{op.title} takes one row of scores", row)
    elif op.labels is not None:
        from gepipe.ops.scores import Labels

        try:
            labels = Labels.read(op.labels)
        except ConfigError:  # told by the operator's own set-up
            return
        try:
            labels.check(classes, row.name)
        except ConfigError as error:
            yield f"stage {stage!r}: {op.title}: {error}"


def _box_mismatches(stage: str, op: Yolo, row: TensorSpec) -> Iterator[str]:
    if DYNAMIC in row.shape[-2:]:
        return
    if not _is_table(row):
        yield _refused(stage, "yolo takes a table of boxes", row)
        return
    try:
        op.setup()
    except ConfigError:  # told by the operator's own set-up
        return
    try:
        op.layout_of(row.shape[-2:], row.name)
    except ConfigError as error:
        yield f"stage {stage!r}: {error}"


def _character_mismatches(stage: str, op: Ctc, row: TensorSpec) -> Iterator[str]:
    if not _is_table(row):
        yield _refused(stage, "ctc takes the characters' probabilities a step", row)
        return
    if row.shape[-1] == DYNAMIC:
        return
    from gepipe.ops.characters import Characters

    try:
        characters = Characters.read(op.characters)
    except ConfigError:  # told by the operator's own set-up
        return
    try:
        characters.for_classes(row.shape[-1], row.name, op.blank)
    except ConfigError as error:
        yield f"stage {stage!r}: ctc: {error}"


def _is_table(row: TensorSpec) -> bool:
    return len(row.shape) >= 2 and all(extent in (1, DYNAMIC) for extent in row.shape[:-2])


def _refused(stage: str, what: str, row: TensorSpec) -> str:
    return (
        f"stage {stage!r}: {what}; the model's output {row.name!r} makes {text(row)} for one "
        "item; choose another output, or write the operator as `- python: module:function`"
    )
