"""Several models that answer whoever asks: a leg for each, a join, and a thread between them.

submit, cancel ──▶ inbox ──┬─▶ events ─▶ ChainState ─▶ commands ─┬─▶ items and parts to legs
answers of the legs ───────┘                                    └─▶ answers to callers
"""

from __future__ import annotations

import logging
import math
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from gepipe.errors import GepipeError
from gepipe.io.failures import Failure
from gepipe.pipeline.assembly import LegMemory, join_crew, leg_crews
from gepipe.pipeline.chain import together
from gepipe.pipeline.payloadstore import PayloadStore
from gepipe.runtime.memory import SlotLayout
from gepipe.runtime.options import SlotPlan
from gepipe.serving.answers import Answers
from gepipe.serving.chainevents import Hold, Submit, Told, Withdraw
from gepipe.serving.chainstate import ChainState
from gepipe.serving.events import Answer, Arrived, Cancelled, Drain, Refusal
from gepipe.serving.kinds import UNAVAILABLE
from gepipe.serving.leg import Leg, LegPlan
from gepipe.serving.payloads import stored
from gepipe.serving.snapshot import Executed, ServiceStatistics

if TYPE_CHECKING:
    from gepipe.io.source import Reader
    from gepipe.pipeline.assembly import Plan
    from gepipe.runtime.body import ModelInfo
    from gepipe.serving.chainevents import Command, Event

log = logging.getLogger(__name__)


class ServedChain:
    """Owns the legs of a pipeline of several models; has the interface of one."""

    def __init__(
        self,
        planned: Plan,
        reader: Reader,
        encode: Callable[..., bytes],
        queue: int,
        max_wait_s: float,
    ) -> None:
        """Describe the legs; nothing is started yet.

        Args:
            planned: The pipeline.
            reader: Reads payloads.
            encode: Makes a record of a result.
            queue: Items of a class that may wait; more are refused.
            max_wait_s: How long a batch that is not full waits for more although a device is free.
        """
        spec = planned.spec
        memory = LegMemory(planned)
        self._names = [leg.infer.name for leg in planned.legs]
        self._models = [
            Leg(
                LegPlan(
                    crews,
                    memory.checked(number),
                    self._names[number],
                    sys.maxsize if number else queue,
                    max_wait_s,
                )
            )
            for number, crews in enumerate(leg_crews(planned, reader))
        ]
        joiners = join_crew(planned, reader, encode)
        none = SlotLayout.of((), 1)
        slots = SlotPlan(none, none, 2 * len(joiners.bodies) + 2)
        self._legs = [
            *self._models,
            Leg(LegPlan({"pre": joiners}, lambda _: slots, joiners.name, sys.maxsize)),
        ]
        self._places = [len(start.engines) for start in planned.starts]
        self._state = ChainState([each.single for each in spec.splitters], spec.pre.name)
        self._answers = Answers(spec.infer.name)
        self._store = PayloadStore()
        self._inbox: SimpleQueue[Event | None] = SimpleQueue()
        self._tokens: dict[int, tuple[Leg, int]] = {}
        self._is_started = self._ended = self._draining = False
        self._idle = threading.Event()
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="gepipe chain", daemon=True)

    # --- for the caller ---------------------------------------------------------------------------

    @property
    def batch(self) -> int:
        """Rows of a whole batch of the first model."""
        return self._legs[0].batch

    def start(self) -> ModelInfo:
        """Start the workers of all legs and wait until they are ready; see `Leg.start`."""
        infos = self._start_legs()
        self._thread.start()
        self._is_started = True
        notes = together({name: info.notes for name, info in zip(self._names, infos, strict=False)})
        return replace(infos[0], notes=notes)

    def submit(
        self,
        payload: Any,
        *,
        realtime: bool = False,
        deadline: float = math.inf,
        answer: Callable[[bytes | Failure], None],
    ) -> int:
        """Have an item processed; see `Leg.submit`."""
        seq = self._answers.expect(answer)
        if self._is_started and not self.is_open:  # a leg has ended: nothing would come of it
            self._refuse(seq)
            return seq
        self._put(Arrived(seq, payload, realtime, deadline))
        if self._ended:
            self._refuse()
        return seq

    def cancel(self, token: int) -> None:
        """Say that an answer is not wanted any more; it is answered as `cancelled`, if not yet."""
        self._put(Cancelled(token))

    @property
    def is_open(self) -> bool:
        """Whether items are taken."""
        started = self._is_started and not self._ended
        return started and all(leg.is_open for leg in self._legs)

    def statistics(self) -> ServiceStatistics:
        """Return a frozen snapshot. Safe in any thread."""
        legs = [leg.statistics() for leg in self._legs]
        restarts: Counter[str] = Counter()
        for each in legs:
            restarts.update(each.restarts)
        return ServiceStatistics(
            in_work=legs[0].in_work + self._state.behind,
            done=self._state.done,
            failures=dict(self._state.failures),
            restarts=restarts,
        )

    def executed(self) -> list[Executed]:
        """Return the executions done since the last call. For one thread."""
        found, first = [], 0
        for leg, places in zip(self._models, self._places, strict=True):
            found += [each._replace(place=first + each.place) for each in leg.executed()]
            first += places
        return found

    def close(self, drain_s: float = 5.0) -> None:
        """Take nothing more, finish what is there, and stop the workers; see `Leg.close`."""
        with self._closing:
            if self._thread.is_alive():
                self._put(Drain())
                self._idle.wait(drain_s)
            self._close_legs()
            if self._thread.is_alive():
                self._inbox.put(None)
                self._thread.join()
            self._ended = True
            self._store.close()
            self._refuse()

    # --- the thread -------------------------------------------------------------------------------

    def _put(self, event: Event) -> None:
        self._inbox.put(event)

    def _run(self) -> None:
        try:
            while (event := self._inbox.get()) is not None:
                self._draining = self._draining or isinstance(event, Drain)
                if isinstance(event, Told):
                    del self._tokens[event.key]
                    event = self._with_payload(event)
                for command in self._state.handle(event):
                    self._perform(command)
                if self._draining and not len(self._state):
                    self._idle.set()
        except BaseException:
            log.exception("the service has ended")
        finally:
            self._ended = True
            self._idle.set()
            self._refuse()

    def _with_payload(self, event: Told) -> Told:
        """Put an item's input where the workers of later models find it."""
        if event.payload is None or isinstance(event.result, Failure):
            return event
        seq = self._state.wanted(event.key)
        if seq is None:
            return event
        try:
            return replace(event, payload=stored(event.payload, partial(self._store.put, seq)))
        except (GepipeError, OSError) as error:
            return Told(event.key, Failure(seq, "", self._names[0], UNAVAILABLE, str(error)))

    def _perform(self, command: Command) -> None:
        match command:
            case Submit(number, key, _, payload, shapes, realtime, deadline):
                leg = self._legs[number]
                answer = partial(self._told, key, None if number else payload)
                token = leg.submit(
                    payload, realtime=realtime, deadline=deadline, shapes=shapes, answer=answer
                )
                self._tokens[key] = leg, token
            case Withdraw(key):
                leg, token = self._tokens[key]
                leg.cancel(token)
            case Hold(number, on):
                self._legs[number].hold(on=on)
            case Answer(seq, result):
                self._store.drop(seq)
                self._answers.give(seq, result)

    def _told(self, key: int, payload: Any, result: bytes | Failure) -> None:
        self._put(Told(key, result, payload))

    def _refuse(self, seq: int | None = None) -> None:
        """Answer all who still wait, or one who has just come: the service has ended."""
        ended = (leg.why_ended for leg in self._legs if not leg.is_open)
        why = next(ended, "the service has stopped")
        if seq is None:
            self._answers.refuse(why)
        else:
            self._answers.give(seq, Refusal(seq, "", self._names[0], UNAVAILABLE, why))

    # --- beginning and end ------------------------------------------------------------------------

    def _start_legs(self) -> list[ModelInfo]:
        """Start all legs at once; if one does not, none goes on."""
        error: BaseException | None = None
        with ThreadPoolExecutor(len(self._legs)) as pool:
            starts = [pool.submit(leg.start) for leg in self._legs]
            for start in as_completed(starts):
                if error is None and (error := start.exception()) is not None:
                    self._close_legs()
        if error is not None:
            self._ended = True
            self._refuse()
            raise error
        return [start.result() for start in starts]

    def _close_legs(self) -> None:
        with ThreadPoolExecutor(len(self._legs)) as pool:
            list(pool.map(lambda leg: leg.close(0.0), self._legs))
