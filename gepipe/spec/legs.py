"""A chain of several models, lowered into ordinary pipelines of three stages: its legs.

    pre → infer → mid → infer → post      becomes      pre → infer → post   (mid up to the split)
                                                                │ parts
                                                                ▼
                                                       pre → infer → post   (mid from the split on)
                                                                │ results
                                                                ▼
                                                               join         (post from gather on)

Stages keep the names that the user gave them, so that messages name what stands in the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gepipe.ops.gather import Gather
from gepipe.ops.parts import Splitter
from gepipe.spec.stages import InferStage, MidStage, PostStage, PreStage

if TYPE_CHECKING:
    from gepipe.spec.chain import Stage


def leg_stages(
    stages: Sequence[Stage],
) -> tuple[tuple[PreStage, InferStage, PostStage], ...]:
    """Return the stages of each leg of a chain."""
    pre: Stage = stages[0]
    legs: list[tuple[PreStage, InferStage, PostStage]] = []
    for infer, after in zip(stages[1::2], stages[2::2], strict=True):
        assert isinstance(pre, PreStage)
        assert isinstance(infer, InferStage)
        if isinstance(after, PostStage):
            ops = after.ops if not legs else after.ops[: gather_at(after.ops)]
            legs.append((pre, infer, after.model_copy(update={"ops": ops})))
        else:
            assert isinstance(after, MidStage)
            legs.append((pre, infer, _reading(after)))
            pre = _writing(after)
    return tuple(legs)


def gather_at(ops: Sequence[Any]) -> int:
    """Return where in a post stage's operators parts are gathered; at the end by default."""
    return next((i for i, op in enumerate(ops) if isinstance(op, Gather)), len(ops))


def splitter_of(mid: MidStage) -> Splitter:
    """Return the operator by which a mid stage splits an item."""
    return next(op for op in mid.ops if isinstance(op, Splitter))


def _reading(mid: MidStage) -> PostStage:
    at = mid.ops.index(splitter_of(mid))
    return PostStage.model_construct(
        name=mid.name,
        role="post",
        stream_count=mid.stream_count,
        ops=mid.ops[:at],
        timeout=mid.timeout,
    )


def _writing(mid: MidStage) -> PreStage:
    at = mid.ops.index(splitter_of(mid))
    return PreStage.model_construct(
        name=mid.name,
        role="pre",
        threads=mid.threads,
        batch_size=mid.batch_size,
        ops=mid.ops[at:],
        timeout=mid.timeout,
    )
