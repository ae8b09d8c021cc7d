"""What `gepipe triton serve` is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ServeOptions:
    """What to serve, and how.

    Attributes:
        models: The folder of models.
        server: Where Triton is; see `kit.find`.
        python: The Python of the stubs; see `kit.find`.
        host: The address to listen on.
        ports: `http`, `grpc`, `metrics` and `health`; 0 takes any that is free.
        log: Where the server's own log goes; by default into the user's cache.
        verbose: Whether to show that log too.
        lint: Whether to look for faults before the start.
        reload: Whether to take in what changes in the folder.
        hang_timeout_s: A model that answers no waiting request for this long is loaded again.
        stop_timeout_s: How long requests may take to end when it is asked to stop.
    """

    models: Path
    server: Path | None
    python: str | None
    host: str
    ports: Mapping[str, int]
    log: Path | None
    verbose: bool
    lint: bool
    reload: bool
    hang_timeout_s: float
    stop_timeout_s: float
