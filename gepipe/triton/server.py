"""One process tritonserver: its backend folder, its start, its end."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from typing_extensions import Self

from gepipe import bundle
from gepipe.errors import ConfigError, WorkerError, WorkerStartError, reason_of
from gepipe.triton.bell import Bell
from gepipe.triton.control import Control, ControlError
from gepipe.triton.kit import STUB, UTILS, Kit
from gepipe.triton.ports import at, reachable
from gepipe.triton.rest import Rest, Work
from gepipe.triton.runs import Run
from gepipe.triton.serverlog import last_complaint

_LIVE_S: Final = 60.0
_TICK_S: Final = 0.05
_EXIT_S: Final = 3  # for answers on their way; idle connections of clients use it up too
_REST_S: Final = 1.0  # without any work: requests of an ensemble that has lost a step are lost
_STUBS_LEAVE_S: Final = 2.5  # what orphaned stubs need to notice, and to remove their regions
_WAITING: Final = re.compile(
    r'^(?:nv_inference_pending_request_count|gepipe_open_requests)\{(?:[^}]*,)?model="([^"]+)"'
    r"[^}]*\} (\S+)$",
    re.MULTILINE,
)
#: Starts the server so that it ends with the process that started it, however that ends.
_LAUNCH: Final = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


class Server:
    """A running tritonserver without models; they are loaded through its control.

    The process ends with the thread that made it. Leaving the context stops it.

    Args:
        kit: What it is started from.
        run: Its folder.
        repository: The folder of models.
        ports: `http`, `grpc` and `metrics` to a port that is free; see `free_ports`.
        host: The address that it listens on.
        log: Where what it and its models print is added to; in the run's folder by default.
        options: Further words for its command.
    """

    def __init__(  # noqa: PLR0913 - what a server is made of
        self,
        kit: Kit,
        run: Run,
        repository: Path,
        ports: Mapping[str, int],
        *,
        host: str = "127.0.0.1",
        log: Path | None = None,
        options: tuple[str, ...] = (),
    ) -> None:
        self.kit = kit
        self.run = run
        self.ports = dict(ports)
        self.host = host
        self.log = log or run.folder / "server.log"
        self.control = Control(reachable(host), ports["http"], ports["grpc"])
        #: Models with a dead instance, which never come to an end by themselves.
        self.dead: set[str] = set()
        #: Ensembles of which a step has died, and their steps: requests in them may have no end.
        self.bereft: set[str] = set()
        backends, models = lay_out(kit, run, repository)
        plain = f"ipv6:{host}" if ":" in host else host  # else HTTP listens on 255.255.255.255
        command = [
            str(kit.server),
            f"--model-repository={models}",
            f"--backend-directory={backends}",
            "--model-control-mode=explicit",
            f"--http-address={plain}",
            f"--grpc-address={at(host, 0)[:-2]}",
            f"--metrics-address={plain}",
            f"--http-port={ports['http']}",
            f"--grpc-port={ports['grpc']}",
            f"--metrics-port={ports['metrics']}",
            f"--exit-timeout-secs={_EXIT_S}",
            f"--backend-config=python,shm-region-prefix-name={run.prefix}",
            *options,
        ]
        launch = [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), *command]
        with self.log.open("ab") as output:
            self.log_start = output.tell()
            self._process = subprocess.Popen(  # noqa: S603 - Triton's program
                launch,
                env=kit.environ(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=run.folder,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def check(self) -> None:
        """Do nothing while it runs.

        Raises:
            WorkerError: It has ended.
        """
        code = self._process.poll()
        if code is not None:
            raise WorkerError(f"tritonserver: {_ended(code)}; {self._last_words()}")

    def waiting(self) -> dict[str, int]:
        """Return how many requests wait for each model, or are in one that answers later.

        Raises:
            ControlError: It does not answer.
        """
        found: dict[str, int] = {}
        for model, count in _WAITING.findall(self.control.metrics(self.ports["metrics"])):
            found[model] = found.get(model, 0) + int(float(count))
        return found

    def wait_live(self, bell: Bell, is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Wait until it answers, or until `is_stopped` says so.

        Raises:
            WorkerStartError: It ended, or did not answer in time.
        """
        end = time.monotonic() + _LIVE_S
        while not is_stopped():
            code = self._process.poll()
            if code is not None:
                raise WorkerStartError(
                    f"tritonserver: it does not start: {_ended(code)}; {self._last_words()}"
                )
            if self.control.is_live():
                return
            if time.monotonic() > end:
                raise WorkerStartError(
                    f"tritonserver: no answer within {_LIVE_S:.0f} s; {self._last_words()}"
                )
            bell.wait(_TICK_S)

    def stop(
        self,
        timeout_s: float,
        bell: Bell,
        say: Callable[[str], None] = lambda _: None,
        is_hurried: Callable[[], bool] = lambda: False,
        attend: Callable[[], None] = lambda: None,
    ) -> None:
        """Let requests come to their end, and end it.

        A model that is being unloaded takes no new request and finishes those it has. Ensembles go
        first, because a request in an ensemble needs the models below.

        Args:
            timeout_s: The longest it may take; then it is ended, whatever it does.
            bell: Rings when something has happened.
            say: Told what did not end well.
            is_hurried: Whether to end it at once.
            attend: Looks after its processes meanwhile.
        """
        end = time.monotonic() + timeout_s

        def is_over() -> bool:
            attend()
            return self._process.poll() is not None or is_hurried() or time.monotonic() > end

        drained = self._drain(bell, is_over)
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            # Nothing is lost any more: what it waits for are idle connections, or dead instances.
            patience = time.monotonic() + (_EXIT_S + 1 if drained or self.dead else timeout_s)
            while not is_over() and time.monotonic() < patience:
                bell.wait(_TICK_S)
            hurried = is_hurried()
            if self._process.poll() is None and not (drained or self.dead or hurried):
                say(f"requests did not end within {timeout_s:g} s; the server is killed")
        self.close()

    def close(self) -> None:
        """End it at once, and its stubs if they do not leave by themselves.

        A stub holds the server's sockets: whoever calls would wait for an answer as long as it is
        there.
        """
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        end = time.monotonic() + _STUBS_LEAVE_S
        with Bell() as pause:
            while self.run.processes() and time.monotonic() < end:
                pause.wait(_TICK_S)
        self.run.clean()

    def _drain(self, bell: Bell, is_over: Callable[[], bool]) -> bool:
        """Unload all models; return whether all came to an end in time."""
        try:
            loaded = {each["name"] for each in self.control.index() if each.get("state")}
            ensembles = {name for name in loaded if self._is_ensemble(name)}
            rest = Rest(_REST_S)
            for group in (ensembles, loaded - ensembles):
                for name in group:
                    self.control.unload(name)
                while busy := self._busy() & (group - self.dead):
                    if is_over():
                        return False
                    if busy <= self.bereft and rest.lasts(time.monotonic(), self._work()):
                        break
                    bell.wait(_TICK_S)
        except ControlError:
            return False
        return True

    def _is_ensemble(self, name: str) -> bool:
        try:
            return self.control.config(name).get("platform") == "ensemble"
        except ControlError:  # not ready
            return False

    def _busy(self) -> set[str]:
        index = self.control.index()
        return {e["name"] for e in index if e.get("state") in ("READY", "LOADING", "UNLOADING")}

    def _work(self) -> Work:
        """Return what the models have done and have still to do, but for those with no end."""
        waiting = sum(n for name, n in self.waiting().items() if name not in self.dead)
        return waiting, sum(
            each["inference_stats"][end]["count"]
            for each in self.control.statistics()
            for end in ("success", "fail")
        )

    def _last_words(self) -> str:
        found = last_complaint(self.log, self.log_start)
        said = f"it says: {found}; " if found else ""
        return f"{said}its log: {self.log}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def lay_out(kit: Kit, run: Run, repository: Path) -> tuple[Path, Path]:
    """Prepare a run's folder, unless that is done.

    Args:
        kit: Gives the backend `python`; the backend `ge` is ours.
        run: Whose folder.
        repository: The folder of models.

    Returns:
        The folder of backends, and a path of the repository without spaces, which Triton does not
        quote.

    Raises:
        ConfigError: There is no room for it.
    """
    backends, models = run.folder / "backends", run.folder / "models"
    if models.is_symlink():
        return backends, models
    try:
        python = backends / "python"
        python.mkdir(parents=True)
        for file in ("libtriton_python.so", UTILS):
            shutil.copyfile(kit.backend / file, python / file)
        # A copy, because the server takes its permissions away when it does not start.
        shutil.copy(kit.stub, python / STUB)
        own = bundle.folder("backend") / "ge"
        shutil.copytree(own, backends / "ge", ignore=shutil.ignore_patterns("__pycache__"))
        models.symlink_to(repository.absolute())  # not resolved: it may be a link that changes
    except OSError as error:
        raise ConfigError(
            f"{run.folder}: {reason_of(error)}; set TMPDIR to a folder with room for some MiB"
        ) from error
    return backends, models


def _ended(code: int) -> str:
    if code >= 0:
        return f"it ended with status {code}"
    try:
        return f"it was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"it was ended by signal {-code}"
