"""Tries the first inputs before the start, through all stages of a pipeline."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from gepipe.errors import ConfigError, Interrupted
from gepipe.io.failures import Failure
from gepipe.pipeline.assembly import assemble
from gepipe.pipeline.chain import Chain
from gepipe.pipeline.objects import to_bytes
from gepipe.pipeline.tally import PartTally
from gepipe.runtime.feed import ListedFeed
from gepipe.runtime.options import Start

if TYPE_CHECKING:
    from gepipe.io.source import Source
    from gepipe.pipeline.assembly import Plan
    from gepipe.runtime.events import Outcome
    from gepipe.runtime.supervisor import Supervisor

#: Inputs that are looked at.
_TRIED: Final = 8
#: Kinds of failures that lie in the pipeline if all inputs meet them; others may lie in the inputs.
_OURS: Final = ("shape", "meta", "parts", "nan", "result", "crash", "timeout")
#: How long it may take until what has been found so far must do.
_LIMIT_S: Final = 60.0


@dataclass
class Rehearsal:
    """What became of the first inputs.

    Attributes:
        splits: Whether the pipeline splits them into parts.
        tried: How many were.
        signs: Those of them that failed for what lies in the pipeline.
        good: How many have a result.
        parts: Parts of these.
    """

    splits: bool
    tried: int = 0
    signs: list[Failure] = field(default_factory=list)
    good: int = 0
    parts: PartTally = field(default_factory=PartTally)

    def see(self, outcomes: Sequence[Outcome]) -> None:
        """Take what became of some."""
        for outcome in outcomes:
            self.tried += 1
            if not isinstance(outcome, Failure):
                self.good += 1
            elif _lies_in_the_pipeline(outcome):
                self.signs.append(outcome)

    @property
    def is_fine(self) -> bool:
        """Whether an input came through, with a part that did where there are any."""
        return bool(self.good and (self.parts.good or not self.splits))

    def require_success(self) -> None:
        """Check that what was tried is no sign of what all the others will meet.

        Raises:
            ConfigError: It is.
        """
        if not self.good and self.signs:
            first = self.signs[0]
            which = "the first input fails"
            if self.tried > 1:
                which = f"the first {self.tried} inputs all fail"
            raise ConfigError(f"{first.stage}: {which}: {first.source}: {first.error}")
        if self.parts.failed and not self.parts.good:
            of = f"the first {self.tried} inputs" if self.tried > 1 else "the first input"
            raise ConfigError(f"every part of {of} fails: {self.parts.first_failed}")


def rehearse(planned: Plan, source: Source) -> str:
    """Send the first inputs through a pipeline: one and, if that tells too little, some more.

    Returns:
        What the user should know; nothing if all stages were tried and work.

    Raises:
        ConfigError: None comes through, and that does not lie in the inputs.
        GepipeError: The pipeline does not work at all.
    """
    entries = tuple(islice(source.entries(), _TRIED))
    found = Rehearsal(splits=bool(planned.spec.mids))
    with assemble(_lean(planned), source.reader, to_bytes) as supervisor, _limited(supervisor):
        for portion in filter(None, (entries[:1], entries[1:])):
            feed = ListedFeed(iter(portion), len(portion))
            try:
                supervisor.run(partial(_start, feed), found.see)
            except Interrupted:
                found.require_success()
                return f"the first {len(entries)} inputs take more than {_LIMIT_S:g} s to be tried"
            if isinstance(supervisor, Chain):
                found.parts.add(supervisor.parts)
            if found.is_fine:
                return ""
    found.require_success()
    if not found.good:
        return ""  # what is wrong with these inputs says nothing about the pipeline
    return f"no part was found in the first {len(entries)} inputs: what comes behind was not tried"


def _start(feed: ListedFeed, _: int) -> Start:
    return Start(feed)


def _lean(planned: Plan) -> Plan:
    """Return a plan with one worker of a kind: there is little to do."""
    starts = tuple(
        replace(start, pre_workers=1, post_workers=1, engines=start.engines[:1])
        for start in planned.starts
    )
    return replace(planned, starts=starts, join_workers=1)


@contextmanager
def _limited(supervisor: Chain | Supervisor) -> Iterator[None]:
    timer = threading.Timer(_LIMIT_S, supervisor.request_stop)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def _lies_in_the_pipeline(failure: Failure) -> bool:
    """Whether an input's failure is a sign of what others will meet, too."""
    return failure.kind in _OURS or not failure.kind.islower()  # the latter: user code raised
