"""A pipeline that answers whoever asks, of one model or of several."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from gepipe.errors import ClosedError
from gepipe.io.jsonl import encode_json
from gepipe.pipeline.assembly import plan
from gepipe.pipeline.crews import make_crews
from gepipe.pipeline.preload import PRELOAD
from gepipe.runtime.forkserver import start_server
from gepipe.serving.chain import ServedChain
from gepipe.serving.leg import Leg, LegPlan
from gepipe.serving.payloads import PayloadMemory, PayloadReader, to_payload
from gepipe.serving.snapshot import Executed, ServiceStatistics
from gepipe.spec.profile import QUEUE, complete

if TYPE_CHECKING:
    from typing_extensions import Self

    from gepipe.io.failures import Failure
    from gepipe.pipeline.assembly import Plan
    from gepipe.runtime.body import ModelInfo
    from gepipe.spec.model import PipelineSpec


class _Route(Protocol):
    """What items go through: a leg, or a chain of them. See `Leg`."""

    @property
    def batch(self) -> int: ...

    def start(self) -> ModelInfo: ...

    def submit(
        self,
        payload: Any,
        *,
        realtime: bool,
        deadline: float,
        answer: Callable[[bytes | Failure], None],
    ) -> int: ...

    def cancel(self, token: int) -> None: ...

    @property
    def is_open(self) -> bool: ...

    def statistics(self) -> ServiceStatistics: ...

    def executed(self) -> list[Executed]: ...

    def close(self, drain_s: float) -> None: ...


class Service:
    """A pipeline with its workers, for as many callers as there are. Close it.

    Attributes:
        devices: The device of each infer worker, one model's after the other's; none before
            `start` has been called.
    """

    def __init__(self, spec: PipelineSpec) -> None:
        """Describe the service; nothing is started yet.

        Args:
            spec: The pipeline. Its source and sink are not used. Its profile says how many items of
                a class may wait; more are refused.
        """
        self.devices: tuple[int, ...] = ()
        self._spec = spec
        self._route: _Route | None = None
        self._memory: PayloadMemory | None = None

    def start(self) -> ModelInfo:
        """Start the workers and wait until all are ready.

        Returns:
            What the first model says of itself; its notes begin with what was chosen.

        Raises:
            GepipeError: A worker does not start, or a model does not open or fit.
        """
        if self._route is not None:
            raise ClosedError("this service was started before; make a new one")
        start_server(PRELOAD)
        planned = plan(self._spec)
        self.devices = tuple(
            options.device for start in planned.starts for options in start.engines
        )
        if len(planned.legs) == 1:  # in a chain, payloads outlive the first pre stage
            self._memory = PayloadMemory()
        self._route = _route_of(planned, self._memory)
        try:
            info = self._route.start()
        except BaseException:
            self.close(0.0)
            raise
        return replace(info, notes=(*planned.notes, *info.notes))

    def submit(
        self,
        payload: Any,
        *,
        realtime: bool = False,
        deadline_s: float | None = None,
        answer: Callable[[bytes | Failure], None],
    ) -> int:
        """Have an item processed. Safe in any thread; does not wait.

        Args:
            payload: What the first operator takes: bytes, or an array.
            realtime: Whether it goes before those that are not.
            deadline_s: Seconds after which the answer is not wanted any more.
            answer: Called exactly once, mostly in the service's thread, with the record as JSON or
                with the failure. Must return soon.

        Returns:
            What to cancel it by.
        """
        deadline = math.inf if deadline_s is None else time.monotonic() + deadline_s
        route, given = self._started(), to_payload(payload)
        if self._memory is not None:
            given, place = self._memory.put(given)
            if place is not None:
                answer = partial(self._answered, place, answer)
        return route.submit(given, realtime=realtime, deadline=deadline, answer=answer)

    def cancel(self, token: int) -> None:
        """Say that an answer is not wanted any more; it is answered as `cancelled`, if not yet."""
        self._started().cancel(token)

    @property
    def batch(self) -> int:
        """Rows of a whole batch of the first model; 0 before `start` has returned."""
        return self._route.batch if self._route is not None else 0

    @property
    def is_open(self) -> bool:
        """Whether items are taken."""
        return self._route is not None and self._route.is_open

    def statistics(self) -> ServiceStatistics:
        """Return a frozen snapshot. Safe in any thread."""
        return self._route.statistics() if self._route is not None else ServiceStatistics()

    def executed(self) -> list[Executed]:
        """Return the executions done since the last call, of every model. For one thread."""
        return self._route.executed() if self._route is not None else []

    def close(self, drain_s: float = 5.0) -> None:
        """Take nothing more, finish what is there, and stop the workers. Closing twice is harmless.

        Args:
            drain_s: Seconds after which what is not finished is answered as `unavailable`.
        """
        if self._route is not None:
            self._route.close(drain_s)
        if self._memory is not None:
            self._memory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _answered(
        self, place: int, answer: Callable[[bytes | Failure], None], result: bytes | Failure
    ) -> None:
        assert self._memory is not None
        self._memory.drop(place)
        answer(result)

    def _started(self) -> _Route:
        if self._route is None:
            raise ClosedError("this service is not started")
        return self._route


def _route_of(planned: Plan, memory: PayloadMemory | None) -> _Route:
    # One slot more for each device, so that each class can leave one to the other.
    wider = replace(
        planned,
        legs=tuple(leg.model_copy(update={"depth": leg.depth + 1}) for leg in planned.legs),
    )
    first = planned.legs[0]
    queue, max_wait_s = complete(first.profile).queue or QUEUE, first.max_wait or 0.0
    if len(planned.legs) > 1:
        return ServedChain(wider, PayloadReader(), encode_json, queue, max_wait_s)
    crews = make_crews(first, planned.starts[0], PayloadReader(), encode_json)
    stage = first.infer.name
    buffer = memory.buffer if memory is not None else None
    return Leg(LegPlan(crews, lambda info: wider.slots(0, info), stage, queue, max_wait_s, buffer))
