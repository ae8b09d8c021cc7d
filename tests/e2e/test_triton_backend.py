"""The backend `ge` in a real Triton server: on the CPU, and on an emulated card."""

from __future__ import annotations

import http.client
import json
import os
import signal
import time
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
from tritonclient import grpc
from tritonclient.utils import InferenceServerException

from gepipe.emulator.convert import convert_onnx
from gepipe.emulator.om import Gears, OmTensor, write_om
from gepipe.tensors import DTYPE_OF_TRITON, DTYPES
from gepipe.triton.bell import Bell
from gepipe.triton.control import ControlError
from gepipe.triton.ports import free_ports
from gepipe.triton.runs import new_run
from gepipe.triton.server import Server
from tests.served import held
from tests.support import (
    children_of,
    doubling_model,
    family_of,
    is_alive,
    jpeg,
    onnx_model,
    wait_until,
)

ONNX = 'parameters { key: "engine" value: { string_value: "onnxruntime" } }'
CPU = "instance_group [ { kind: KIND_CPU count: 1 } ]"
NPU = "instance_group [ { kind: KIND_MODEL count: 1 } ]"
PRIORITIES = "dynamic_batching { priority_levels: 2 default_priority_level: 2 }"
XY = """
input [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 4 ] } ]
"""


def parameter(key: str, value: str) -> str:
    text = value.replace('"', '\\"')
    return f'parameters {{ key: "{key}" value: {{ string_value: "{text}" }} }}'


# --- the server and its models --------------------------------------------------------------------


class Repository:
    """A folder of models, and the profiles of the cards that they run on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "models"
        self.profiles = folder / "profiles"
        self.profiles.mkdir()

    def add(self, name: str, *config: str, backend: str = "ge") -> Path:
        """Add a model; return its version folder."""
        folder = self.folder / name / "1"
        folder.mkdir(parents=True)
        head = () if backend == "ensemble" else (f'backend: "{backend}"',)
        (folder.parent / "config.pbtxt").write_text("\n".join((*head, *config)))
        return folder

    def card(self, name: str, text: str) -> str:
        """Add a profile; return the parameter of a model that runs on such a card."""
        path = self.profiles / f"{name}.yaml"
        path.write_text(f"name: {name}-{os.getpid()}\n{text}\n")
        options = {"device": "emulator", "profile": str(path)}
        return parameter("engine_options", json.dumps(options))


def lasting_model(path: Path) -> None:
    """Write a model that only takes time."""
    write_om(
        path,
        None,
        inputs=[OmTensor("x", "float32", (-1, 4))],
        outputs=[OmTensor("y", "float32", (-1, 4))],
        gears=Gears("batch", ((1,), (4,))),
    )


def identities(path: Path, types: Mapping[str, str]) -> Path:
    """Write a model that gives back each of its inputs."""
    return onnx_model(
        path,
        [("Identity", [f"in_{name}"], [f"out_{name}"], {}) for name in types],
        {f"in_{name}": (dtype, ["n", 3]) for name, dtype in types.items()},
        {f"out_{name}": (dtype, ["n", 3]) for name, dtype in types.items()},
    )


TYPES = {
    "FP16": "float16",
    "BOOL": "bool",
    "INT8": "int8",
    "UINT8": "uint8",
    "INT32": "int32",
    "INT64": "int64",
}


RAW = """
input [ { name: "pixels" data_type: TYPE_STRING dims: [ 1 ] },
        { name: "mask" data_type: TYPE_INT8 dims: [ 3 ] } ]
output [ { name: "same" data_type: TYPE_STRING dims: [ 1 ] },
         { name: "twice" data_type: TYPE_STRING dims: [ 1 ] } ]
"""


def raw_model(path: Path) -> Path:
    """Write a model that gives back its pixels, and its mask added to itself."""
    return onnx_model(
        path,
        [("Identity", ["pixels"], ["same"], {}), ("Add", ["mask", "mask"], ["twice"], {})],
        {"pixels": ("uint8", ["n", 2, 3]), "mask": ("int8", ["n", 3])},
        {"same": ("uint8", ["n", 2, 3]), "twice": ("int8", ["n", 3])},
    )


def fill(made: Repository, tmp: Path) -> None:
    """Add the models that are loaded from the beginning."""
    graph = doubling_model(tmp / "npu.onnx").read_bytes()
    two = made.card("two", "devices: 2")

    doubling_model(made.add("bare", ONNX, CPU) / "model.onnx")
    doubling_model(made.add("fixed", "max_batch_size: 8", ONNX, CPU, XY) / "model.onnx", 4)
    single = XY.replace("[ 4 ]", "[ -1, 4 ]")
    doubling_model(made.add("single", "max_batch_size: 0", ONNX, CPU, single) / "model.onnx", 3)
    raw_model(made.add("raw", "max_batch_size: 4", ONNX, CPU, RAW) / "model.onnx")
    folder = made.add("rawnpu", made.card("raw", "devices: 1"), "max_batch_size: 4", NPU, RAW)
    graph_ = raw_model(tmp / "raw.onnx").read_bytes()
    convert_onnx(folder / "model.om", graph_, gears=Gears("batch", ((1,), (4,))))
    identities(made.add("types", "max_batch_size: 4", ONNX, CPU) / "model.onnx", TYPES)
    folder = made.add("typesnpu", made.card("types", "devices: 1"), "max_batch_size: 4", NPU)
    graph_ = identities(tmp / "types.onnx", TYPES).read_bytes()
    convert_onnx(folder / "model.om", graph_, gears=Gears("batch", ((1,), (4,))))

    folder = made.add(
        "npu",
        "max_batch_size: 8",
        two,
        parameter("device_ids", "0,1"),
        parameter("stage", "inference"),
        "instance_group [ { kind: KIND_MODEL count: 2 } ]",
    )
    convert_onnx(folder / "model.om", graph, gears=Gears("batch", ((1,), (4,), (8,))))

    made.card("busy", "devices: 1\nlatency_ms: 100")  # the environment says to use it
    lasting_model(
        made.add(
            "busy",
            NPU,
            PRIORITIES,
        )
        / "model.om"
    )
    queue = parameter("max_queue_size", "12")
    lasting_model(made.add("own", "max_batch_size: 4", NPU, queue, XY) / "model.om")
    pair = (
        made.card("pair", "devices: 2\nlatency_ms: 100"),
        parameter("device_ids", "0,1"),
    )
    lasting_model(made.add("pair", "max_batch_size: 4", NPU, *pair, queue, XY) / "model.om")
    queue = parameter("max_queue_size", "1")
    doubling_model(made.add("exact", "max_batch_size: 4", CPU, ONNX, queue, XY) / "model.onnx")
    for name, limit, fault in (
        ("once", "1.5s", f"at: 4, once_file: {tmp / 'once'}"),
        ("hangs", "1.5s", "at: 2, times: 9999"),
        ("given_up", "600s", f"at: 2, once_file: {tmp / 'begun'}"),
    ):
        faults = f"[{{call: mdl.execute_async, hang: true, {fault}}}]"
        card = made.card(name, f"devices: 1\nlatency_ms: 1\nfaults: {faults}")
        more = (card, NPU, parameter("timeout", limit), XY)
        lasting_model(made.add(name, "max_batch_size: 4", *more) / "model.om")


@pytest.fixture(scope="module")
def repository(tmp_path_factory) -> Repository:
    tmp = tmp_path_factory.mktemp("triton")
    made = Repository(tmp)
    fill(made, tmp)
    add_ensemble(made)
    add_line(made)
    return made


@pytest.fixture(scope="module")
def server(triton_kit, repository, monkeypatch_module) -> Iterator[Server]:
    """Yield a server with all models loaded."""
    names = [path.name for path in repository.folder.iterdir()]
    monkeypatch_module.setenv("GEPIPE_ACL", "emulator")
    monkeypatch_module.setenv("GEPIPE_ACL_PROFILE", str(repository.profiles / "busy.yaml"))
    purposes = dict.fromkeys(("http", "grpc", "metrics"), 0)
    with (
        Bell() as bell,
        new_run() as run,
        Server(triton_kit, run, repository.folder, free_ports("127.0.0.1", purposes)) as started,
    ):
        started.wait_live(bell)
        ensembles = {"line", "whole"}  # need the others
        for group in (set(names) - ensembles, ensembles):
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(started.control.load, sorted(group)))
        yield started
        regions, family = len(run.regions()), family_of(started.pid)
        started.stop(20, bell)
        assert regions
        assert len(family) > 3 * 10  # stub, fork server and worker of each instance
        assert not run.regions()
        wait_until(lambda: not any(map(is_alive, family)))


@pytest.fixture(scope="module")
def monkeypatch_module() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


class Answer:
    """What the server answered."""

    def __init__(self, status: int, error: str, outputs: Mapping[str, Any]) -> None:
        self.status, self.error, self.outputs = status, error, outputs

    def __getitem__(self, name: str) -> Any:
        assert not self.error
        return self.outputs[name]


def infer(server: Server, model: str, outputs=(), parameters=None, /, **inputs) -> Answer:
    """Send one request in the binary form of the protocol."""
    tensors, blobs = [], []
    for name, array in inputs.items():
        if array.dtype == object:
            data = b"".join(len(each).to_bytes(4, "little") + each for each in array.flat)
            kind = "BYTES"
        else:
            data, kind = array.tobytes(), DTYPES[array.dtype.name].triton
        blobs.append(data)
        tensors.append(
            {"name": name, "shape": list(array.shape), "datatype": kind,
             "parameters": {"binary_data_size": len(data)}}
        )  # fmt: skip
    asked: dict[str, Any] = {"inputs": tensors, "parameters": dict(parameters or {})}
    if outputs:
        asked["outputs"] = [{"name": n, "parameters": {"binary_data": True}} for n in outputs]
    else:
        asked["parameters"]["binary_data_output"] = True
    head = json.dumps(asked).encode()
    connection = http.client.HTTPConnection("127.0.0.1", server.ports["http"], timeout=200)
    try:
        connection.request(
            "POST",
            f"/v2/models/{model}/infer",
            head + b"".join(blobs),
            {"Inference-Header-Content-Length": str(len(head)), "Connection": "close"},
        )
        reply = connection.getresponse()
        length = int(reply.getheader("Inference-Header-Content-Length", 0))
        body = reply.read()
    finally:
        connection.close()
    said = json.loads(body[:length] if length else body)
    found, at = {}, length
    for tensor in said.get("outputs", ()):
        size = tensor["parameters"]["binary_data_size"]
        data = body[at : at + size]
        at += size
        if tensor["datatype"] == "BYTES":
            found[tensor["name"]] = texts_in(data)
        else:
            dtype = DTYPE_OF_TRITON[tensor["datatype"]].name
            found[tensor["name"]] = np.frombuffer(data, dtype).reshape(tensor["shape"])
    return Answer(reply.status, said.get("error", ""), found)


def texts_in(data: bytes) -> list[bytes]:
    found = []
    while data:
        size = int.from_bytes(data[:4], "little")
        found.append(data[4 : 4 + size])
        data = data[4 + size :]
    return found


def rows(count: int, first: float = 0) -> np.ndarray:
    return np.arange(first, first + 4 * count, dtype=np.float32).reshape(count, 4)


def metric(server: Server, name: str, **labels: str) -> float:
    """Return the sum of a metric's values that bear all the labels."""
    url = f"http://127.0.0.1:{server.ports['metrics']}/metrics"
    with urllib.request.urlopen(url, timeout=200) as page:
        lines = page.read().decode().splitlines()
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    return sum(
        float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith(f"{name}{{") and all(each in line for each in wanted)
    )


def workers_of(server: Server, instance: str) -> set[int]:
    """Return the processes that have an instance's model open, one for each device."""
    (stub,) = [
        pid for pid in family_of(server.pid)
        if instance in (words := Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0"))
        and "stub" in words[0]
    ]  # fmt: skip
    return {child for each in children_of(stub) for child in children_of(each)}


def worker_of(server: Server, instance: str) -> int:
    """Return the one process that has an instance's model open."""
    (worker,) = workers_of(server, instance)
    return worker


def wait_waiting(server: Server, model: str, count: int) -> None:
    """Wait until so many requests have come to a model."""
    wait_until(lambda: server.waiting()[model] >= count)


# --- what the model is ----------------------------------------------------------------------------


def test_configuration_is_completed_from_the_model(server) -> None:
    config = server.control.config("bare")

    assert config["max_batch_size"] == 8
    for side, name in (("input", "x"), ("output", "y")):
        (tensor,) = config[side]
        assert (tensor["name"], tensor["data_type"]) == (name, "TYPE_FP32")
        assert [int(extent) for extent in tensor["dims"]] == [4]
    assert server.control.config("busy")["max_batch_size"] == 4
    x = rows(8)
    assert np.array_equal(infer(server, "bare", x=x)["y"], 2 * x + 1)


def test_batches_of_any_size_go_through_gears_on_two_cards(server) -> None:
    with ThreadPoolExecutor(8) as pool:
        asked = [rows(1 + number % 8, 100 * number) for number in range(40)]
        answers = list(pool.map(lambda x: infer(server, "npu", x=x), asked))

    assert all(
        np.array_equal(answer["y"], 2 * x + 1) for x, answer in zip(asked, answers, strict=True)
    )
    counts = [metric(server, "gepipe_rows_total", model="npu", device=d) for d in ("0", "1")]
    assert all(counts)
    assert sum(counts) == sum(len(x) for x in asked)


@pytest.mark.parametrize("count", [1, 4, 7, 8])
def test_model_of_a_fixed_batch_is_padded_and_repeated(server, count) -> None:
    x = rows(count)
    assert np.array_equal(infer(server, "fixed", x=x)["y"], 2 * x + 1)


@pytest.mark.parametrize("count", [0, 1, 3, 5])
def test_model_without_batches_takes_any_number_of_rows(server, count) -> None:
    x = rows(count)
    answer = infer(server, "single", x=x)
    assert np.array_equal(answer["y"], 2 * x + 1)


@pytest.mark.parametrize("model", ["types", "typesnpu"])
def test_types_pass_as_they_are(server, model) -> None:
    random = np.random.default_rng(7)
    asked = {
        f"in_{name}": random.integers(0, 2 if name == "BOOL" else 100, (3, 3)).astype(dtype)
        for name, dtype in TYPES.items()
    }

    answer = infer(server, model, **asked)

    for name in TYPES:
        made = answer[f"out_{name}"]
        assert made.dtype == asked[f"in_{name}"].dtype
        assert np.array_equal(made, asked[f"in_{name}"])


def over_grpc(server: Server, model: str, **inputs: np.ndarray) -> grpc.InferResult:
    client = grpc.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}")
    tensors = []
    for name, array in inputs.items():
        kind = "BYTES" if array.dtype == object else DTYPES[array.dtype.name].triton
        tensors.append(grpc.InferInput(name, list(array.shape), kind))
        tensors[-1].set_data_from_numpy(array)
    try:
        return client.infer(model, tensors, client_timeout=200)
    finally:
        client.close()


@pytest.mark.parametrize("model", ["raw", "rawnpu"])
def test_rows_of_bytes_travel_as_they_are(server, model) -> None:
    pixels = [bytes([0, 255, 10, 0, 13, number]) for number in range(3)]
    texts = np.array(pixels, object).reshape(3, 1)
    mask = np.arange(9, dtype=np.int8).reshape(3, 3)

    over_http = infer(server, model, pixels=texts, mask=mask)
    result = over_grpc(server, model, pixels=texts, mask=mask)

    twice = [bytes(row) for row in (2 * mask).tolist()]
    assert over_http["same"] == pixels
    assert over_http["twice"] == twice
    assert result.as_numpy("same").tolist() == [[each] for each in pixels]
    assert result.as_numpy("twice").tolist() == [[each] for each in twice]


def test_bytes_of_another_size_are_refused_by_name(server) -> None:
    texts = np.array([[b"123456"], [b"1234567"]], object)
    mask = np.zeros((2, 3), np.int8)
    said = "raw: shape: input 'pixels': row 1 has 7 bytes; expected 6, a row of uint8 [2, 3]"

    with ThreadPoolExecutor(2) as pool:
        good = pool.submit(infer, server, "raw", pixels=texts[:1], mask=mask[:1])
        answer = infer(server, "raw", pixels=texts, mask=mask)
    with pytest.raises(InferenceServerException) as caught:
        over_grpc(server, "raw", pixels=texts, mask=mask)

    assert (answer.status, answer.error) == (400, said)
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
    assert caught.value.message() == said
    assert good.result()["same"] == [b"123456"]


def test_only_the_outputs_that_are_asked_for_are_sent(server) -> None:
    asked = {f"in_{name}": np.zeros((1, 3), dtype) for name, dtype in TYPES.items()}
    assert list(infer(server, "types", ["out_INT8"], **asked).outputs) == ["out_INT8"]


# --- what is wrong with a model -------------------------------------------------------------------


def refused(server: Server, repository: Repository, name: str, *config: str, model=None) -> str:
    """Return why a model does not load."""
    folder = repository.add(name, *config)
    if model is not None:
        model(folder / "model.onnx")
    with pytest.raises(ControlError) as caught:
        server.control.load(name)
    return str(caught.value)


def test_onnx_file_where_om_belongs_names_the_conversion(server, repository) -> None:
    said = refused(server, repository, "noom", NPU, model=doubling_model)
    assert "model file is not .om format" in said
    assert "gepipe model convert" in said


def test_model_that_is_missing_is_told(server, repository) -> None:
    assert "there is no model file" in refused(server, repository, "nofile", NPU)


def test_configuration_that_does_not_fit_the_model_is_refused(server, repository) -> None:
    wrong = XY.replace('"x"', '"z"')
    said = refused(
        server, repository, "nofit", "max_batch_size: 4", ONNX, wrong, model=doubling_model
    )
    assert "the model has no input 'z'; known: x" in said


def test_card_that_does_not_exist_is_told(server, repository) -> None:
    folder = repository.add(
        "nocard", repository.card("one", "devices: 1"), NPU, parameter("device_ids", "7")
    )
    lasting_model(folder / "model.om")
    with pytest.raises(ControlError, match="device 7 does not exist"):
        server.control.load("nocard")


# --- what goes wrong at work ----------------------------------------------------------------------


def test_worker_that_is_killed_costs_no_request(server) -> None:
    x = rows(2)
    before = infer(server, "bare", x=x)["y"]
    os.kill(worker_of(server, "bare_0_0"), signal.SIGKILL)

    assert np.array_equal(infer(server, "bare", x=x)["y"], before)
    assert metric(server, "gepipe_restarts_total", model="bare") == 1


def test_card_that_hangs_once_costs_no_request(server) -> None:
    for count in (1, 2, 3, 4):  # the fourth execution hangs; the first was made on loading
        assert infer(server, "once", x=rows(count))["y"].shape == (count, 4)
    assert metric(server, "gepipe_restarts_total", model="once") == 1
    assert metric(server, "gepipe_failures_total", model="once") == 0


def test_card_that_always_hangs_fails_each_request_within_its_limit(server) -> None:
    for _ in range(2):
        begin = time.monotonic()
        answer = infer(server, "hangs", x=rows(1))
        assert time.monotonic() - begin < 30
        assert answer.status == 503
        assert answer.error.startswith("hangs: timeout: ")
    assert metric(server, "gepipe_failures_total", model="hangs", kind="timeout") == 2


def test_request_whose_time_is_over_is_not_tried_again(server) -> None:
    answer = infer(server, "hangs", (), {"timeout": 100_000}, x=rows(1))
    assert answer.error == "hangs: expired: the request's timeout of 0.1 s has passed"


def test_requests_that_wait_share_an_execution(server) -> None:
    before = metric(server, "gepipe_batch_rows_count", model="busy")
    with ThreadPoolExecutor(9) as pool:
        with held(worker_of(server, "busy_0_0")):
            asked = [pool.submit(infer, server, "busy", x=rows(1, n)) for n in range(9)]
            wait_waiting(server, "busy", 5)  # up to four may be in the first execution
        answers = [each.result() for each in asked]

    assert all(answer["y"].shape == (1, 4) for answer in answers)
    # The first one, two for those that wait behind it, and one each for three that come late.
    assert metric(server, "gepipe_batch_rows_count", model="busy") - before <= 6
    assert metric(server, "gepipe_device_busy_seconds_total", model="busy") >= 0.3
    assert metric(server, "gepipe_execution_seconds_sum", model="busy") >= 0.3
    assert metric(server, "gepipe_available", model="busy") == 1


def test_request_that_was_cancelled_is_not_tried_again(server, repository) -> None:
    client = grpc.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}")
    tensor = grpc.InferInput("x", [1, 4], "FP32")
    tensor.set_data_from_numpy(rows(1))
    told: SimpleQueue[Any] = SimpleQueue()

    call = client.async_infer("given_up", [tensor], lambda result, error: told.put(result or error))
    wait_until(repository.folder.with_name("begun").exists)
    call.cancel()
    for _ in range(4):  # the server has heard of it when it has answered what came later
        client.infer("bare", [tensor], client_timeout=200)
    os.kill(worker_of(server, "given_up_0_0"), signal.SIGKILL)

    assert "CANCELLED" in told.get(timeout=200).status()
    client.close()
    cancelled = {"model": "given_up", "kind": "cancelled"}
    wait_until(lambda: metric(server, "gepipe_failures_total", **cancelled) == 1)
    assert metric(server, "gepipe_rows_total", model="given_up") == 0


# --- batches that the backend forms ---------------------------------------------------------------


def test_backend_merges_and_answers_each_request(server) -> None:
    def told() -> list[float]:
        names = ("gepipe_batch_rows_count", "gepipe_wait_seconds_sum")
        return [metric(server, name, model="own") for name in names]

    executions, waited_s = told()
    with ThreadPoolExecutor(9) as pool:
        with held(worker_of(server, "own_0_0")):
            asked = [pool.submit(infer, server, "own", x=rows(1, n)) for n in range(9)]
            wait_waiting(server, "own", 9)
        answers = [each.result() for each in asked]

    assert all(answer["y"].shape == (1, 4) for answer in answers)
    assert 3 <= told()[0] - executions <= 4
    assert told()[1] - waited_s >= 0.1


def test_what_waits_goes_to_whichever_card_of_an_instance_is_free(server) -> None:
    def done(asked: list[Future[Answer]]) -> int:
        return sum(each.done() for each in asked)

    def counts() -> list[float]:
        numbers = ("0", "1")
        return sorted(metric(server, "gepipe_rows_total", model="pair", device=d) for d in numbers)

    free, busy = workers_of(server, "pair_0_0")
    with ThreadPoolExecutor(4) as pool:
        with held(busy):
            with held(free):
                asked = [pool.submit(infer, server, "pair", x=rows(4, n)) for n in range(4)]
                wait_waiting(server, "pair", 4)
            wait_until(lambda: done(asked) == 3)
            assert counts() == [0, 3 * 4]
        assert [each.result().status for each in asked] == [200] * 4

    assert counts() == [4, 3 * 4]


def test_backend_gives_each_request_its_own_rows(server) -> None:
    for count in (1, 3, 4):
        x = rows(count, 10 * count)
        assert np.array_equal(infer(server, "exact", x=x)["y"], 2 * x + 1)


def test_backend_puts_real_time_before_bulk(server) -> None:
    done: list[bool] = []

    def ask(realtime: bool) -> None:
        assert infer(server, "own", (), {"realtime": realtime}, x=rows(4)).status == 200
        done.append(realtime)

    with ThreadPoolExecutor(11) as pool:
        with held(worker_of(server, "own_0_0")):
            asked = [pool.submit(ask, False) for _ in range(10)]
            wait_waiting(server, "own", 10)
            asked.append(pool.submit(ask, True))
            wait_waiting(server, "own", 11)
        for each in asked:
            each.result()

    assert done.index(True) < 6


def test_backend_refuses_what_it_cannot_hold(server) -> None:
    with ThreadPoolExecutor(20) as pool:
        with held(worker_of(server, "own_0_0")):
            asked = [pool.submit(infer, server, "own", x=rows(4)) for _ in range(20)]
            wait_until(lambda: sum(each.done() for each in asked) >= 7)
        answers = [each.result() for each in asked]

    refused = [each for each in answers if each.status == 503]
    assert len(refused) in {7, 8}  # twelve wait; one more where the first was begun in time
    assert all("own: overloaded: 12 requests wait already" in each.error for each in refused)
    assert all(each.status == 200 for each in answers if each not in refused)


def test_request_that_waits_too_long_is_not_executed(server) -> None:
    before = metric(server, "gepipe_rows_total", model="own")
    with ThreadPoolExecutor(6) as pool:
        with held(worker_of(server, "own_0_0")):
            bulk = [pool.submit(infer, server, "own", x=rows(4)) for _ in range(5)]
            wait_waiting(server, "own", 5)
            late = pool.submit(infer, server, "own", (), {"timeout": 50_000}, x=rows(1))
            wait_waiting(server, "own", 6)
        assert all(each.result().status == 200 for each in bulk)

    assert late.result().error == "own: expired: the request's timeout of 0.05 s has passed"
    assert metric(server, "gepipe_rows_total", model="own") - before == 5 * 4


def test_backend_refuses_a_class_that_it_does_not_know(server) -> None:
    answer = infer(server, "exact", (), {"realtime": "soon"}, x=rows(1))
    assert answer.status == 400
    assert "exact: parameter: parameter realtime is 'soon'" in answer.error


# --- the ensemble ---------------------------------------------------------------------------------

PIPELINE = """
stages:
  - name: preprocess
    ops: [{decode_image: {}}, {resize: {size: [8, 8]}}, {to_tensor: {layout: nchw}}]
  - {name: inference, model: model.onnx}
  - {name: postprocess, ops: [{top_k: {k: 1}}]}
"""
STEP = """
from gepipe.serving.{} import {} as TritonPythonModel
"""
TEXT = '{{ name: "{}" data_type: TYPE_STRING dims: [ 1 ] }}'


def classes(path: Path) -> Path:
    """Write a model that sums each channel of an image."""
    return onnx_model(
        path,
        [("ReduceSum", ["x", "axes"], ["y"], {"keepdims": 0})],
        {"x": ("float32", ["n", 3, 8, 8])},
        {"y": ("float32", ["n", 3])},
        {"axes": np.array([2, 3], np.int64)},
    )


def add_ensemble(made: Repository) -> None:
    """Add a pipeline of three steps, as they are exported."""
    image = 'name: "x" data_type: TYPE_FP32 dims: [ 3, 8, 8 ]'
    scores = 'name: "y" data_type: TYPE_FP32 dims: [ 3 ]'
    meta = TEXT.format("ITEM_META")
    sides = {
        "whole_preprocess": (TEXT.format("IMAGE"), f"{{ {image} }}, {meta}", "Preprocess"),
        "whole_postprocess": (f"{{ {scores} }}, {meta}", TEXT.format("RESULT"), "Postprocess"),
    }
    for name, (inputs, outputs, step) in sides.items():
        folder = made.add(
            name, "max_batch_size: 8", f"input [ {inputs} ]", f"output [ {outputs} ]", CPU,
            PRIORITIES, backend="python",
        )  # fmt: skip
        (folder / "model.py").write_text(STEP.format(step.lower(), step))
        (folder / "pipeline.yaml").write_text(PIPELINE)
    folder = made.add(
        "whole_inference", "max_batch_size: 8", ONNX, CPU,
        f"input [ {{ {image} }} ]", f"output [ {{ {scores} }} ]", PRIORITIES,
    )  # fmt: skip
    classes(folder / "model.onnx")
    wired = (("preprocess", {"IMAGE": "IMAGE"}, {"x": "x", "ITEM_META": "meta"}),
             ("inference", {"x": "x"}, {"y": "y"}),
             ("postprocess", {"y": "y", "ITEM_META": "meta"}, {"RESULT": "RESULT"}))  # fmt: skip
    steps = []
    for stage, ins, outs in wired:
        maps = [f'input_map {{ key: "{k}" value: "{v}" }}' for k, v in ins.items()]
        maps += [f'output_map {{ key: "{k}" value: "{v}" }}' for k, v in outs.items()]
        steps.append(f'{{ model_name: "whole_{stage}" model_version: -1 {" ".join(maps)} }}')
    made.add(
        "whole", 'platform: "ensemble"', "max_batch_size: 8",
        f"input [ {TEXT.format('IMAGE')} ]", f"output [ {TEXT.format('RESULT')} ]",
        f"ensemble_scheduling {{ step [ {', '.join(steps)} ] }}", backend="ensemble",
    )  # fmt: skip


def add_line(made: Repository) -> None:
    """Add an ensemble of one step, which takes its time."""
    maps = 'input_map { key: "x" value: "x" } output_map { key: "y" value: "y" }'
    step = f'{{ model_name: "busy" model_version: -1 {maps} }}'
    made.add(
        "line", 'platform: "ensemble"', "max_batch_size: 4", XY,
        f"ensemble_scheduling {{ step [ {step} ] }}", backend="ensemble",
    )  # fmt: skip


def images(*blobs: bytes) -> np.ndarray:
    return np.array([[blob] for blob in blobs], object)


def test_ensemble_gives_what_a_run_gives(server, tmp_path) -> None:
    import gepipe

    paths = []
    for seed in range(4):
        paths.append(tmp_path / f"{seed}.jpg")
        paths[-1].write_bytes(jpeg(seed=seed))
    classes(tmp_path / "model.onnx")
    text = PIPELINE.replace("model.onnx", str(tmp_path / "model.onnx"))
    (tmp_path / "p.yaml").write_text(text)
    output = tmp_path / "out.jsonl"
    gepipe.Pipeline.from_yaml(tmp_path / "p.yaml").job([str(p) for p in paths], str(output)).run()
    expected = [json.loads(line)["result"] for line in output.read_bytes().splitlines()]

    together = infer(server, "whole", IMAGE=images(*(path.read_bytes() for path in paths)))
    alone = [infer(server, "whole", IMAGE=images(path.read_bytes())) for path in paths]

    assert [json.loads(text) for text in together["RESULT"]] == expected
    assert [json.loads(each["RESULT"][0]) for each in alone] == expected


def test_one_bad_request_among_sixteen_fails_alone(server) -> None:
    blobs = [jpeg(seed=number) for number in range(17)]
    blobs[9] = blobs[9][:200]
    alone = [json.loads(infer(server, "whole", IMAGE=images(b))["RESULT"][0]) for b in blobs[:2]]

    with ThreadPoolExecutor(17) as pool:
        answers = list(pool.map(lambda blob: infer(server, "whole", IMAGE=images(blob)), blobs))

    assert [each.status for each in answers] == [200] * 9 + [400] + [200] * 7
    assert answers[9].error.startswith("in ensemble 'whole', preprocess: truncated: ")
    assert [json.loads(each["RESULT"][0]) for each in answers[:2]] == alone


def test_bad_row_of_a_request_is_named(server) -> None:
    answer = infer(server, "whole", IMAGE=images(jpeg(), b"no image"))
    assert "preprocess: not_an_image: row 1: " in answer.error


def test_real_time_request_is_executed_before_the_bulk_that_waits(server) -> None:
    done: list[str] = []

    def ask(kind: str) -> None:
        priority = {"priority": 1 if kind == "real-time" else 2}
        assert infer(server, "line", (), priority, x=rows(4)).status == 200
        done.append(kind)

    with ThreadPoolExecutor(11) as pool:
        with held(worker_of(server, "busy_0_0")):
            asked = [pool.submit(ask, "bulk") for _ in range(10)]
            wait_waiting(server, "busy", 9)  # and one is being executed
            asked.append(pool.submit(ask, "real-time"))
            wait_waiting(server, "busy", 10)
        for each in asked:
            each.result()

    assert done.index("real-time") < 6
