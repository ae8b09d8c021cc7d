"""The JPEG job behind a Triton server: our two layouts, the ensemble written by hand, a local run.

64 clients send photos of 1280x720, each its next one as soon as it has an answer. The card is the
emulated one of `ge_throughput`, which only takes time: 61.5 ms for 32 photos, 520 a second.
"""

from __future__ import annotations

import json
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness
import media
import triton_handwritten
from harness import Figure
from load import Answer, Call, Load

NAME = "triton_serving"
CLIENTS = 64
PHOTOS = 512  # different ones
COUNT = 6000  # requests of a trial
WARM = 600
BATCH_S = 0.0615
_PIPELINE = """
pipeline:
  name: photos
  stages:
    - name: preprocess
      batch_size: 32
      ops:
        - decode_image: {{color: rgb}}
        - resize: {{short_side: 256}}
        - center_crop: {{size: [224, 224]}}
        - normalize: {{mean: 127, std: 128}}
        - to_tensor: {{layout: nchw}}
    - name: inference
      model: {model}
      backend: {{ge: {{device: emulator, profile: published}}}}
      devices: [0]
    - name: postprocess
      ops: [top_k: 5]
"""
_READY_S = 60.0


def write_pipeline(folder: Path) -> Path:
    """Write a pipeline file and its model, which only takes time."""
    from gepipe.emulator.om import Gears, OmTensor, write_om

    write_om(
        folder / "photos.om",
        None,
        inputs=[OmTensor("x", "float32", (-1, 3, 224, 224))],
        outputs=[OmTensor("y", "float32", (-1, 1000))],
        gears=Gears("batch", ((1,), (8,), (32,))),
        name="photos",
    )
    path = folder / "photos.yaml"
    path.write_text(_PIPELINE.format(model=folder / "photos.om"))
    return path


@dataclass
class Served:
    """A server that runs.

    Attributes:
        pid: `gepipe triton serve`.
        http: Its port.
        grpc: Another one.
        model: The model to call.
    """

    pid: int
    http: int
    grpc: int
    model: str

    def family(self) -> list[int]:
        """Return the server's processes and all below them."""
        found, todo = [], [self.pid]
        while todo:
            pid = todo.pop()
            found.append(pid)
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                todo += [int(each) for each in task.read_text().split()]
        return found

    def memory(self) -> float:
        """Return the resident memory of all its processes, in MiB."""
        total = 0
        for pid in self.family():
            try:
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            except OSError:
                continue
            total += int(re.search(r"^Pss:\s+(\d+)", text, re.MULTILINE)[1])
        return total / 1024


@contextmanager
def served(layout: str, folder: Path) -> Iterator[Served]:
    """Export, or write by hand, and serve."""
    repository = folder / "models"
    if layout == "by hand":
        model = triton_handwritten.write(repository)
    else:
        pipeline = write_pipeline(folder)
        _gepipe("triton", "export", str(pipeline), str(repository), "--layout", layout)
        model = "photos"
    with serving(repository, model, folder) as server:
        yield server


@contextmanager
def serving(repository: Path, model: str, folder: Path) -> Iterator[Served]:
    """Serve a repository."""
    from gepipe.triton.ports import free_ports

    ports = free_ports("127.0.0.1", {"http": 0, "grpc": 0, "metrics": 0, "health": 0})
    log = (folder / "serve.log").open("w")
    process = subprocess.Popen(
        [
            *_COMMAND,
            "triton",
            "serve",
            str(repository),
            *(f"--{name}-port={port}" for name, port in ports.items()),
        ],
        stdout=log,
        stderr=log,
        env=harness.environment(),
    )
    try:
        _wait_ready(process, ports["http"], model, folder / "serve.log")
        yield Served(process.pid, ports["http"], ports["grpc"], model)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()


_COMMAND = [sys.executable, "-c", "from gepipe.cli.app import main; main()"]


def _gepipe(*words: str) -> None:
    subprocess.run([*_COMMAND, *words], check=True, stdout=subprocess.DEVNULL)


def _wait_ready(process: Any, port: int, model: str, log: Path) -> None:
    import http.client

    end = time.monotonic() + _READY_S
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
        try:
            connection.request("GET", f"/v2/models/{model}/ready")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        finally:
            connection.close()
        time.sleep(0.1)  # noqa: TID251 - polling is all that a client can do
    raise SystemExit(f"the server is not ready: {log.read_text()[-2000:]}")


def calls(model: str, **parameters: Any) -> list[Call]:
    """Return one call a photo."""
    paths = media.jpegs(2048)[:PHOTOS]
    return [Call.of(model, Path(path).read_bytes(), **parameters) for path in paths]


def trial(variant: str, count: int = COUNT) -> dict[str, float]:
    """Measure one variant."""
    if variant == "local run":
        return _local(count)
    if variant == "tensors":
        return _tensors()
    with tempfile.TemporaryDirectory() as name:
        if variant in ("by hand", "ensemble", "fused"):
            with served(variant, Path(name)) as server:
                return _throughput(server, count)
        what, _, layout = variant.rpartition(" ")
        measured = {"80 %": _latency, "real-time": _realtime, "leak": _leak}[what]
        with served(layout, Path(name)) as server:
            return measured(server, count)


def _local(count: int) -> dict[str, float]:
    from gepipe.pipeline.pipeline import Pipeline
    from gepipe.spec.load import load

    paths = (media.jpegs(2048)[:PHOTOS] * (count // PHOTOS + 1))[:count]
    with tempfile.TemporaryDirectory() as name:
        spec = load(write_pipeline(Path(name)))
        with Pipeline(spec) as pipeline:
            for _ in pipeline.run(paths[:64]):
                pass
            begin = time.perf_counter()
            done = sum(1 for _ in pipeline.run(paths))
            return {"rate": done / (time.perf_counter() - begin)}


def _good(answer: Answer) -> Answer:
    if answer.status != 200:
        raise SystemExit(f"status {answer.status}: {answer.body[:500]!r}")
    return answer


def _throughput(server: Served, count: int) -> dict[str, float]:
    load = Load(server.http, CLIENTS)
    ready = calls(server.model)
    for answer in load.closed_loop(ready, WARM):
        _good(answer)
    begin, cpu = time.perf_counter(), time.process_time()
    seconds = [_good(a).ended - a.began for a in load.closed_loop(ready, count)]
    elapsed = time.perf_counter() - begin
    client_ms = 1e3 * (time.process_time() - cpu) / count
    load.close()
    return {"rate": count / elapsed, "client_ms": client_ms, **_percentiles(seconds)}


def _percentiles(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        "p50_ms": 1e3 * ordered[len(ordered) // 2],
        "p99_ms": 1e3 * ordered[len(ordered) * 99 // 100],
    }


def _latency(server: Served, count: int) -> dict[str, float]:
    """Find the rate, then send at 80 % of it at random moments, whatever the answers do."""
    load = Load(server.http, CLIENTS)
    ready = calls(server.model)
    for answer in load.closed_loop(ready, WARM):
        _good(answer)
    begin = time.perf_counter()
    for answer in load.closed_loop(ready, count // 2):
        _good(answer)
    rate = count // 2 / (time.perf_counter() - begin)
    load.close()
    load = Load(server.http, 4 * CLIENTS)
    chance, at, due = random.Random(0), 0.0, []
    for _ in range(count // 2):
        at += chance.expovariate(0.8 * rate)
        due.append(at)
    seconds = [_good(a).ended - a.began for a in load.by_schedule(ready, due)]
    load.close()
    return {"rate": rate, **_percentiles(seconds)}


def _realtime(server: Served, count: int) -> dict[str, float]:
    """Send a real-time request now and then among bulk clients that keep the server full."""
    import threading

    urgent = Load(server.http, 1)
    ready = calls(server.model, priority=1, realtime=True)
    alone = [_good(a).ended - a.began for a in urgent.closed_loop(ready, 30)]
    bulk = Load(server.http, CLIENTS)
    bulk_calls = calls(server.model, priority=2, realtime=False)
    done = threading.Event()

    def keep_full() -> None:
        for answer in bulk.closed_loop(bulk_calls, count):
            _good(answer)
        done.set()

    thread = threading.Thread(target=keep_full)
    thread.start()
    time.sleep(2)  # noqa: TID251 - until the queues are full
    waits = []
    chance = random.Random(0)
    while not done.is_set():
        (answer,) = urgent.closed_loop(ready, 1)
        waits.append(_good(answer).ended - answer.began - statistics.median(alone))
        time.sleep(chance.uniform(0.05, 0.25))  # noqa: TID251 - at any moment of a batch
    thread.join()
    waits.sort()
    return {
        "requests": float(len(waits)),
        "alone_ms": 1e3 * statistics.median(alone),
        "median_batches": statistics.median(waits) / BATCH_S,
        "p95_batches": waits[len(waits) * 95 // 100] / BATCH_S,
        "longest_batches": waits[-1] / BATCH_S,
    }


def _leak(server: Served, _count: int) -> dict[str, float]:
    load = Load(server.http, 8)
    ready = calls(server.model)
    for answer in load.closed_loop(ready, 2000):
        _good(answer)
    before, files = server.memory(), _shared()
    for answer in load.closed_loop(ready, 10_000):
        _good(answer)
    after = server.memory()
    load.close()
    return {
        "before_mib": before,
        "growth_mib": after - before,
        "shared_growth_mib": (_shared() - files) / 2**20,
    }


_TENSOR_CONFIG = """
backend: "ge"
max_batch_size: 0
input [ { name: "x" data_type: TYPE_FP32 dims: [ 1, 6553600 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 1, 16 ] } ]
instance_group [ { kind: KIND_MODEL count: 1 } ]
parameters { key: "engine_options" value: { string_value: "%s" } }
"""


def _tensors() -> dict[str, float]:
    """Send 25 MB to the backend `ge`, in the request and through system shared memory."""
    from gepipe.emulator.om import OmTensor, write_om

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        version = folder / "models" / "tensors" / "1"
        version.mkdir(parents=True)
        write_om(
            version / "model.om",
            None,
            inputs=[OmTensor("x", "float32", (1, 6_553_600))],
            outputs=[OmTensor("y", "float32", (1, 16))],
            name="tensors",
        )
        (folder / "quick.yaml").write_text("name: quick\ndevices: 1\nlatency_ms: 1\n")
        extra = json.dumps({"device": "emulator", "profile": str(folder / "quick.yaml")})
        config = _TENSOR_CONFIG % extra.replace('"', '\\"')
        (version.parent / "config.pbtxt").write_text(config.lstrip())
        with serving(folder / "models", "tensors", folder) as server:
            return {
                f"{way} {protocol} ms": _tensor_ms(server, protocol, shared=way == "shared")
                for protocol in ("grpc", "http")
                for way in ("plain", "shared")
            }


def _tensor_ms(server: Served, protocol: str, *, shared: bool, count: int = 30) -> float:
    import numpy as np

    from gepipe.triton.address import Address
    from gepipe.triton.region import Region

    address = Address.parse(f"{protocol}://127.0.0.1:{getattr(server, protocol)}")
    library = __import__(f"tritonclient.{protocol}", fromlist=["*"])
    client = library.InferenceServerClient(address.netloc)
    rows = np.random.default_rng(0).random((1, 6_553_600), np.float32)
    region = Region(rows.nbytes) if shared else None
    if region is not None:
        client.register_system_shared_memory(region.name, region.key, region.nbytes)
    seconds = []
    try:
        for _ in range(count + 5):
            began = time.perf_counter()
            tensor = library.InferInput("x", list(rows.shape), "FP32")
            if region is not None:
                region.write(rows)  # which a client that makes its tensor there need not do
                tensor.set_shared_memory(region.name, rows.nbytes)
            else:
                tensor.set_data_from_numpy(rows)
            client.infer("tensors", [tensor])
            seconds.append(time.perf_counter() - began)
    finally:
        if region is not None:
            region.unregister(client)
            region.close()
        client.close()
    return 1e3 * statistics.median(seconds[5:])


def _shared() -> int:
    return sum(each.stat().st_blocks * 512 for each in Path("/dev/shm").iterdir())


def measure(rounds: int) -> list[Figure]:
    """Measure the layouts against each other, and what a request waits."""
    media.jpegs(2048)
    runs = harness.interleave(NAME, ["by hand", "ensemble", "fused", "local run"], rounds)
    details = {name: harness.medians(run) for name, run in runs.items()}
    hand, local = runs["by hand"], runs["local run"]
    figures = [
        Figure(
            NAME,
            "Triton, 64 clients: exported ensemble / ensemble by hand",
            harness.ratio(runs["ensemble"], hand),
            1.8,
            True,
            details,
        ),
        Figure(NAME, "… fused layout / ensemble by hand", harness.ratio(runs["fused"], hand), 2.2),
        Figure(NAME, "… fused layout / local run", harness.ratio(runs["fused"], local), 0.85),
    ]
    for layout in ("ensemble", "fused"):
        run = harness.interleave(NAME, [f"80 % {layout}"], rounds)[f"80 % {layout}"]
        middle = harness.medians(run)
        what = f"… p99 at 80 % load, ms ({layout})"
        figures.append(Figure(NAME, what, middle["p99_ms"], details=middle))
        name = f"real-time {layout}"
        middle = harness.medians(harness.interleave(NAME, [name], rounds)[name])
        what = f"… real-time among bulk: longest wait in batch times ({layout})"
        figures.append(Figure(NAME, what, middle["longest_batches"], 1.5, False, middle))
        name = f"leak {layout}"
        middle = harness.medians(harness.interleave(NAME, [name], 1)[name])
        what = f"… memory growth over 10,000 requests, MiB ({layout})"
        figures.append(Figure(NAME, what, middle["growth_mib"], details=middle))
    tensors = harness.medians(harness.interleave(NAME, ["tensors"], rounds)["tensors"])
    for protocol in ("grpc", "http"):
        what = f"… 25 MB tensors: in the request / through shared memory ({protocol})"
        times = tensors[f"plain {protocol} ms"] / tensors[f"shared {protocol} ms"]
        figures.append(Figure(NAME, what, times, 5.0, True, tensors))
    return figures
