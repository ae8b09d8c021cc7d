"""What a pipeline is tuned for: values for the keys that its stages leave open.

A profile changes nothing that a stage says itself, and it is settled before anything is planned, so
that a local run and an exported server are tuned alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field, PlainSerializer, PlainValidator, ValidationError

from gepipe.spec.explain import issues_of, nested, problem
from gepipe.spec.stages import Section
from gepipe.spec.units import Duration, shown
from gepipe.spec.values import Count, CountOrAuto

#: Requests that may wait where no profile says how many.
QUEUE: Final = 128


class Profile(Section):
    """Values for what the stages leave open."""

    preset: Literal["latency", "throughput"] | None = Field(
        None, description="Ready values for the keys that are left out: `latency` or `throughput`."
    )
    batch_size: Count | None = Field(
        None,
        description=(
            "Rows of one batch, where the pre stage leaves `batch_size` out; of a model with gears "
            "the smallest gear that holds them."
        ),
    )
    max_wait: Duration | None = Field(
        None,
        description=(
            "How long a part-filled batch waits, where the pipeline leaves `max_wait` out; in a "
            "server the time that a request may wait for others."
        ),
    )
    queue: Count | None = Field(
        None,
        description=(
            "Requests that may wait in a server, `128` by default; one more is refused at once. "
            "Local runs have no such queue."
        ),
    )
    instances: CountOrAuto = Field(
        "auto",
        description="Processes for each device, where the infer stage leaves `instances` out.",
    )
    precision: Literal["auto", "fp32", "fp16"] = Field(
        "auto",
        description=(
            "Number format, where the infer stage leaves `precision` out. No preset sets it, "
            "because it changes results."
        ),
    )
    priority_levels: Literal[1, 2] | None = Field(
        None,
        description=(
            "Levels of Triton's own queue before the model, for `--target npu_ge`: with `2`, "
            "requests of priority 1 go before the others; `1`, the default, makes no difference "
            "between them. gepipe's own queues always let requests with the parameter `realtime` "
            "go first."
        ),
    )


#: What each preset stands for. A small batch holds the device for a short time only, so whoever
#: comes next waits less; a large one wastes least on each start of the device.
PRESETS: Final[Mapping[str, Profile]] = {
    "latency": Profile(batch_size=4, max_wait=0.0, queue=32, instances=1, priority_levels=2),
    "throughput": Profile(batch_size=32, max_wait=0.005, queue=512, priority_levels=1),
}


def _profile(value: Any) -> Profile:
    if isinstance(value, Profile):
        return value
    if isinstance(value, str) and value in PRESETS:
        return Profile(preset=value)  # type: ignore[arg-type]
    if not isinstance(value, Mapping):
        wanted = f"{', '.join(PRESETS)}, or a mapping such as {{preset: latency, queue: 16}}"
        raise problem(f"expected {wanted}, got {shown(value)}")
    try:
        return Profile.model_validate(value)
    except ValidationError as error:
        raise nested(issues_of(error.errors(include_url=False), Profile.model_fields)) from None


def _plain(profile: Profile | None) -> Any:
    if profile is None:
        return None
    plain = profile.model_dump(mode="json", exclude_defaults=True)
    return plain["preset"] if list(plain) == ["preset"] else plain


ProfileChoice = Annotated[Profile, PlainValidator(_profile), PlainSerializer(_plain)]


def complete(profile: Profile | None) -> Profile:
    """Return a profile with what its preset, and the defaults of a server, say."""
    profile = profile or Profile()
    defaults = Profile(queue=QUEUE, priority_levels=1)
    for below in (PRESETS.get(profile.preset or ""), defaults):
        for name in Profile.model_fields if below is not None else ():
            if getattr(profile, name) in (None, "auto"):
                profile = profile.model_copy(update={name: getattr(below, name)})
    return profile
