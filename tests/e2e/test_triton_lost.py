"""Jobs and stops of a real server whose processes die, are stopped, or go away with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from typing_extensions import Self

from gepipe.serving.export import export
from gepipe.spec.load import load
from gepipe.triton.ports import free_ports
from tests.e2e.serve import GEPIPE, Serve
from tests.support import doubling_model, is_alive, wait_until

COUNT = 120
OPS = '''
import threading
import numpy as np


def number_in(content):
    """Return the row of a number in digits, after a while."""
    threading.Event().wait(0.05)
    return np.full(4, float(content), np.float32)


def first_of(outputs):
    return {"twice and one": float(outputs["y"][0])}
'''
YAML = """
name: numbers
source: {images: in}
stages:
  - {name: preprocess, batch_size: 4, threads: 2, ops: [{python: ./ops.py:number_in}]}
  - {name: inference, model: m.onnx, instances: 1}
  - {name: postprocess, stream_count: 1, ops: [{python: ./ops.py:first_of}]}
sink: {jsonl: local.jsonl}
"""


@pytest.fixture
def folder(triton_kit, tmp_path) -> Path:  # noqa: ARG001 - what the command will find
    """Return a folder with a pipeline, its inputs, and what a local run makes of them."""
    doubling_model(tmp_path / "m.onnx")
    (tmp_path / "ops.py").write_text(OPS)
    (tmp_path / "numbers.yaml").write_text(YAML)
    (tmp_path / "in").mkdir()
    for number in range(COUNT):
        (tmp_path / "in" / f"{number:03}.jpg").write_bytes(b"%d" % number)
    done = subprocess.run([*GEPIPE, "run", "numbers.yaml"], cwd=tmp_path, timeout=60, check=False)
    assert done.returncode == 0
    assert len(lines(tmp_path / "local.jsonl")) == COUNT
    return tmp_path


@pytest.fixture
def layout(request, folder) -> str:
    export(load(folder / "numbers.yaml"), folder / "models", layout=request.param)
    return request.param


@pytest.fixture
def served(layout, folder) -> Iterator[Serve]:  # noqa: ARG001 - what is in the folder
    subject = Serve(folder / "models", folder)
    try:
        subject.wait_ready()
        yield subject
    finally:
        subject.close()


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Job:
    """A job through a server, in a process of its own."""

    def __init__(self, folder: Path, url: str) -> None:
        self.out = folder / "served.jsonl"
        self.local = folder / "local.jsonl"
        words = ["run", "numbers.yaml", "--via", url, "--output", str(self.out)]
        self.process = subprocess.Popen(
            [*GEPIPE, *words, "--concurrency", "16"],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __enter__(self) -> Self:
        wait_until(lambda: len(lines(self.out)) >= 16)
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def wait_done(self, limit_s: float) -> str:
        """Wait for its end; its results are those of the local run. Return what it said."""
        said, _ = self.process.communicate(timeout=limit_s)
        assert self.process.returncode == 0, said
        assert lines(self.out) == lines(self.local)
        return said


def step_of(layout: str) -> str:
    """Return the model whose process holds requests that it answers later."""
    return "numbers" if layout == "fused" else "numbers_preprocess"


def each(*cases: tuple[str, object]) -> pytest.MarkDecorator:
    """Have a test run with a layout and another parameter."""
    return pytest.mark.parametrize(("layout", "other"), cases, indirect=["layout"])


@each(("fused", "http"), ("ensemble", "grpc"))
def test_a_job_asks_again_what_a_dead_process_has_lost(served, layout, folder, other) -> None:
    port = served.http if other == "http" else served.grpc
    with Job(folder, f"{other}://127.0.0.1:{port}") as job:
        (stub,) = served.stubs(step_of(layout))
        os.kill(stub, signal.SIGKILL)

        said = job.wait_done(50)  # a call would wait for 60 s
    assert "numbers was loaded anew; calls made again" in said
    served.wait_for("serves again")
    began = time.monotonic()
    assert served.stop() == 0
    assert time.monotonic() - began < 25
    assert "did not end within" not in served.text


@pytest.mark.parametrize("layout", ["fused"], indirect=True)
def test_a_stopped_process_goes_on_and_answers(served, layout, folder) -> None:
    with Job(folder, f"http://127.0.0.1:{served.http}") as job:
        (stub,) = served.stubs(step_of(layout))
        os.kill(stub, signal.SIGSTOP)

        job.wait_done(120)
    if f"its process {stub} is killed" in served.text:  # a busy machine, on which it was seen late
        assert "it hangs (stopped for up to " in served.text
    else:
        assert f"its process {stub} was stopped, and goes on" in served.text
        assert is_alive(stub)
    wait_until(served.is_ready)
    assert served.stop() == 0


@each(("fused", signal.SIGKILL), ("fused", signal.SIGSTOP), ("ensemble", signal.SIGKILL))
def test_a_stop_does_not_wait_for_what_nobody_answers(served, layout, folder, other) -> None:
    with Job(folder, f"grpc://127.0.0.1:{served.grpc}") as job:
        (stub,) = served.stubs(step_of(layout))
        served.process.send_signal(signal.SIGTERM)
        os.kill(stub, other)

        began = time.monotonic()
        assert served.process.wait(60) == 0
        assert time.monotonic() - began < 25
    assert "did not end within" not in served.text
    assert served.regions() == []
    found = lines(job.out)
    assert found == lines(job.local)[: len(found)]
    assert not lines(folder / "served.failures.jsonl")


@each(("fused", "grpc"), ("ensemble", "http"))
def test_a_job_goes_on_when_the_server_comes_back(layout, folder, other) -> None:  # noqa: ARG001
    free = free_ports("127.0.0.1", dict.fromkeys(("http", "grpc", "metrics", "health"), 0))
    ports = [f"--{name}-port={port}" for name, port in free.items()]

    def serve(stack: ExitStack) -> Serve:
        made = Serve(folder / "models", folder, ports=ports)
        stack.callback(made.close)
        made.wait_ready()
        return made

    with ExitStack() as stack:
        first = serve(stack)
        job = stack.enter_context(Job(folder, f"{other}://127.0.0.1:{free[other]}"))
        assert first.stop() == 0
        assert len(lines(job.out)) < COUNT
        assert job.process.poll() is None

        second = serve(stack)
        job.wait_done(60)
        assert second.stop() == 0
