"""Servers of a folder of models: when one ends by itself, another takes its place."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gepipe.errors import GepipeError, WorkerError
from gepipe.triton.control import ControlError
from gepipe.triton.deaths import Deaths
from gepipe.triton.description import curl_line, described, emulated
from gepipe.triton.faults import FaultsIn
from gepipe.triton.health import Health, Report
from gepipe.triton.keeper import Keeper
from gepipe.triton.kit import Kit
from gepipe.triton.loader import Loader
from gepipe.triton.options import ServeOptions
from gepipe.triton.ports import at, reachable
from gepipe.triton.reload import ModelFolder, scan
from gepipe.triton.runs import Run
from gepipe.triton.server import Server
from gepipe.triton.serverlog import Follower, told
from gepipe.triton.stopping import Stop
from gepipe.triton.watchdog import Watchdog

_TICK_S: Final = 0.2

Say = Callable[[str], None]


@dataclass
class Service:
    """What the servers of one command have in common.

    Attributes:
        options: What to serve, and how.
        kit: What a server is started from.
        run: Their folder.
        ports: `http`, `grpc`, `metrics` and `health`, free.
        log: Where a server's log is added to.
        faults_in: Tells which models must not be loaded.
        health: Tells how things are.
        stop: Tells when to end.
        tell: Given what is served, and where.
        say: Given what happens.
        has_served: Whether all models have been loaded once.
    """

    options: ServeOptions
    kit: Kit
    run: Run
    ports: Mapping[str, int]
    log: Path
    faults_in: FaultsIn
    health: Health
    stop: Stop
    tell: Say
    say: Say
    has_served: bool = False

    def serve(self, models: Mapping[str, ModelFolder]) -> None:
        """Serve until a signal asks for the end.

        Args:
            models: What there is.

        Raises:
            ModelLoadError: A model does not load.
            WorkerError: The first server did not come to serve, or they end again and again.
        """
        deaths = Deaths()
        while not self.stop.is_asked():
            began = time.monotonic()
            try:
                self._serve_once(models, began)
            except WorkerError as error:
                delay_s = deaths.add(time.monotonic())
                if self.stop.is_asked():
                    self.say(f"{error}")
                    break
                if not self.has_served or delay_s is None:
                    raise
                when = f" in {delay_s:.0f} s" if delay_s else ""
                self.say(f"{error}; starting a server again{when}")
                self._rest(delay_s)
                models = self._healthy() or models
        self.say("stopped")

    def _serve_once(self, models: Mapping[str, ModelFolder], began: float) -> None:
        """Serve with one server, until a signal asks for the end."""
        options, stop = self.options, self.stop
        with (
            Server(
                self.kit, self.run, options.models, self.ports, host=options.host, log=self.log
            ) as server,
            Loader(server.control, server.pid, stop.bell) as loader,
        ):
            watchdog = Watchdog(options.hang_timeout_s)
            keeper = Keeper(server, options.models, models, loader, watchdog, self.say)
            follower = Follower(self.log, server.log_start)

            def turn() -> None:
                keeper.turn(self.faults_in if options.reload else None)
                if not (self.has_served and keeper.is_starting):
                    self.health.report = keeper.report
                lines = follower.lines()
                for line in lines if options.verbose else told(lines):
                    self.say(f"server: {line}")
                stop.bell.wait(_TICK_S)

            try:
                server.wait_live(stop.bell, stop.is_asked)
                keeper.start(all_or_none=not self.has_served)
                while keeper.is_starting and not stop.is_asked():
                    turn()
                if not stop.is_asked():
                    self._tell_ready(server, began)
                while not stop.is_asked():
                    turn()
                self.health.report = Report("stopping")
                if not keeper.is_starting:
                    self.say("stopping: no new requests; those that run come to their end")
                    server.stop(
                        options.stop_timeout_s, stop.bell, self.say, stop.is_urgent, keeper.attend
                    )
            except WorkerError:  # said before the end of its stubs, which takes seconds
                self.health.report = Report("restarting", dict.fromkeys(models, "loading"))
                raise
            finally:
                server.close()  # a load that hangs comes back by that, and the loader ends

    def _healthy(self) -> dict[str, ModelFolder]:
        """Return the models that may be loaded; those that may not do not keep others down."""
        try:
            faults = self.faults_in()
        except GepipeError:  # files move while they are read
            return {}
        if not self.options.reload:  # else the keeper says so
            for name, why in faults.items():
                self.say(f"model {name}: does not load: {why}")
        return {
            name: model
            for name, model in scan(self.options.models).items()
            if not {name, *model.steps} & faults.keys()
        }

    def _rest(self, delay_s: float) -> None:
        """Wait, unless a signal asks for the end."""
        end = time.monotonic() + delay_s
        while not self.stop.is_asked() and time.monotonic() < end:
            self.stop.bell.wait(end - time.monotonic())

    def _tell_ready(self, server: Server, began: float) -> None:
        """Tell what is served, where, and how it is called; the first time only."""
        if self.has_served:
            self.say(f"a new server serves after {time.monotonic() - began:.1f} s")
            return
        self.has_served = True
        options, ports, tell = self.options, self.ports, self.tell
        host = reachable(options.host)
        url = f"http://{at(host, ports['http'])}"
        configs: dict[str, dict[str, Any]]
        try:
            configs = {
                each["name"]: server.control.config(each["name"])
                for each in server.control.index()
                if each.get("state") == "READY"
            }
        except ControlError:  # a model went in this moment, which is told elsewhere
            configs = {}
        tell(f"serving {options.models} with Triton {self.kit.version}".rstrip())
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
