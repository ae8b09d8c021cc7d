"""What is settled of a run before its model is open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from gepipe.engines.engine import EngineOptions


@dataclass(frozen=True, slots=True)
class StartPlan:
    """What is known before the model is open.

    Attributes:
        engine: The engine's registered name.
        model: The model file, if there is one.
        engines: How each infer worker opens the model, one element a worker.
        on_cpu: Whether the engine computes on the CPU.
        pre_workers: Pre workers.
        post_workers: Post workers.
        cpus: Processors the plan counts on.
        timeout_s: When the process of an execution that does not end is killed, or None.
        notes: What the user should know about the choices made.
    """

    engine: str
    model: Path | None
    engines: tuple[EngineOptions, ...]
    on_cpu: bool
    pre_workers: int
    post_workers: int
    cpus: int
    timeout_s: float | None
    notes: tuple[str, ...]
