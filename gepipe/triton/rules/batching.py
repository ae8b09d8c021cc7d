"""Batches: their size, how requests wait for them, and how many may wait."""

from __future__ import annotations

from collections.abc import Iterator

from gepipe.triton.edit import Edit
from gepipe.triton.models import Model
from gepipe.triton.placing import removal
from gepipe.triton.problem import Finding, Repair, error, warning
from gepipe.triton.rules.surroundings import Surroundings
from gepipe.triton.textnodes import Field, Message


def check(model: Model, around: Surroundings) -> Iterator[Finding]:
    """Yield what is wrong with `max_batch_size` and `dynamic_batching`."""
    del around
    root = model.root
    size = root.scalar("max_batch_size")
    if model.draft and size is None and root.fields:
        yield warning(
            0,
            "max_batch_size",
            "is missing, which is 0, no batches, unless the server's "
            "completion raises it; expected it in words",
        )
    elif size and size.integer is not None and size.integer < 0:
        yield error(
            size.start,
            "max_batch_size",
            f"is {size.source}; expected 0 for no batches, or the largest one",
        )
    if model.backend == "ensemble":
        return
    batching = root.message("dynamic_batching")
    if batching is None:
        return
    at = root.named("dynamic_batching")[-1]
    if model.max_batch == 0:
        yield from _without_batches(model, batching, at)
        return
    yield from _preferred(model, batching)
    yield from _priorities(batching, at)


def _without_batches(model: Model, batching: Message, at: Field) -> Iterator[Finding]:
    preferred = batching.named("preferred_batch_size")
    if preferred:
        edits = tuple(removal(model.document.text, field) for field in preferred)
        yield error(
            preferred[0].start,
            "dynamic_batching.preferred_batch_size",
            "stands without max_batch_size; expected sizes up to max_batch_size, which is 0",
            Repair("no preferred_batch_size", edits),
        )
    else:
        yield warning(
            at.start,
            "dynamic_batching",
            "has no effect while max_batch_size is 0; expected "
            "max_batch_size above 0, or no dynamic_batching",
        )


def _preferred(model: Model, batching: Message) -> Iterator[Finding]:
    path = "dynamic_batching.preferred_batch_size"
    fields = batching.named("preferred_batch_size")
    sizes = [value.integer or 0 for value in batching.scalars("preferred_batch_size")]
    wrong = [size for size in sizes if not 1 <= size <= model.max_batch]
    if not wrong:
        return
    right = sorted({min(size, model.max_batch) for size in sizes if size > 0})
    text = f"preferred_batch_size: [ {', '.join(map(str, right))} ]"
    first, *rest = fields
    edits = (
        Edit(first.start, first.end, text) if right else removal(model.document.text, first),
        *(removal(model.document.text, field) for field in rest),
    )
    yield error(
        first.start,
        path,
        f"has {', '.join(map(str, wrong))}; expected sizes from 1 to "
        f"max_batch_size, {model.max_batch}",
        Repair(text if right else "no preferred_batch_size", edits),
    )


def _priorities(batching: Message, at: Field) -> Iterator[Finding]:
    levels = batching.integer("priority_levels")
    if levels and not 1 <= batching.integer("default_priority_level") <= levels:
        yield error(
            at.start,
            "dynamic_batching.default_priority_level",
            "is "
            f"{batching.integer('default_priority_level') or 'missing'}; expected 1 to "
            f"priority_levels, {levels}",
        )
    if levels > 1 and batching.text("preserve_ordering") in ("true", "True", "t", "1"):
        yield error(
            at.start,
            "dynamic_batching.preserve_ordering",
            f"stands beside {levels} levels of "
            "priority, which change the order; expected only one of both",
        )
    for number, entry in enumerate(batching.messages("priority_queue_policy")):
        key, path = entry.scalar("key"), f"dynamic_batching.priority_queue_policy[{number}]"
        if not levels:
            yield warning(
                entry.start, path, "has no effect without priority_levels; expected priority_levels"
            )
        elif not 1 <= entry.integer("key") <= levels:
            yield error(
                key.start if key else entry.start,
                f"{path}.key",
                f"is {entry.integer('key')}; expected a level from 1 to priority_levels, {levels}",
            )
        if policy := entry.message("value"):
            yield from _policy(policy, f"{path}.value")
    if policy := batching.message("default_queue_policy"):
        yield from _policy(policy, "dynamic_batching.default_queue_policy")


def _policy(policy: Message, path: str) -> Iterator[Finding]:
    action = policy.scalar("timeout_action")
    limits = policy.integer("default_timeout_microseconds")
    override = policy.text("allow_timeout_override") in ("true", "True", "t", "1")
    if action and not limits and not override:
        yield warning(
            action.start,
            f"{path}.timeout_action",
            "never acts, since no request times out; "
            "expected default_timeout_microseconds or allow_timeout_override",
        )
