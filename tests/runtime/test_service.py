"""A service with real workers: what a server asks of it, and what may happen meanwhile."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gepipe
from gepipe.errors import ClosedError, ConfigError, ItemError, WorkerStartError
from gepipe.io.failures import Failure
from gepipe.ops.user import Python
from gepipe.serving import payloads
from gepipe.serving.service import Service
from gepipe.spec.model import PipelineSpec
from tests.answers import Answers
from tests.support import ROOT, children_of, doubling_model, is_alive, jpeg, wait_until

MODEL = ROOT / "samples/models/efficientnet_lite0.onnx"


def row(number: float) -> np.ndarray:
    return np.full(4, number, np.float32)


def first_of(outputs: Any) -> float:
    return float(outputs["y"][0])


def number_in(content: bytes) -> np.ndarray:
    """Return the row of a number that is written in digits, or do what the word says."""
    if content == b"die":
        os.kill(os.getpid(), signal.SIGKILL)
    if content.startswith(b"held by "):
        wait_until(Path(os.fsdecode(content[8:])).exists)
        content = b"7"
    try:
        return np.full(4, float(content), np.float32)
    except ValueError:
        raise ItemError("not_a_number", f"{content!r} is no number") from None


def ends_of(content: bytes) -> np.ndarray:
    """Return the row of a number that stands at both ends of a text."""
    first, *_, last = content.split()
    if first != last:
        raise ItemError("mixed_up", f"{first!r} is not {last!r}")
    return number_in(first)


class Gate:
    """Holds an item in a worker, and with it all behind it, until it is opened."""

    def __init__(self, path: Path) -> None:
        self.item = b"held by " + os.fsencode(path)
        self.open = path.touch


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "gate")


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Any]:
    """Return a function that starts a service over the doubling model."""
    started: list[Service] = []

    def serve(*, pre=(number_in,), threads=2, batch=4, queue=128, infer=None, **keys) -> Answers:
        spec = PipelineSpec(
            stages=[
                {"name": "preprocess", "threads": threads, "batch_size": batch,
                 "ops": [Python(each) for each in pre]},
                {"name": "inference", "model": doubling_model(tmp_path / "m.onnx"),
                 **(infer or {})},
                {"name": "postprocess", "stream_count": 1, "ops": [Python(first_of)]},
            ],
            profile={"queue": queue},
            **keys,
        )  # fmt: skip
        service = Service(spec)
        started.append(service)
        info = service.start()
        assert [spec.name for spec in info.inputs] == ["x"]
        return Answers(service)

    yield serve
    for service in started:
        service.close()


def workers_of(service: Service, role: str) -> list[int]:
    processes = list(service._route._workforce._processes.items())
    return [each.process.pid for worker, each in processes if worker.role == role]


def test_arrays_and_bytes_are_answered(serve):
    arrays = serve(pre=())
    numbers = serve()

    assert arrays.wait(*[arrays.ask(row(n)) for n in range(10)]) == [2 * n + 1 for n in range(10)]
    assert numbers.wait(numbers.ask(b"3"), numbers.ask(bytearray(b"4"))) == [7, 9]


def test_items_of_many_threads_are_never_mixed_up(serve):
    answers = serve(queue=1000)
    expected: dict[int, int] = {}

    def ask(first: int) -> None:
        for number in range(first, first + 125):
            token = answers.ask(b"%d" % number, realtime=number % 3 == 0)
            expected[token] = 2 * number + 1
            if number % 50 == 0:
                answers.wait(token)

    threads = [threading.Thread(target=ask, args=(first,)) for first in range(0, 1000, 125)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert answers.wait(*expected) == list(expected.values())
    assert len(expected) == 1000


@pytest.mark.parametrize("room", [payloads._MEMORY, 1 << 20])
def test_large_items_are_never_mixed_up(serve, monkeypatch, room):
    monkeypatch.setattr(payloads, "_MEMORY", room)
    answers = serve(pre=(ends_of,), queue=1000)
    expected: dict[int, int] = {}
    unwanted: list[int] = []
    sizes = random.Random(4)

    def ask(first: int) -> None:
        for number in range(first, first + 50):
            text = b"%d%*d" % (number, sizes.randint(15_000, 600_000), number)
            token = answers.ask(text)
            if number % 7 == 3:
                unwanted.append(token)
                answers.service.cancel(token)
            else:
                expected[token] = 2 * number + 1

    threads = [threading.Thread(target=ask, args=(first,)) for first in range(0, 200, 50)]
    for thread in threads:
        thread.start()
    os.kill(workers_of(answers.service, "pre")[0], signal.SIGKILL)
    for thread in threads:
        thread.join()

    assert answers.wait(*expected) == list(expected.values())
    for answer in answers.wait(*unwanted):
        assert isinstance(answer, float) or answer.kind == "cancelled"
    assert not len(answers.service._memory._arena)


def test_a_bad_item_fails_alone(serve):
    answers = serve()

    tokens = [answers.ask(b"1"), answers.ask(b"one"), answers.ask(b"2")]
    one, failure, two = answers.wait(*tokens)

    assert (one, two) == (3, 5)
    assert failure == Failure(tokens[1], "", "preprocess", "not_a_number", "b'one' is no number")
    assert answers.service.statistics().failures == {"not_a_number": 1}


def test_an_item_that_kills_its_worker_fails_alone_and_the_worker_is_replaced(serve):
    answers = serve()

    tokens = [answers.ask(b"die" if n == 5 else b"%d" % n) for n in range(20)]
    results = answers.wait(*tokens)

    assert [r for r in results if not isinstance(r, Failure)] == [
        2 * n + 1 for n in range(20) if n != 5
    ]
    assert (results[5].stage, results[5].kind) == ("preprocess", "crash")
    assert answers.service.statistics().restarts["pre"] == 2


@pytest.mark.parametrize("role", ["pre", "infer", "post"])
def test_a_killed_worker_costs_no_answer(serve, role):
    answers = serve(queue=1000)
    answers.wait(answers.ask(b"0"))
    victims = workers_of(answers.service, role)

    tokens = [answers.ask(b"%d" % n) for n in range(100)]
    for victim in victims:
        os.kill(victim, signal.SIGKILL)
    tokens += [answers.ask(b"%d" % n) for n in range(100, 200)]

    assert answers.wait(*tokens) == [2 * n + 1 for n in range(200)]
    # One may have died so late that the others had done all by then.
    wait_until(lambda: answers.service.statistics().restarts[role] == len(victims))


def test_more_than_may_wait_are_refused_at_once(serve, gate):
    answers = serve(threads=1, queue=3)

    slow = [answers.ask(gate.item) for _ in range(2)]
    wait_until(lambda: answers.service.statistics().in_work == 2)
    queued = [answers.ask(b"1") for _ in range(5)]
    refused = answers.wait(*queued[3:])
    urgent = answers.ask(b"2", realtime=True)
    gate.open()

    assert {each.kind for each in refused} == {"overloaded"}
    assert answers.wait(*slow, *queued[:3], urgent) == [15, 15, 3, 3, 3, 5]


def test_realtime_goes_first(serve, gate):
    answers = serve(threads=1)
    order: list[str] = []
    slow = [answers.ask(gate.item) for _ in range(2)]
    wait_until(lambda: answers.service.statistics().in_work == 2)

    bulk = [answers.service.submit(b"1", answer=lambda _: order.append("bulk")) for _ in range(3)]
    answers.service.submit(b"2", realtime=True, answer=lambda _: order.append("realtime"))
    gate.open()

    answers.wait(*slow)
    wait_until(lambda: len(order) == len(bulk) + 1)
    assert order[0] == "realtime"


def test_cancelled_and_expired_items_are_answered_without_their_turn(serve, gate):
    answers = serve(threads=1)
    slow = [answers.ask(gate.item) for _ in range(2)]
    wait_until(lambda: answers.service.statistics().in_work == 2)

    patient, hasty = answers.ask(b"1"), answers.ask(b"1", deadline_s=0.05)
    unwanted = answers.ask(b"1")
    answers.service.cancel(unwanted)
    answers.service.cancel(slow[0])
    gone = answers.wait(unwanted, slow[0], hasty)
    gate.open()

    assert [each.kind for each in gone] == ["cancelled", "cancelled", "expired"]
    assert answers.wait(slow[1], patient) == [15, 3]
    assert answers.service.statistics().done == 2


def test_closing_finishes_what_is_there(serve, gate):
    answers = serve(threads=1)
    tokens = [answers.ask(gate.item) for _ in range(3)]
    opener = threading.Timer(0.2, gate.open)
    opener.start()

    answers.service.close(60.0)
    late = answers.ask(b"1")
    opener.join()

    assert answers.wait(*tokens, deadline_s=0.1) == [15, 15, 15]
    assert answers.wait(late, deadline_s=0.1)[0].kind == "unavailable"


def test_closing_in_a_hurry_answers_everybody(serve, gate):
    answers = serve(threads=1)
    tokens = [answers.ask(gate.item) for _ in range(5)]

    answers.service.close(0.0)

    assert {each.kind for each in answers.wait(*tokens, deadline_s=0.1)} == {"unavailable"}
    with pytest.raises(ClosedError):
        answers.service.start()


def test_a_service_without_its_model_says_so(tmp_path):
    spec = PipelineSpec(
        stages=[
            {"name": "preprocess"},
            {"name": "inference", "model": tmp_path / "none.onnx"},
            {"name": "postprocess"},
        ]
    )
    with pytest.raises(ConfigError, match="no such model file"):
        Service(spec).start()


def test_a_model_that_does_not_open_ends_the_start(tmp_path):
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    spec = PipelineSpec(
        stages=[{"name": "preprocess"}, {"name": "inference", "model": broken},
                {"name": "postprocess"}]
    )  # fmt: skip
    with pytest.raises(gepipe.GepipeError, match=r"broken\.onnx") as caught:
        Service(spec).start()
    assert not isinstance(caught.value, WorkerStartError)


def test_statistics_count_what_was_done(serve):
    answers = serve()
    begin = time.monotonic()
    answers.wait(*[answers.ask(b"%d" % n) for n in range(50)])
    elapsed_s = time.monotonic() - begin

    seen = answers.service.statistics()

    assert (seen.done, seen.in_work) == (50, 0)
    executions = answers.service.executed()
    assert sum(each.items for each in executions) == 50
    assert all(0 < each.busy_s < elapsed_s > each.waited_s > 0 for each in executions)
    assert answers.service.executed() == []


def test_no_worker_outlives_its_service(serve):
    answers = serve()
    everyone = [
        pid for role in ("pre", "infer", "post") for pid in workers_of(answers.service, role)
    ]
    assert len(everyone) >= 4

    answers.service.close()

    assert not [pid for pid in everyone if is_alive(pid)]
    assert not children_of(os.getpid()) & set(everyone)


@pytest.mark.skipif(not MODEL.is_file(), reason="gepipe samples fetch classify")
def test_photos_get_the_results_of_a_run():
    from gepipe.spec.load import load

    spec = load(ROOT / "pipelines/classify.yaml")
    photos = [jpeg(360, 480, seed) for seed in range(12)]
    with gepipe.Pipeline(spec) as pipeline:
        expected = [result.value for result in pipeline.run(photos)]

    with Service(spec) as service:
        service.start()
        answers = Answers(service)
        results = answers.wait(*[answers.ask(photo) for photo in photos])

    for result, value in zip(results, expected, strict=True):
        assert [c["class"] for c in result["top_k"]] == [c["class"] for c in value["top_k"]]
        scores = [c["score"] for c in value["top_k"]]
        assert [c["score"] for c in result["top_k"]] == pytest.approx(scores, rel=1e-4)
