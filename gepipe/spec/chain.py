"""The list of stages: which model each entry is, and whether the chain can be run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeAlias

from pydantic import PlainSerializer, PlainValidator, ValidationError, ValidationInfo

from gepipe.ops.gather import Gather
from gepipe.ops.parts import Splitter
from gepipe.spec.explain import Issue, issues_of, nested, problem
from gepipe.spec.stages import InferStage, MidStage, PostStage, PreStage, Section
from gepipe.spec.units import shown
from gepipe.spec.values import each

Stage: TypeAlias = "PreStage | InferStage | MidStage | PostStage"

#: The model of each role.
STAGES: Final[dict[str, type[Section]]] = {
    "pre": PreStage,
    "infer": InferStage,
    "mid": MidStage,
    "post": PostStage,
}
#: Stage names that say the role by themselves, as the words for the roles do.
USUAL_ROLES: Final = {"preprocess": "pre", "inference": "infer", "postprocess": "post"}


def check_order(stages: tuple[Stage, ...]) -> None:
    """Check that the chain is one that can be run: pre, infer, any number of (mid, infer), post.

    Raises:
        ValueError: It is another one.
    """
    roles = [stage.role for stage in stages]
    between = roles[2:-1]
    whole = roles[:2] == ["pre", "infer"] and roles[-1:] == ["post"]
    if whole and between == ["mid", "infer"] * (len(between) // 2):
        return
    wanted = (
        "stages with the roles pre, infer, post in this order, and mid, infer for each further "
        "model before post"
    )
    raise ValueError(f"expected {wanted}, got {', '.join(roles) or 'none'}")


def _stages(value: Any, info: ValidationInfo) -> tuple[Stage, ...]:
    if not isinstance(value, list | tuple):
        raise problem(f"expected a list of stages, each with - name: …, got {shown(value)}")
    stages = tuple(each(value, lambda entry: _stage(entry, info)))
    names = [stage.name for stage in stages]
    if doubled := [i for i, name in enumerate(names) if name in names[:i]]:
        raise nested(Issue((i, "name"), f"two stages are called {names[i]!r}") for i in doubled)
    check_order(stages)
    _check_gather(stages)
    _check_ordered(stages)
    return stages


def _check_gather(stages: tuple[Stage, ...]) -> None:
    """Check that parts are gathered once at most, in post, and only where there are any."""
    split = any(stage.role == "mid" for stage in stages)
    for number, stage in enumerate(stages):
        if stage.role not in ("mid", "post"):
            continue
        at = [index for index, op in enumerate(stage.ops) if isinstance(op, Gather)]
        if at and stage.role == "mid":
            text = "parts are gathered in the post stage; here an item is split"
            raise problem(text, number, "ops", at[0])
        if at and not split:
            text = "nothing is split here: there is no mid stage whose parts it could gather"
            raise problem(text, number, "ops", at[0])
        if len(at) > 1:
            text = "gathers what is gathered already; expected one gather"
            raise problem(text, number, "ops", at[1])


def _check_ordered(stages: tuple[Stage, ...]) -> None:
    """Check that what keeps a state from item to item is not given parts, which come mixed."""
    split = False
    for number, stage in enumerate(stages):
        if stage.role == "infer":
            continue
        for index, op in enumerate(stage.ops):
            if split and getattr(op, "ordered", False):
                text = (
                    f"{op.title}: keeps a state from item to item, but here it would get the parts "
                    "of several; put it behind gather, or before what splits the item"
                )
                raise problem(text, number, "ops", index)
            split = (split or isinstance(op, Splitter)) and not isinstance(op, Gather)


def _stage(entry: Any, info: ValidationInfo) -> Any:
    if isinstance(entry, PreStage | InferStage | MidStage | PostStage):
        return entry
    if not isinstance(entry, Mapping):
        raise problem(f"expected a mapping with the key name, got {shown(entry)}")
    role = _role(entry)
    cls = STAGES[role]
    try:
        return cls.model_validate({**entry, "role": role}, context=info.context)
    except ValidationError as error:
        found = issues_of(error.errors(include_url=False), cls.model_fields)
        raise nested(_with_owner(issue, cls) for issue in found) from None


def _role(entry: Mapping[str, Any]) -> str:
    """Return the role that a stage states, or that its name implies."""
    name, role = entry.get("name"), entry.get("role")
    if name is None:
        raise nested([Issue(("name",), "missing key", missing=True)])
    implied = implied_role(name) if isinstance(name, str) else None
    if implied and role not in (None, implied):
        raise problem(f"the name {name!r} means the role {implied}, got {shown(role)}", "role")
    role = role or implied
    if role is None:
        what = f"the name {shown(name)} does not say what the stage does"
        raise problem(f"{what}; add role: pre, infer, mid or post", "name")
    if not isinstance(role, str) or role not in STAGES:
        raise problem(f"expected one of {', '.join(STAGES)}, got {shown(role)}", "role")
    return role


def implied_role(name: str) -> str | None:
    """Return the role that a stage's name says by itself."""
    return name if name in STAGES else USUAL_ROLES.get(name)


def _with_owner(issue: Issue, cls: type[Section]) -> Issue:
    """Name the stage that an unknown key belongs to, where it is a key of another one."""
    key = str(issue.loc[0]) if len(issue.loc) == 1 else ""
    if key in cls.model_fields:
        return issue
    owners = [role for role, other in STAGES.items() if key in other.model_fields]
    if not owners:
        return issue
    role = next(role for role, other in STAGES.items() if other is cls)
    text = f"{key!r} is a key of {' and '.join(owners)} stages; this is a {role} stage"
    return Issue(issue.loc, text)


Stages = Annotated[
    tuple[Stage, ...],
    PlainValidator(_stages),
    PlainSerializer(lambda stages: [stage.model_dump(mode="json") for stage in stages]),
]
