"""Serves a folder of models: checks before the start, the server, its keeper, the end."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gepipe.errors import ConfigError
from gepipe.machine import cache_folder
from gepipe.triton import kit as kits
from gepipe.triton.control import ControlError, library
from gepipe.triton.description import curl_line, described, emulated
from gepipe.triton.health import Health, Report
from gepipe.triton.install import bring_up_to_date
from gepipe.triton.keeper import Keeper
from gepipe.triton.loader import Loader
from gepipe.triton.ports import at, free_ports, reachable
from gepipe.triton.preflight import check_imports, check_shared_memory, check_stub
from gepipe.triton.problem import Describe
from gepipe.triton.reload import ModelFolder, scan
from gepipe.triton.runs import Run, new_run
from gepipe.triton.server import Server, lay_out
from gepipe.triton.serverlog import Follower, told
from gepipe.triton.stopping import Stop
from gepipe.triton.watchdog import Watchdog

_KEPT_LOGS: Final = 10
_TICK_S: Final = 0.2

Say = Callable[[str], None]
FaultsIn = Callable[[], Mapping[str, str]]


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
        backends, link = lay_out(kit, run, options.models)
        faults_in = _linter(options.models, link, backends, describe) if options.lint else _nothing
        _refuse(options.models, faults_in())
        ports = free_ports(options.host, options.ports)
        log = _opened(options.log or _new_log(run))
        with (
            Health(options.host, ports["health"]) as health,
            Server(kit, run, options.models, ports, host=options.host, log=log) as server,
            Loader(server.control, server.pid, stop.bell) as loader,
        ):
            watchdog = Watchdog(options.hang_timeout_s)
            keeper = Keeper(server, options.models, models, loader, watchdog, say)
            changes = faults_in if options.reload else None
            follower = Follower(log, server.log_start)

            def turn() -> None:
                keeper.turn(changes)
                health.report = keeper.report
                lines = follower.lines()
                for line in lines if options.verbose else told(lines):
                    say(f"server: {line}")
                stop.bell.wait(_TICK_S)

            try:
                server.wait_live(stop.bell, stop.is_asked)
                keeper.start()
                while keeper.is_starting and not stop.is_asked():
                    turn()
                if not stop.is_asked():
                    _tell_ready(tell, options, server, kit.version, ports)
                while not stop.is_asked():
                    turn()
                health.report = Report("stopping")
                if not keeper.is_starting:
                    say("stopping: no new requests; those that run come to their end")
                    server.stop(
                        options.stop_timeout_s, stop.bell, say, stop.is_urgent, keeper.attend
                    )
                server.close()
                say("stopped")
            finally:
                server.close()  # a load that hangs comes back by that, and the loader ends


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


def _refuse(repository: Path, faults: Mapping[str, str]) -> None:
    if faults:
        lines = "\n".join(faults.values())
        raise ConfigError(
            f"{repository}: the server would not serve this:\n{lines}\n"
            "`gepipe triton lint --fix` mends what it can; --no-lint serves it as it is"
        )


def _linter(repository: Path, link: Path, backends: Path, describe: Describe | None) -> FaultsIn:
    """Return what tells the faults of models, by name.

    Args:
        repository: The folder of models, as the user knows it.
        link: As the server sees it.
        backends: The server's backends.
        describe: Opens model files.
    """

    def faults() -> Mapping[str, str]:
        from gepipe.triton.lint import lint

        found: dict[str, str] = {}
        for problem in lint(link, backends=backends, describe=describe).problems:
            if problem.level == "error":
                model = problem.path.relative_to(link).parts[0]
                text = str(problem).replace(str(link), str(repository))
                found[model] = f"{found[model]}\n{text}" if model in found else text
        return found

    return faults


def _nothing() -> Mapping[str, str]:
    return {}


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


def _tell_ready(
    tell: Say, options: ServeOptions, server: Server, version: str, ports: Mapping[str, int]
) -> None:
    """Tell what is served, where, and how it is called."""
    host = reachable(options.host)
    url = f"http://{at(host, ports['http'])}"
    try:
        configs = {
            each["name"]: server.control.config(each["name"])
            for each in server.control.index()
            if each.get("state") == "READY"
        }
    except ControlError:  # a model went in this moment, which is told elsewhere
        return
    tell(f"serving {options.models} with Triton {version}".rstrip())
    for line in described(configs):
        tell(line)
    if names := emulated(configs, os.environ.get("GEPIPE_ACL", "")):
        tell(f"  on an emulated NPU, not on a card: {', '.join(names)}")
    metrics = f"http://{at(host, ports['metrics'])}/metrics"
    tell(f"HTTP {url}, gRPC {at(host, ports['grpc'])}, metrics {metrics}")
    tell(f"health http://{at(host, ports['health'])}/readyz, log {server.log}")
    if line := curl_line(url, configs):
        tell(f"try: {line}")
    tell("Ctrl-C stops it")
