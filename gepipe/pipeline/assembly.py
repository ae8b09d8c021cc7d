"""Puts together what runs a pipeline: a supervisor, or a chain of them for several models."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gepipe import machine
from gepipe.errors import BackendError
from gepipe.io.original import Original, takes_origin
from gepipe.ops.decode import DecodeImage
from gepipe.ops.parts import Splitter
from gepipe.pipeline.chain import Chain, together
from gepipe.pipeline.conversion import prepare
from gepipe.pipeline.crews import make_crews, pickled, worker_environment
from gepipe.pipeline.fit import require_room_together
from gepipe.pipeline.join import JoinBody
from gepipe.pipeline.objects import to_bytes
from gepipe.pipeline.plan import MEMORY_SHARE, plan_slots, plan_start
from gepipe.pipeline.split import CutReader, Split, cutting, tells_shapes
from gepipe.pipeline.startplan import StartPlan
from gepipe.runtime.memory import SlotLayout
from gepipe.runtime.options import Crew, RunOptions, SlotPlan
from gepipe.runtime.supervisor import Supervisor

if TYPE_CHECKING:
    from gepipe.io.source import Reader
    from gepipe.runtime.body import ModelInfo
    from gepipe.runtime.events import Role
    from gepipe.spec.model import PipelineSpec

#: Items that the join is given at once, and portions of them that may be on their way.
_JOIN_BATCH: Final = 4
_JOIN_DEPTH: Final = 4
#: Processors from which on the join has a second worker.
_JOIN_TWO: Final = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """A pipeline as it is run, and what is known before its models are open.

    Attributes:
        spec: The pipeline as it was written.
        legs: Its legs, each with what its profile says and its model converted.
        starts: How each leg starts.
        join_workers: Workers that put items together again; 0 where there is one model.
    """

    spec: PipelineSpec
    legs: tuple[PipelineSpec, ...]
    starts: tuple[StartPlan, ...]
    join_workers: int

    @property
    def engine(self) -> str:
        """The engines, in the order of the models."""
        return ", ".join(dict.fromkeys(start.engine for start in self.starts))

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know about the choices made."""
        if len(self.starts) == 1:
            return self.starts[0].notes
        return together(
            {leg.infer.name: start.notes for leg, start in zip(self.legs, self.starts, strict=True)}
        )

    @property
    def prepared(self) -> PipelineSpec:
        """The pipeline with the models that are run."""
        if len(self.legs) == 1:
            return self.legs[0]
        run = {leg.infer.name: leg.infer for leg in self.legs}
        stages = tuple(run.get(stage.name, stage) for stage in self.spec.stages)
        return self.spec.model_copy(update={"stages": stages})

    def slots(self, number: int, info: ModelInfo) -> SlotPlan:
        """Lay out the slots of a leg; see `gepipe.pipeline.plan.plan_slots`."""
        leg = self.legs[number]
        known = number > 0 and knows(leg)
        return plan_slots(leg, self.starts[number], info, known=known)


def plan(spec: PipelineSpec, *, thorough: bool = False) -> Plan:
    """Settle what runs, and with what; see `gepipe.pipeline.plan.plan_start`.

    The legs of a chain share the machine: their pre workers are divided among them, and models on
    the CPU compete by sessions of one thread each, so that whoever has more to do gets more.
    """
    legs = tuple(prepare(leg) for leg in spec.legs)
    starts = tuple(plan_start(leg, thorough=thorough) for leg in legs)
    if len(legs) == 1:
        return Plan(spec, legs, starts, 0)
    require_room_together(legs, starts)
    starts = tuple(_sharing(leg, start, len(legs)) for leg, start in zip(legs, starts, strict=True))
    wanted = spec.post.stream_count
    if any(op.ordered for op in spec.joining):
        wanted = 1
    join = (1 if starts[0].cpus < _JOIN_TWO else 2) if wanted == "auto" else wanted
    return Plan(spec, legs, starts, join)


def _sharing(leg: PipelineSpec, start: StartPlan, legs: int) -> StartPlan:
    """Return how a leg starts that has the machine to itself no more."""
    pre, engines = start.pre_workers, start.engines
    if leg.pre.threads == "auto":
        pre = -(-pre // legs)
    if start.on_cpu and len(engines) > 1:  # a single one is of a large model, the slowest part
        engines = tuple(
            replace(options, threads=max(1, options.threads // legs)) for options in engines
        )
    return replace(start, pre_workers=pre, engines=engines)


def assemble(
    planned: Plan, reader: Reader, encode: Callable[..., bytes], options: RunOptions | None = None
) -> Supervisor | Chain:
    """Return what runs a pipeline.

    Args:
        planned: The pipeline.
        reader: Reads the source's payloads.
        encode: Makes a record of a result, see `make_crews`.
        options: Limits.

    Raises:
        ConfigError: An operator cannot be sent to another process.
    """
    options = options or RunOptions(environ=worker_environment())
    spec, legs, starts = planned.spec, planned.legs, planned.starts
    if len(legs) == 1:
        crews = make_crews(legs[0], starts[0], reader, encode)
        return Supervisor(crews, lambda info: planned.slots(0, info), options)
    memory = LegMemory(planned)
    supervisors = [
        Supervisor(crews, memory.checked(number), options)
        for number, crews in enumerate(leg_crews(planned, reader))
    ]
    join: Mapping[Role, Crew] = {"pre": join_crew(planned, reader, encode)}
    none = SlotLayout.of((), _JOIN_BATCH)
    return Chain(
        supervisors,
        Supervisor(join, lambda _: SlotPlan(none, none, _JOIN_DEPTH), options),
        stage_names(spec),
        tuple(splitter.single for splitter in spec.splitters),
        keep=takes_origin(encode),
    )


def leg_crews(planned: Plan, reader: Reader) -> list[dict[Role, Crew]]:
    """Return the workers of each leg of a chain: all but the last split, which makes results.

    Raises:
        ConfigError: An operator cannot be sent to another process.
    """
    spec, legs = planned.spec, planned.legs
    found = []
    for number, (leg, start) in enumerate(zip(legs, planned.starts, strict=True)):
        last = number == len(legs) - 1
        encode: Callable[..., bytes] = (
            to_bytes if last else _split(spec.splitters[number], legs[number + 1])
        )
        leg_reader = cut_reader(spec, reader, number) if number else reader
        found.append(make_crews(cut(leg) if number else leg, start, leg_reader, encode))
    return found


def join_crew(planned: Plan, reader: Reader, encode: Callable[..., bytes]) -> Crew:
    """Return the workers of a chain that put items together again and make records of them.

    Raises:
        ConfigError: An operator cannot be sent to another process.
    """
    spec = planned.spec
    body = JoinBody(
        tuple(spec.joining),
        encode,
        tuple(splitter.single for splitter in spec.splitters),
        Original.of(reader, spec.pre.ops) if takes_origin(encode) else None,
    )
    bodies = [pickled(body, spec.post.name)] * planned.join_workers
    return Crew(spec.post.name, bodies, spec.post.timeout)


def stage_names(spec: PipelineSpec) -> tuple[tuple[str, str], ...]:
    """Return what the two kinds of workers of each mid stage, and of post, are called."""
    mids = tuple((f"{mid.name} (split)", f"{mid.name} (parts)") for mid in spec.mids)
    return (*mids, (spec.post.name, f"{spec.post.name} (gather)"))


def cut(leg: PipelineSpec) -> PipelineSpec:
    """Return a leg that begins with a splitting operator as its workers run it."""
    pre = leg.pre.model_copy(update={"ops": cutting(leg.pre.ops)})
    return leg.model_copy(update={"stages": (pre, leg.infer, leg.post)})


def knows(leg: PipelineSpec) -> bool:
    """Return whether a leg that begins with parts knows their row shapes before it cuts them."""
    return tells_shapes(leg.pre.ops[0], leg.pre.ops[1:])


def cut_reader(spec: PipelineSpec, reader: Reader, number: int) -> CutReader:
    """Return what reads the parts that a leg is given."""
    first = spec.pre.ops[0] if spec.pre.ops else None
    decode = first if isinstance(first, DecodeImage) else None
    return CutReader(
        reader,
        Original.of(reader, spec.pre.ops),
        "rgb" if decode is not None and decode.color != "bgr" else "bgr",
        decode is not None or hasattr(reader, "facts"),
        tuple(spec.splitters[: number - 1]),
    )


def _split(splitter: Splitter, behind: PipelineSpec) -> Split:
    ops = tuple(behind.pre.ops[1:])
    return Split(splitter, ops, tells_shapes(splitter, ops))


class LegMemory:
    """Adds up the slots of all legs: each by itself may fit where all together do not."""

    def __init__(self, planned: Plan) -> None:
        self._planned = planned
        self._lock = threading.Lock()
        self._plans: dict[int, int] = {}

    def checked(self, number: int) -> Callable[[ModelInfo], SlotPlan]:
        """Return what lays out the slots of the leg of that number.

        Raises:
            BackendError: The slots of all legs do not fit into memory.
        """

        def slots(info: ModelInfo) -> SlotPlan:
            made = self._planned.slots(number, info)
            with self._lock:
                self._plans[number] = made.nbytes
                require_memory(list(self._plans.values()))
            return made

        return slots


def require_memory(sizes: Sequence[int]) -> None:
    """Check that the slots of several legs fit into memory together.

    Raises:
        BackendError: They do not.
    """
    needed, available = sum(sizes), machine.available_memory()
    if needed > MEMORY_SHARE * available:
        raise BackendError(
            f"slots of {len(sizes)} models need {needed / 2**30:.2f} GiB, but only "
            f"{available / 2**30:.2f} GiB of memory are available; "
            "use a smaller batch_size or depth"
        )
