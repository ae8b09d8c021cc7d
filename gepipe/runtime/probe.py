"""Setting a worker up without giving it work: what `gepipe check` and `gepipe plan` look with."""

from __future__ import annotations

import selectors
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from gepipe.errors import GepipeError, WorkerStartError
from gepipe.runtime.body import ModelInfo
from gepipe.runtime.events import WorkerId
from gepipe.runtime.process import WorkerProcess, set_up_error, stop

if TYPE_CHECKING:
    from gepipe.runtime.events import Role

_GRACE_S: Final = 1.5

#: What an infer worker says of its model, None of the others, or why it did not get ready.
Said: TypeAlias = "ModelInfo | GepipeError | None"


def set_up(
    workers: Sequence[tuple[Role, bytes]],
    *,
    environ: Mapping[str, str],
    timeout_s: float = 300.0,
) -> list[Said]:
    """Start each worker in its own process, let it set itself up, and end it.

    Args:
        workers: Role and pickled body of each; see `gepipe.runtime.options.Crew`.
        environ: Environment variables that they must have as they are now.
        timeout_s: Limit for all of them together.

    Returns:
        For each what it said: of an infer worker its model, of others None, or why it failed.
    """
    outcomes: list[Said] = [None] * len(workers)
    open_count: dict[str, int] = {}
    processes: list[WorkerProcess] = []
    selector = selectors.DefaultSelector()
    try:
        for place, (role, body) in enumerate(workers):
            worker = WorkerId(role, open_count.setdefault(role, 0))
            open_count[role] += 1
            processes.append(WorkerProcess(worker, place, body, environ))
        waiting = set(range(len(processes)))
        for place, process in enumerate(processes):
            selector.register(process.channel, selectors.EVENT_READ, place)
            selector.register(process.process.sentinel, selectors.EVENT_READ, place)
        deadline = time.monotonic() + timeout_s
        while waiting:
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                for place in waiting:
                    outcomes[place] = WorkerStartError(
                        f"{processes[place].worker} did not become ready within {timeout_s:g} s"
                    )
                break
            for place in {key.data for key, _ in ready} & waiting:
                if said := _said(processes[place]):
                    (outcomes[place],) = said
                    waiting.discard(place)
                    selector.unregister(processes[place].channel)
                    selector.unregister(processes[place].process.sentinel)
    finally:
        selector.close()
        stop(processes, grace_s=_GRACE_S)
    return outcomes


def _said(process: WorkerProcess) -> tuple[Said] | None:
    """Return what a worker said of its set-up; None if it has said nothing yet."""
    for message in process.channel.receive():
        match message:
            case ("ready", info):
                return (None if info is None else ModelInfo.from_plain(info),)
            case ("failed", kind, text, trace):
                return (set_up_error(kind, text, trace),)
    if process.ending is None:
        return None
    return (WorkerStartError(f"{process.worker} {process.ending} during set-up"),)
