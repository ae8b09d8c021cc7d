"""The fused layout in a real Triton server: one model that runs the whole pipeline."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient import grpc
from tritonclient.utils import InferenceServerException

import gepipe
from gepipe.serving.export import export
from gepipe.spec.load import load, loads
from gepipe.triton.server import Server
from tests.served import (
    Client,
    memory_mib,
    metric,
    over_grpc,
    over_http,
    records,
    serving,
    stub_of,
    workers_of,
)
from tests.support import ROOT, doubling_model, jpeg, wait_until

OPS = '''
import os
import threading
import numpy as np
from gepipe import ItemError


def number_in(content):
    """Return the row of a number in digits; "s 7" takes a while, "g 7" until a gate is open."""
    word, _, rest = content.decode().partition(" ")
    if word == "s":
        threading.Event().wait(0.4)
    while word == "g" and not os.path.exists("GATE"):
        threading.Event().wait(0.01)
    if rest:
        word = rest
    if word == "settle":
        raise ItemError("settled", "on purpose")
    if not word.isdigit():
        raise ItemError("not_a_number", f"{word!r} is no number")
    return np.full(4, float(word), np.float32)


def first_of(outputs):
    return {"twice and one": float(outputs["y"][0])}
'''
NUMBERS = """
name: {name}
profile: {{queue: {queue}}}
stages:
  - name: preprocess
    batch_size: 4
    threads: {threads}
    ops: [{{python: {folder}/ops.py:number_in}}]
  - {{name: inference, model: {folder}/m.onnx, instances: 1}}
  - {{name: postprocess, stream_count: 1, ops: [{{python: {folder}/ops.py:first_of}}]}}
"""
#: Two cards that take a while.
CARDS = """
name: cards
stages:
  - {{name: preprocess, batch_size: 4, ops: [{{python: {folder}/ops.py:number_in}}]}}
  - name: inference
    model: {folder}/m.onnx
    backend: {{ge: {{device: emulator, profile: {folder}/two.yaml}}}}
    devices: [0, 1]
    gears: [1, 4]
    instances: 1
  - {{name: postprocess, stream_count: 1, ops: [{{python: {folder}/ops.py:first_of}}]}}
"""
ROWS = """
name: rows
stages:
  - {{name: preprocess, batch_size: 4, threads: 1}}
  - {{name: inference, model: {folder}/m.onnx, instances: 1}}
  - {{name: postprocess, stream_count: 1, ops: [{{python: {folder}/ops.py:first_of}}]}}
"""
PHOTOS = [jpeg(240, 320, seed) for seed in range(6)]


@pytest.fixture(scope="module")
def repository(tmp_path_factory) -> Path:
    tmp = tmp_path_factory.mktemp("fused")
    doubling_model(tmp / "m.onnx")
    (tmp / "ops.py").write_text(OPS.replace("GATE", str(tmp / "gate")))
    models = tmp / "models"
    for name, queue, threads in (("numbers", 1000, 2), ("narrow", 3, 1)):
        text = NUMBERS.format(name=name, queue=queue, threads=threads, folder=tmp)
        export(loads(text), models, layout="fused")
    export(loads(ROWS.format(folder=tmp)), models, layout="fused")
    (tmp / "two.yaml").write_text(
        f"name: two-{os.getpid()}\ndevices: 2\nlatency_ms: 20\npace_computing: true\n"
    )
    export(loads(CARDS.format(folder=tmp)), models, layout="fused")
    if (ROOT / "samples/models/efficientnet_lite0.onnx").is_file():
        export(load(ROOT / "pipelines/classify.yaml"), models, layout="fused")
    for file in (tmp / "m.onnx", tmp / "ops.py"):
        file.unlink()  # what is exported needs nothing else
    return models


@pytest.fixture(scope="module")
def server(triton_kit, repository) -> Iterator[Server]:
    with serving(triton_kit, repository) as started:
        yield started


def numbers(*values: int) -> list[dict[str, float]]:
    return [{"twice and one": 2.0 * value + 1} for value in values]


@pytest.fixture
def client(server) -> Iterator[Client]:
    made = Client(server)
    yield made
    made.library.close()


@pytest.fixture
def gate(repository) -> Iterator[Path]:
    """Return a file that is to be written when the rows that wait for it may pass."""
    path = repository.with_name("gate")
    yield path
    path.unlink(missing_ok=True)


def settle(client: Client, server: Server, model: str) -> None:
    """Wait until all that a model has answered so far is counted.

    What is answered later is not counted earlier, and nothing else fails in this way.
    """
    settled = partial(metric, server, "gepipe_failures_total", model=model, kind="settled")
    before = settled()
    client.wait(client.ask(model, b"settle"))
    wait_until(lambda: settled() > before)


def held(client: Client, server: Server) -> list[tuple[int, Any]]:
    """Ask for as much as the narrow model works on at once, and return it when it has it."""
    calls = [client.ask("narrow", b"g 7") for _ in range(2)]
    wait_until(lambda: server.waiting()["narrow"] == len(calls))
    return calls


@pytest.mark.parametrize("call", [over_grpc, over_http])
def test_results_are_those_of_a_local_run(server, repository, call) -> None:
    if not (repository / "classify").is_dir():
        pytest.skip("gepipe samples fetch classify")
    with gepipe.Pipeline(load(ROOT / "pipelines/classify.yaml")) as pipeline:
        expected = [result.value["top_k"] for result in pipeline.run(PHOTOS)]

    got = [record["top_k"] for record in call(server, "classify", "IMAGE", PHOTOS)]

    for ours, theirs in zip(got, expected, strict=True):
        assert [each["label"] for each in ours] == [each["label"] for each in theirs]
        scores = [each["score"] for each in theirs]
        assert [each["score"] for each in ours] == pytest.approx(scores, rel=1e-4)


def test_a_thousand_concurrent_requests_are_never_mixed_up(client) -> None:
    calls = [client.ask("numbers", b"%d" % n, b"%d" % (n + 5000)) for n in range(500)]

    assert client.wait(*calls) == [numbers(n, n + 5000) for n in range(500)]


def test_numeric_inputs_are_rows(server) -> None:
    client = grpc.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}")
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    tensor = grpc.InferInput("INPUT", [3, 4], "FP32")
    tensor.set_data_from_numpy(array)

    assert records(client.infer("rows", [tensor])) == numbers(0, 4, 8)
    client.close()


def test_many_quick_requests_leave_nothing_behind(server) -> None:
    tensor = grpc.InferInput("INPUT", [1, 4], "FP32")
    tensor.set_data_from_numpy(np.ones((1, 4), np.float32))

    def ask(count: int) -> None:
        client = grpc.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}")
        for _ in range(count):
            client.infer("rows", [tensor], client_timeout=200)
        client.close()

    def ask_from_many(count: int) -> float:
        threads = [threading.Thread(target=ask, args=(count,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return memory_mib(stub_of(server, "rows"))

    before = ask_from_many(125)
    after = ask_from_many(625)

    assert after - before < 2  # 5,000 requests; each kept would be 1 KiB


def test_a_bad_row_fails_its_request_alone_with_its_place(client) -> None:
    before = [client.ask("numbers", b"%d" % n) for n in range(10)]
    bad, alone = client.ask("numbers", b"1", b"one", b"2"), client.ask("numbers", b"one")
    empty = client.ask("numbers", b"")
    after = [client.ask("numbers", b"%d" % n) for n in range(10)]

    assert client.wait(*before, *after) == [numbers(n) for n in range(10)] * 2
    several, single, nothing = client.wait(bad, alone, empty)
    assert several.status() == "StatusCode.INVALID_ARGUMENT"
    assert several.message() == "preprocess: not_a_number: row 1: 'one' is no number"
    assert single.message() == "preprocess: not_a_number: 'one' is no number"
    assert nothing.message() == "preprocess: empty: the input is empty (0 bytes)"


def test_more_than_may_wait_are_refused_at_once(client, server, gate) -> None:
    failures = partial(metric, server, "gepipe_failures_total", model="narrow", kind="overloaded")
    before = failures()
    slow = held(client, server)
    rest = [client.ask("narrow", b"%d" % n) for n in range(6)]
    wait_until(lambda: len(client.order) == 3)
    gate.touch()

    answers = client.wait(*slow, *rest)
    refused = [each for each in answers if isinstance(each, InferenceServerException)]
    assert len(refused) == 3
    assert {each.status() for each in refused} == {"StatusCode.UNAVAILABLE"}
    assert all("overloaded: exceeds maximum queue size" in each.message() for each in refused)
    wait_until(lambda: failures() - before == len(refused))


def test_requests_in_work_are_known_to_whoever_watches_for_hangs(client, server, gate) -> None:
    calls = [client.ask("narrow", b"g 7") for _ in range(3)]

    wait_until(lambda: server.waiting()["narrow"] == 3)
    gate.touch()
    assert client.wait(*calls) == [numbers(7)] * 3
    wait_until(lambda: server.waiting()["narrow"] == 0)


def test_realtime_overtakes_bulk(client, server, gate) -> None:
    slow = held(client, server)
    bulk = [client.ask("narrow", b"s %d" % n) for n in range(2)]
    urgent = client.ask("narrow", b"9", parameters={"realtime": True})
    wait_until(lambda: server.waiting()["narrow"] == 5)
    gate.touch()

    assert client.wait(*slow, *bulk, urgent) == [
        numbers(7), numbers(7), numbers(0), numbers(1), numbers(9)
    ]  # fmt: skip
    place = {number: at for at, number in enumerate(client.order)}
    assert place[urgent[0]] < min(place[number] for number, _ in bulk)


def test_a_class_that_is_none_is_refused(client) -> None:
    (error,) = client.wait(client.ask("numbers", b"1", parameters={"realtime": "soon"}))

    assert error.message() == (
        "preprocess: parameter: parameter realtime is 'soon'; expected true or false"
    )


def test_a_request_whose_time_is_over_is_answered(client, server, gate) -> None:
    slow = held(client, server)
    hasty = client.ask("narrow", b"1", timeout=50_000)

    (error,) = client.wait(hasty)
    gate.touch()
    assert error.status() == "StatusCode.UNAVAILABLE"
    assert error.message() == "preprocess: expired: its time is over"
    assert client.wait(*slow) == [numbers(7)] * 2


def test_what_a_client_gives_up_is_not_done(client, server, gate) -> None:
    cancelled = partial(metric, server, "gepipe_failures_total", model="narrow", kind="cancelled")
    settle(client, server, "narrow")
    before = cancelled(), metric(server, "gepipe_rows_total", model="narrow")
    slow = held(client, server)
    queued = [client.ask("narrow", b"1") for _ in range(2)]

    wait_until(lambda: server.waiting()["narrow"] == 4)
    for _, call in queued:
        call.cancel()
    wait_until(lambda: cancelled() - before[0] == 2)
    gate.touch()
    client.wait(*slow)

    settle(client, server, "narrow")
    assert metric(server, "gepipe_rows_total", model="narrow") - before[1] == len(slow)


def test_killed_workers_cost_no_answer(client, server) -> None:
    restarts = partial(metric, server, "gepipe_restarts_total", model="numbers")
    before = restarts()
    calls = [client.ask("numbers", b"%d" % n) for n in range(100)]
    victims = workers_of(server, "numbers")
    for victim in victims:
        os.kill(victim, signal.SIGKILL)
    calls += [client.ask("numbers", b"%d" % n) for n in range(100, 200)]

    assert client.wait(*calls) == [numbers(n) for n in range(200)]
    assert len(victims) == 4
    wait_until(lambda: restarts() - before == len(victims))


def test_metrics_say_what_was_done(client, server) -> None:
    of = partial(metric, server, model="numbers")
    settle(client, server, "numbers")
    before = of("gepipe_rows_total"), of("gepipe_requests_total"), of("gepipe_batch_rows_sum")
    busy = of("gepipe_device_busy_seconds_total")

    client.wait(*[client.ask("numbers", b"%d" % n, b"1") for n in range(50)])

    wait_until(lambda: of("gepipe_requests_total") - before[1] == 50)
    assert of("gepipe_rows_total") - before[0] == 100
    assert of("gepipe_batch_rows_sum") - before[2] == 100
    assert of("gepipe_device_busy_seconds_total") > busy
    assert of("gepipe_available") == 1


def test_each_card_of_a_model_has_its_own_metrics(client, server) -> None:
    begin = time.monotonic()
    client.wait(*[client.ask("cards", b"%d" % n) for n in range(100)])
    took_s = time.monotonic() - begin

    def of(name: str, *devices: str) -> list[float]:
        return [metric(server, name, model="cards", device=device) for device in devices]

    wait_until(lambda: of("gepipe_requests_total", "0,1") == [100])
    rows = of("gepipe_rows_total", "0", "1")
    assert sum(rows) == 100
    assert all(rows)
    executions = of("gepipe_batch_rows_count", "0", "1")
    for count, busy_s in zip(
        executions, of("gepipe_device_busy_seconds_total", "0", "1"), strict=True
    ):
        assert 0.02 * count <= busy_s <= took_s
    assert of("gepipe_device_busy_seconds_total", "0,1") == [0]


def test_reloading_and_unloading_under_load_answer_everything(client, server, repository) -> None:
    calls = [client.ask("narrow", b"s %d" % n) for n in range(3)]
    wait_until(lambda: server.waiting()["narrow"] + len(client.order) >= 3)
    model = repository / "narrow" / "1" / "model.py"
    model.write_text(model.read_text() + "# changed\n")
    server.control.load("narrow")
    calls += [client.ask("narrow", b"s %d" % n) for n in range(3, 6)]
    wait_until(lambda: {3, 4, 5} & set(client.order))  # the others have come with it
    server.control.unload("narrow")

    assert client.wait(*calls) == [numbers(n) for n in range(6)]
    server.control.load("narrow")
