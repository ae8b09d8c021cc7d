"""What the tests of models in a real Triton server share: calls, metrics, and its processes."""

from __future__ import annotations

import json
import os
import signal
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tritonclient import grpc

from gepipe.triton.bell import Bell
from gepipe.triton.ports import free_ports
from gepipe.triton.runs import new_run
from gepipe.triton.server import Server
from tests.support import children_of, family_of, is_alive, wait_until

if TYPE_CHECKING:
    from gepipe.triton.kit import Kit


@contextmanager
def serving(kit: Kit, repository: Path) -> Iterator[Server]:
    """Serve every model of a repository; nothing may be left when that is over."""
    ports = free_ports("127.0.0.1", dict.fromkeys(("http", "grpc", "metrics"), 0))
    with Bell() as bell, new_run() as run, Server(kit, run, repository, ports) as started:
        started.wait_live(bell)
        for path in sorted(repository.iterdir()):
            started.control.load(path.name)
        yield started
        family = family_of(started.pid)
        started.stop(20, bell)
        assert not run.regions()
        wait_until(lambda: not any(map(is_alive, family)))


def texts(name: str, rows: list[bytes]) -> grpc.InferInput:
    array = np.array(rows, object).reshape(-1, 1)
    tensor = grpc.InferInput(name, list(array.shape), "BYTES")
    tensor.set_data_from_numpy(array)
    return tensor


def over_grpc(server: Server, model: str, name: str, rows: list[bytes]) -> list[Any]:
    client = grpc.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}")
    result = client.infer(model, [texts(name, rows)], client_timeout=120)
    client.close()
    return records(result)


def over_http(server: Server, model: str, name: str, rows: list[bytes]) -> list[Any]:
    data = b"".join(len(each).to_bytes(4, "little") + each for each in rows)
    tensor = {"name": name, "shape": [len(rows), 1], "datatype": "BYTES",
              "parameters": {"binary_data_size": len(data)}}  # fmt: skip
    head = json.dumps({"inputs": [tensor]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head)), "Connection": "close"}
    url = f"http://127.0.0.1:{server.ports['http']}/v2/models/{model}/infer"
    request = urllib.request.Request(url, head + data, headers)
    with urllib.request.urlopen(request, timeout=120) as reply:
        (output,) = json.load(reply)["outputs"]
    return [json.loads(each) for each in output["data"]]


def records(result: Any) -> list[Any]:
    return [json.loads(each) for each in result.as_numpy("RESULT")[:, 0]]


class Client:
    """Calls over gRPC that go on at once."""

    def __init__(self, server: Server, name: str = "INPUT") -> None:
        self._name = name
        self.library = grpc.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}")
        self._changed = threading.Condition()
        self.given: dict[int, Any] = {}
        self.order: list[int] = []

    def ask(self, model: str, *rows: bytes, **more: Any) -> tuple[int, Any]:
        number = len(self.given)
        self.given[number] = None
        more = {"client_timeout": 150, **more}
        return number, self.library.async_infer(
            model, [texts(self._name, list(rows))], partial(self._take, number), **more
        )

    def _take(self, number: int, result: Any, error: Any) -> None:
        with self._changed:
            self.given[number] = error or records(result)
            self.order.append(number)
            self._changed.notify_all()

    def wait(self, *calls: tuple[int, Any], deadline_s: float = 150.0) -> list[Any]:
        wanted = [number for number, _ in calls] or list(self.given)
        with self._changed:
            assert self._changed.wait_for(
                lambda: all(self.given[n] is not None for n in wanted), deadline_s
            )
        return [self.given[number] for number in wanted]


def metric(server: Server, name: str, **labels: str) -> float:
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    return sum(
        float(line.rpartition(" ")[2])
        for line in server.control.metrics(server.ports["metrics"]).splitlines()
        if line.startswith(f"{name}{{") and all(each in line for each in wanted)
    )


def stub_of(server: Server, model: str) -> int:
    """Return the process in which the server runs a model."""
    (stub,) = [
        pid for pid in family_of(server.pid)
        if f"/{model}/1/model.py" in Path(f"/proc/{pid}/cmdline").read_bytes().decode()
    ]  # fmt: skip
    return stub


def workers_of(server: Server, model: str) -> set[int]:
    """Return the worker processes behind a model: children of its fork server."""
    return {child for each in children_of(stub_of(server, model)) for child in children_of(each)}


@contextmanager
def held(*workers: int) -> Iterator[None]:
    """Stop processes of models, so that what is asked meanwhile waits until they are let go."""
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)
    try:
        yield
    finally:
        for worker in workers:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGCONT)


def memory_mib(pid: int) -> float:
    """Return the memory that a process has to itself."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("RssAnon")]
    return int(line.split()[1]) / 1024
