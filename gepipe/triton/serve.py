"""Serves a folder of models: what is checked and prepared before the first server starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from gepipe.errors import ConfigError
from gepipe.machine import cache_folder
from gepipe.triton import kit as kits
from gepipe.triton.control import library
from gepipe.triton.faults import FaultsIn, linter, refuse
from gepipe.triton.health import Health
from gepipe.triton.install import bring_up_to_date
from gepipe.triton.options import ServeOptions
from gepipe.triton.ports import free_ports
from gepipe.triton.preflight import check_imports, check_shared_memory, check_stub
from gepipe.triton.problem import Describe
from gepipe.triton.reload import ModelFolder, scan
from gepipe.triton.runs import Run, new_run
from gepipe.triton.server import lay_out
from gepipe.triton.service import Service
from gepipe.triton.stopping import Stop

_KEPT_LOGS: Final = 10

Say = Callable[[str], None]


def serve(options: ServeOptions, tell: Say, say: Say, describe: Describe | None = None) -> None:
    """Serve until a signal asks for the end.

    Args:
        options: What, and how.
        tell: Given what is served, and where.
        say: Given what happens.
        describe: Opens model files, for faults that only they tell.

    Raises:
        ConfigError: Something is wrong that the server would not tell, or tell too late.
        ModelLoadError: A model does not load.
        WorkerError: The server has ended by itself.
    """
    library()
    models = _models_in(options.models)
    kit = kits.find(options.server, options.python)
    bring_up_to_date(kit, say)
    check_stub(kit)
    for hint in (*check_imports(kit), *check_shared_memory()):
        say(hint)
    with Stop() as stop, new_run(say) as run:
        faults_in: FaultsIn = dict
        if options.lint:
            backends, link = lay_out(kit, run, options.models)
            faults_in = linter(options.models, link, backends, describe)
        refuse(options.models, faults_in())
        ports = free_ports(options.host, options.ports)
        log = _opened(options.log or _new_log(run))
        with Health(options.host, ports["health"]) as health:
            service = Service(options, kit, run, ports, log, faults_in, health, stop, tell, say)
            service.serve(models)


def _models_in(repository: Path) -> dict[str, ModelFolder]:
    if not repository.is_dir():
        raise ConfigError(
            f"{repository}: no such folder; expected one that has a folder for each model"
        )
    models = scan(repository)
    if not models:
        raise ConfigError(
            f"{repository}: no model in it; expected folders with a config.pbtxt, such as "
            "`gepipe triton export` writes"
        )
    return models


def _opened(log: Path) -> Path:
    """Return a log that can be written."""
    try:
        log.open("ab").close()
    except OSError as error:
        reason = (error.strerror or "").lower()
        raise ConfigError(f"--log {log}: {reason}; expected a file that can be written") from error
    return log


def _new_log(run: Run) -> Path:
    """Return where the log of a run goes, and remove those of runs long ago."""
    folder = cache_folder("triton") / "logs"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        old = sorted(folder.glob("*.log*"), key=lambda path: path.stat().st_mtime)
        for path in old[:-_KEPT_LOGS]:
            path.unlink()
    except OSError as error:
        raise ConfigError(f"{folder}: {error.strerror}; name another place with --log") from error
    return folder / f"{run.folder.name}.log"
