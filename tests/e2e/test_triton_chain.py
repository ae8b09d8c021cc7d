"""Pipelines of several models in a real Triton server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import pytest

from gepipe.serving.export import export
from gepipe.spec.load import load, loads
from gepipe.triton.kit import Kit
from gepipe.triton.server import Server
from tests.chains import BROKEN, SIDE, mean_model, picture
from tests.served import Client, held, metric, over_grpc, over_http, serving, workers_of
from tests.support import ROOT, wait_until

PAGES = ROOT / "samples/media/pages"
PHOTOS = ROOT / "samples/media/photos"
#: Greys that take a while to look at: part of a second, and until a gate is open.
SLOW, HELD = 77, 250

OPS = f'''
import os
import threading
from pathlib import Path
from gepipe import ItemError


def squares(outputs, meta):
    """Find the squares of a picture."""
    lefts = range(0, meta["width"] // {SIDE} * {SIDE}, {SIDE})
    return {{"squares": [{{"box": [left, 0, left + {SIDE}, {SIDE}]}} for left in lefts]}}


def look(picture, meta):
    """Take a while over some squares, and say who looks at those that are held."""
    if int(picture[0, 0, 0]) == {SLOW}:
        threading.Event().wait(0.4)
    if int(picture[0, 0, 0]) == {HELD}:
        Path(f"GATE-{{os.getpid()}}").touch()
        while not Path("GATE").exists():
            threading.Event().wait(0.01)
    return picture


def grey(outputs, meta):
    """Read a square."""
    value = round(float(outputs["y"]))
    if value == {BROKEN}:
        raise ItemError("broken", "on purpose")
    return {{"grey": value}}
'''
SQUARES = """
name: {name}
profile: {{queue: {queue}}}
stages:
  - name: preprocess
    batch_size: 4
    threads: 1
    ops: [decode_image, {{resize: {{size: [4, 4]}}}}, to_tensor]
  - {{name: look, role: infer, model: {folder}/m.onnx, instances: 1}}
  - name: cut
    role: mid
    batch_size: 4
    threads: {threads}
    stream_count: 1
    ops:
      - python: {folder}/ops.py:squares
      - crop
      - python: {folder}/ops.py:look
      - resize: {{size: [4, 4]}}
      - to_tensor
  - {{name: read, role: infer, model: {folder}/m.onnx, instances: 1}}
  - {{name: postprocess, stream_count: 1, ops: [{{python: {folder}/ops.py:grey}}, gather]}}
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory) -> Path:
    tmp = tmp_path_factory.mktemp("chains")
    mean_model(tmp / "m.onnx")
    (tmp / "ops.py").write_text(OPS.replace("GATE", str(tmp / "gate")))
    models = tmp / "models"
    for name, queue, threads in (("squares", 1000, 2), ("narrow", 2, 1)):
        text = SQUARES.format(name=name, queue=queue, threads=threads, folder=tmp)
        export(loads(text), models)
    for name in ("ocr", "detect-classify"):
        spec = load(ROOT / f"pipelines/{name}.yaml")
        if all(leg.infer.model is not None and leg.infer.model.is_file() for leg in spec.legs):
            export(spec, models)
    for file in (tmp / "m.onnx", tmp / "ops.py"):
        file.unlink()  # what is exported needs nothing else
    return models


@pytest.fixture(scope="module")
def server(triton_kit, repository) -> Iterator[Server]:
    with serving(triton_kit, repository) as started:
        yield started


@pytest.fixture
def client(server) -> Iterator[Client]:
    made = Client(server, "IMAGE")
    yield made
    made.library.close()


@pytest.fixture
def gate(repository) -> Iterator[Path]:
    """Return a file that is to be written when the squares that are held may pass."""
    path = repository.with_name("gate")
    yield path
    for file in path.parent.glob("gate*"):
        file.unlink()


def lookers(gate: Path) -> set[int]:
    """Return the processes that have come to a square that is held."""
    return {int(path.name.partition("-")[2]) for path in gate.parent.glob("gate-*")}


def settle(client: Client, server: Server) -> None:
    """Wait until all that the narrow model has answered so far is counted.

    What is answered later is not counted earlier, and nothing else asks it for what is no picture.
    """
    kinds = partial(metric, server, "gepipe_failures_total", model="narrow", kind="not_an_image")
    before = kinds()
    client.wait(client.ask("narrow", b"no picture"))
    wait_until(lambda: kinds() > before)


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch) -> None:
    monkeypatch.chdir(ROOT)


def require(repository: Path, name: str) -> None:
    if not (repository / name).is_dir():
        pytest.skip(f"gepipe samples fetch {name}")


def run_here(kit: Kit, name: str, files: Sequence[Path], output: Path) -> dict[str, Any]:
    """Return what a run makes of files, with the OpenCV that the server has.

    NumPy below 2, which the server needs, goes with an older one; it scales a little differently.
    """
    inputs = [word for file in files for word in ("--input", file)]
    done = run(kit.python, "run", f"pipelines/{name}.yaml", *inputs, "--output", output)
    assert done.returncode == 0, done.stderr
    return results(output)


def results(output: Path) -> dict[str, Any]:
    lines = output.read_text(encoding="utf-8").splitlines()
    return {each["source"]: each["result"] for each in map(json.loads, lines)}


def command(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, *words)


def run(python: str | Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-c", "from gepipe.cli.app import main; main()", *map(str, words)],
        capture_output=True, text=True, timeout=200, check=False, cwd=ROOT,
    )  # fmt: skip


def near(record: Any) -> Any:
    """Return a record of which the last digits do not count."""
    if isinstance(record, dict):
        return {key: near(value) for key, value in record.items()}
    if isinstance(record, list):
        return [near(value) for value in record]
    return pytest.approx(record, abs=1e-3) if isinstance(record, float) else record


def greys(*values: int) -> dict[str, Any]:
    """Return what the pipeline of squares makes of a picture of them."""
    return {
        "squares": [
            {"box": [SIDE * i, 0, SIDE * i + SIDE, SIDE], **part(value)}
            for i, value in enumerate(values)
        ]
    }


def part(value: int) -> dict[str, Any]:
    if value == BROKEN:
        return {"failure": {"stage": "postprocess", "kind": "broken", "error": "on purpose"}}
    return {"grey": value}


@pytest.mark.parametrize("call", [over_grpc, over_http])
def test_pages_are_read_as_in_a_local_run(server, triton_kit, repository, tmp_path, call) -> None:
    require(repository, "ocr")
    files = [PAGES / name for name in ("page.png", "invoice-01.png", "invoice-02.png")]

    wanted = run_here(triton_kit, "ocr", files, tmp_path / "here.jsonl")
    made = {str(file): call(server, "ocr", "IMAGE", [file.read_bytes()])[0] for file in files}

    for file in map(str, files):
        assert made[file]["text"] == wanted[file]["text"]
        assert made[file] == near(wanted[file])
        assert [line["polygon"] for line in made[file]["lines"]] == [
            line["polygon"] for line in wanted[file]["lines"]
        ]


@pytest.mark.parametrize("call", [over_grpc, over_http])
def test_objects_are_classified_as_in_a_local_run(
    server, triton_kit, repository, tmp_path, call
) -> None:
    require(repository, "detect-classify")
    files = sorted(PHOTOS.iterdir())[:4]

    wanted = run_here(triton_kit, "detect-classify", files, tmp_path / "here.jsonl")
    made = call(server, "detect-classify", "IMAGE", [file.read_bytes() for file in files])

    assert made == [near(wanted[str(file)]) for file in files]
    assert any(record["detections"] for record in made)


def test_a_job_by_way_of_the_server_writes_what_a_run_writes(
    server, triton_kit, repository, tmp_path
) -> None:
    require(repository, "ocr")
    files = [PAGES / "page.png", PAGES / "invoice-03.png"]
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"no picture")
    wanted = run_here(triton_kit, "ocr", files, tmp_path / "here.jsonl")
    url = f"http://127.0.0.1:{server.ports['http']}"

    inputs = [word for file in (files[0], bad, files[1]) for word in ("--input", file)]

    done = command(
        "run", "pipelines/ocr.yaml", "--via", url, *inputs, "--output", tmp_path / "via.jsonl"
    )

    assert done.returncode == 3, done.stderr
    made = results(tmp_path / "via.jsonl")
    assert list(made) == [str(file) for file in files]
    assert [made[key]["text"] for key in made] == [wanted[key]["text"] for key in made]
    (failure,) = (tmp_path / "via.failures.jsonl").read_text().splitlines()
    assert json.loads(failure)["kind"] == "not_an_image"
    assert json.loads(failure)["stage"] == "preprocess"


def test_a_job_by_way_of_the_server_draws(server, repository, tmp_path) -> None:
    require(repository, "ocr")
    url = f"grpc://127.0.0.1:{server.ports['grpc']}"
    sink = f"sink={{{{annotated: {tmp_path}/{{}}.jsonl}}}}"
    words = ("run", "pipelines/ocr.yaml", "--input", PAGES / "page.png", "--set")

    here = command(*words, sink.format("here"))
    via = command(*words, sink.format("via"), "--via", url)

    assert (here.returncode, via.returncode) == (0, 0), via.stderr
    (drawn,), (again,) = (list((tmp_path / name).iterdir()) for name in ("here", "via"))
    assert drawn.name == again.name
    one, other, page = (cv2.imread(str(path)) for path in (drawn, again, PAGES / "page.png"))
    assert cv2.absdiff(one, other).mean() < 0.1 * cv2.absdiff(other, page).mean()


def test_infer_sends_files(server, repository, tmp_path) -> None:
    require(repository, "detect-classify")
    url = f"http://127.0.0.1:{server.ports['http']}"

    done = command(
        "triton", "infer", url, "detect-classify", PHOTOS, "--output", tmp_path / "o.jsonl"
    )

    assert done.returncode == 0, done.stderr
    assert len(results(tmp_path / "o.jsonl")) == len(list(PHOTOS.iterdir()))


def test_concurrent_requests_are_never_mixed_up(client) -> None:
    asked = [[n, (7 * n) % 60, *range(n % 5)] for n in range(200)]
    calls = [client.ask("squares", picture(values)) for values in asked]

    assert client.wait(*calls) == [[greys(*values)] for values in asked]


def test_rows_of_a_request_keep_their_places(client) -> None:
    call = client.ask("squares", picture([1, 2]), picture([]), picture([3]), picture([4, 5, 6]))

    assert client.wait(call) == [[greys(1, 2), greys(), greys(3), greys(4, 5, 6)]]


def test_what_fails_fails_alone(client) -> None:
    good = [client.ask("squares", picture([n, n + 1])) for n in range(20, 30)]
    bad, marred = (
        client.ask("squares", b"no picture"),
        client.ask("squares", picture([1, BROKEN, 2])),
    )
    several = client.ask("squares", picture([1]), b"no picture")

    assert client.wait(*good) == [[greys(n, n + 1)] for n in range(20, 30)]
    refused, (record,), second = client.wait(bad, marred, several)
    assert refused.status() == "StatusCode.INVALID_ARGUMENT"
    assert refused.message().startswith("preprocess: not_an_image: ")
    assert record == greys(1, BROKEN, 2)
    assert second.message().startswith("preprocess: not_an_image: row 1: ")


def test_killed_workers_of_any_model_cost_no_answer(client, server) -> None:
    restarts = partial(metric, server, "gepipe_restarts_total", model="squares")
    before = restarts()
    calls = [client.ask("squares", picture([n % 60, SLOW])) for n in range(20)]
    victims = workers_of(server, "squares")
    for victim in victims:
        os.kill(victim, signal.SIGKILL)
    calls += [client.ask("squares", picture([n % 60])) for n in range(20)]

    wanted = [[greys(n % 60, SLOW)] for n in range(20)] + [[greys(n % 60)] for n in range(20)]
    assert client.wait(*calls) == wanted
    assert len(victims) == 8  # two of the second leg's pre, one of all others, and the join
    wait_until(lambda: restarts() - before == len(victims))


def test_a_worker_killed_over_a_part_costs_no_answer(client, server, gate) -> None:
    calls = [client.ask("squares", picture([HELD, n])) for n in range(8)]
    wait_until(lambda: lookers(gate))
    victims = lookers(gate) & workers_of(server, "squares")
    for victim in victims:
        os.kill(victim, signal.SIGKILL)
    gate.touch()

    assert client.wait(*calls) == [[greys(HELD, n)] for n in range(8)]
    assert victims


def test_too_many_are_refused_before_any_model_has_seen_them(client, server) -> None:
    rows = partial(metric, server, "gepipe_rows_total", model="narrow")
    failures = partial(metric, server, "gepipe_failures_total", model="narrow", kind="overloaded")
    settle(client, server)
    before = rows(), failures()
    with held(*workers_of(server, "narrow")):
        calls = [client.ask("narrow", *[picture([n])] * 4) for n in range(60)]
        wait_until(lambda: client.order)  # only a refusal can be answered now

    answers = client.wait(*calls)

    refused = [each for each in answers if not isinstance(each, list)]
    assert refused
    assert all(": exceeds maximum queue size: " in each.message() for each in refused)
    good = [(n, each) for n, each in enumerate(answers) if isinstance(each, list)]
    assert good
    assert all(each == [greys(n)] * 4 for n, each in good)
    wait_until(lambda: failures() - before[1] == len(refused))
    settle(client, server)
    assert rows() - before[0] >= 8 * len(good)  # each once as a picture, once as a square


def test_a_request_whose_time_is_over_is_answered_while_parts_are_in_work(client, gate) -> None:
    slow = client.ask("narrow", picture([HELD] * 6))
    wait_until(lambda: lookers(gate))
    hasty = client.ask("narrow", picture([HELD, 1]), timeout=150_000)

    (error,) = client.wait(hasty)
    assert client.given[slow[0]] is None
    gate.touch()
    assert error.status() == "StatusCode.UNAVAILABLE"
    assert error.message().endswith("expired: its time is over")
    assert client.wait(slow) == [[greys(*[HELD] * 6)]]


def test_what_a_client_gives_up_is_not_done(client, server, gate) -> None:
    cancelled = partial(metric, server, "gepipe_failures_total", model="narrow", kind="cancelled")
    settle(client, server)
    before = cancelled(), metric(server, "gepipe_rows_total", model="narrow")
    _, call = client.ask("narrow", picture([HELD] * 30))
    wait_until(lambda: lookers(gate))  # its parts are in work
    call.cancel()

    wait_until(lambda: cancelled() - before[0] == 1)
    gate.touch()
    assert client.wait(client.ask("narrow", picture([9]))) == [[greys(9)]]
    settle(client, server)
    assert metric(server, "gepipe_rows_total", model="narrow") - before[1] < 20


def test_requests_in_work_are_answered_when_the_model_is_loaded_anew(
    client, server, repository, gate
) -> None:
    calls = [client.ask("narrow", picture([HELD, n])) for n in range(2)]
    wait_until(lambda: server.waiting()["narrow"] == len(calls))
    model = repository / "narrow" / "1" / "model.py"
    model.write_text(model.read_text() + "# changed\n")
    server.control.load("narrow")
    gate.touch()

    assert client.wait(*calls) == [[greys(HELD, n)] for n in range(2)]
    assert client.wait(client.ask("narrow", picture([3]))) == [[greys(3)]]
