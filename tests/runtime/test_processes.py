"""Pipelines in scripts that fork, and in scripts that end in the middle of a run."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import gepipe
from gepipe.ops.user import Python
from tests.support import doubling_model, python, script_environment

PREAMBLE = """
import multiprocessing, os, sys, warnings
from concurrent.futures import ProcessPoolExecutor
import numpy as np
import gepipe
from gepipe.errors import ClosedError
from gepipe.spec.model import PipelineSpec
warnings.simplefilter("ignore")

def open_one():
    return gepipe.Pipeline(PipelineSpec(stages=[
        {"name": "preprocess", "threads": 1, "batch_size": 2},
        {"name": "inference", "model": os.environ["MODEL"]},
        {"name": "postprocess"},
    ]))

def rows(count):
    return [np.full(4, each, np.float32) for each in range(count)]

def sums(pipeline, count=6):
    return [float(r.value["y"].sum()) for r in pipeline.run(rows(count))]

def in_child(work):
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            if status:
                sys.excepthook(*sys.exc_info())
            sys.stderr.flush()
            # As a child that ends by itself does, but for what a test runner registered.
            multiprocess.util._exit_function()
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
import multiprocess
import multiprocess.util
WHOLE = [8.0 * each + 4 for each in range(6)]
"""


def run(tmp_path, script: str) -> str:
    path = tmp_path / "script.py"
    path.write_text(PREAMBLE + script)
    done = subprocess.run(
        python(path),
        env=script_environment(MODEL=str(doubling_model(tmp_path / "m.onnx"))),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("inside", ["pass", "p.close()", "sums_refused(p)", "del p"])
def test_child_leaves_the_parents_pipeline_alone(tmp_path, inside) -> None:
    run(
        tmp_path,
        f"""
def sums_refused(p):
    try:
        p.run(rows(1))
    except ClosedError as error:
        assert "belongs to another process" in str(error), error
    else:
        raise AssertionError("ran")
if __name__ == "__main__":
    p = open_one()
    assert sums(p) == WHOLE
    pids = [each.process.pid for each in p._supervisor._workforce._processes.values()]
    def work():
        global p
        {inside}
    in_child(work)
    assert sums(p) == WHOLE
    now = [each.process.pid for each in p._supervisor._workforce._processes.values()]
    assert set(pids) <= set(now)  # one more may have been started for the second run
    p.close()
""",
    )


@pytest.mark.parametrize("inside", ["pass", "next(results)", "results.close()", "p.close()"])
def test_child_leaves_the_parents_run_alone(tmp_path, inside) -> None:
    run(
        tmp_path,
        f"""
if __name__ == "__main__":
    p = open_one()
    results = p.run(rows(200))
    got = [float(next(results).value["y"].sum())]
    def work():
        try:
            {inside}
        except ClosedError:
            pass
    in_child(work)
    got += [float(r.value["y"].sum()) for r in results]
    assert got == [8.0 * each + 4 for each in range(200)]
    p.close()
""",
    )


WAYS = {
    "fork": "in_child(work)",
    "stdlib pool": """
    with multiprocessing.get_context("fork").Pool(1) as pool:
        pool.apply(work)""",
    "stdlib executor": """
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        pool.submit(work).result()""",
    "daemonic multiprocess": """
    child = multiprocess.get_context("fork").Process(target=work, daemon=True)
    child.start()
    child.join()
    assert child.exitcode == 0""",
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("used", [False, True])
def test_child_can_make_a_pipeline_of_its_own(tmp_path, way, used) -> None:
    run(
        tmp_path,
        f"""
def work():
    with open_one() as own:
        assert sums(own) == WHOLE
if __name__ == "__main__":
    p = open_one()
    if {used}:
        assert sums(p) == WHOLE
    {WAYS[way].strip()}
    assert sums(p) == WHOLE
    p.close()
""",
    )


def test_workers_end_at_once_although_a_child_holds_what_the_parent_had_open(tmp_path) -> None:
    run(
        tmp_path,
        """
import time
from dataclasses import replace
if __name__ == "__main__":
    p = open_one()
    sums(p)
    workforce = p._supervisor._workforce
    workforce._options = replace(workforce._options, grace_s=60)  # it would wait so long
    pid = os.fork()
    if pid == 0:
        time.sleep(100)
        os._exit(0)
    began = time.monotonic()
    p.close()
    took = time.monotonic() - began
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    assert took < 30, took
""",
    )


@pytest.mark.parametrize("held", ["results = p.run(rows(500)); next(results)", "sums(p)"])
def test_program_that_ends_in_the_middle_of_a_run_is_quiet(tmp_path, held) -> None:
    run(tmp_path, f"p = open_one()\n{held}\n")


OPS = """
from dataclasses import dataclass
@dataclass
class Found:
    value: float
def found(outputs):
    value = float(outputs["y"][0])
    return [Found(value)] if value == 5 else value
"""


def test_result_of_a_class_from_a_file_of_operators_is_an_items_failure(tmp_path) -> None:
    (tmp_path / "ops.py").write_text(OPS)
    from gepipe.spec.model import PipelineSpec

    spec = PipelineSpec(
        stages=[
            {"name": "preprocess", "threads": 1, "batch_size": 2},
            {"name": "inference", "model": doubling_model(tmp_path / "m.onnx")},
            {"name": "postprocess", "ops": [Python(f"{tmp_path / 'ops.py'}:found")]},
        ]
    )
    with gepipe.Pipeline(spec) as pipeline:
        results = list(pipeline.run([np.full(4, each, np.float32) for each in range(4)]))

    assert [each.value for each in results] == [1, 3, 7]
    (failure,) = pipeline.failures
    assert (failure.index, failure.stage, failure.kind) == (2, "postprocess", "result")
    assert "Found" in failure.error


class Unreadable:
    def __reduce__(self):
        return int, ("no number",)


def test_result_that_cannot_be_read_is_an_items_failure(tmp_path) -> None:
    from gepipe.spec.model import PipelineSpec

    spec = PipelineSpec(
        stages=[
            {"name": "preprocess", "threads": 1, "batch_size": 2},
            {"name": "inference", "model": doubling_model(tmp_path / "m.onnx")},
            {
                "name": "postprocess",
                "ops": [Python(lambda o: Unreadable() if o["y"][0] > 1 else 1)],
            },
        ]
    )
    with gepipe.Pipeline(spec) as pipeline:
        results = list(pipeline.run([np.full(4, each, np.float32) for each in range(2)]))

    assert [each.value for each in results] == [1]
    assert [each.kind for each in pipeline.failures] == ["result"]


INTERRUPTED = """
import os, signal
from multiprocess import forkserver
from gepipe.runtime.forkserver import start_server

start = forkserver.ensure_running
def start_while_ctrl_c_is_pressed():
    os.kill(os.getpid(), signal.SIGINT)
    start()
forkserver.ensure_running = start_while_ctrl_c_is_pressed
try:
    start_server()
except KeyboardInterrupt:
    print("heard")
"""


def test_an_interrupt_while_the_server_starts_is_not_lost() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=True, timeout=120
    )

    assert done.stdout == "heard\n"
