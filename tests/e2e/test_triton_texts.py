"""Models of strings in the backend `ge`, in a real Triton server, by Triton's own clients."""

from __future__ import annotations

import json
import random
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient import grpc, http
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from tests.e2e.serve import Serve
from tests.served import held
from tests.support import children_of, onnx_model, wait_until

HEAD = """backend: "ge"
parameters {{ key: "engine" value: {{ string_value: "onnxruntime" }} }}
instance_group [ {{ kind: KIND_CPU count: 1 }} ]
{}"""


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}\n'


#: The backend forms the batches, and waits for more that could go into one.
MERGED = parameter("max_queue_size", "64") + parameter("max_wait", "40ms")


def add(repository: Path, name: str, config: str, *model: Any) -> None:
    folder = repository / name / "1"
    folder.mkdir(parents=True)
    (folder.parent / "config.pbtxt").write_text(HEAD.format(config))
    onnx_model(folder / "model.onnx", *model)


@pytest.fixture(scope="module")
def repository(tmp_path_factory) -> Path:
    """Return models of strings, of which no more is written than what an engine needs to know."""
    made = tmp_path_factory.mktemp("texts") / "models"
    case = {"case_change_action": "UPPER", "locale": "C.UTF-8"}
    upper = [("StringNormalizer", ["word"], ["upper"], case)]
    one = {"word": ("string", ["n"])}, {"upper": ("string", ["n"])}
    add(made, "upper", parameter("text_bytes", "300"), upper, *one)
    add(made, "merged", "max_batch_size: 16\n" + MERGED, upper, *one)
    codes = {
        "domain": "ai.onnx.ml",
        "keys_strings": ["cat", "Käse"],
        "values_int64s": [7, 8],
        "default_int64": -1,
    }
    add(
        made,
        "codes",
        "max_batch_size: 4\n",
        [
            ("LabelEncoder", ["word"], ["code"], codes),
            ("Identity", ["word"], ["same"], {}),
            ("Cast", ["number"], ["written"], {"to": 8}),
        ],
        {"word": ("string", ["n", 2]), "number": ("float32", ["n", 3])},
        {
            "code": ("int64", ["n", 2]),
            "same": ("string", ["n", 2]),
            "written": ("string", ["n", 3]),
        },
    )
    add(
        made,
        "numbers",  # fails where a string is no number
        "max_batch_size: 16\n" + MERGED,
        [("Cast", ["word"], ["value"], {"to": 1})],
        {"word": ("string", ["n", 1])},
        {"value": ("float32", ["n", 1])},
    )
    add(
        made,
        "fixed",
        "",
        [("Cast", ["word"], ["value"], {"to": 1})],
        {"word": ("string", [4, 1])},
        {"value": ("float32", [4, 1])},
    )
    twice = [("Concat", ["word", "word"], ["twice"], {"axis": 1})]
    add(
        made,
        "twice",
        "max_batch_size: 4\n" + parameter("text_bytes", "24") + MERGED,
        twice,
        {"word": ("string", ["n", 1])},
        {"twice": ("string", ["n", 2])},
    )
    tensors = (
        'input [ {{ name: "{}" data_type: TYPE_STRING dims: [ {} ] }} ]\n'
        'output [ {{ name: "{}" data_type: TYPE_STRING dims: [ {} ] }} ]\n'
    )
    add(
        made,
        "stops",  # makes as many strings as are left
        "max_batch_size: 1\n" + tensors.format("word", 3, "left", 2),
        [("StringNormalizer", ["word"], ["left"], {"stopwords": ["the"], "locale": "C.UTF-8"})],
        {"word": ("string", [1, 3])},
        {"left": ("string", [1, "left"])},
    )
    add(
        made,
        "raw",
        "max_batch_size: 4\n" + tensors.format("pixels", 1, "same", 1),
        [("Identity", ["pixels"], ["same"], {})],
        {"pixels": ("uint8", ["n", 2, 3])},
        {"same": ("uint8", ["n", 2, 3])},
    )
    return made


@pytest.fixture(scope="module")
def server(
    triton_kit,  # noqa: ARG001 - what is started must be installed
    repository,
    tmp_path_factory,
) -> Iterator[Serve]:
    served = Serve(repository, tmp_path_factory.mktemp("serve"))
    try:
        served.wait_ready()
        yield served
        assert served.stop() == 0
    finally:
        served.close()


def infer(server: Serve, module: Any, model: str, **inputs: Any) -> dict[str, np.ndarray]:
    """Send one request, and return all outputs."""
    tensors = []
    for name, values in inputs.items():
        array = values if isinstance(values, np.ndarray) else np.array(values, object)
        kind = "BYTES" if array.dtype == object else np_to_triton_dtype(array.dtype)
        tensor = module.InferInput(name, list(array.shape), kind)
        tensor.set_data_from_numpy(array)
        tensors.append(tensor)
    if module is http:
        answer = over_http(server, model, tensors)
        names = [each["name"] for each in answer.get_response()["outputs"]]
        return {name: answer.as_numpy(name) for name in names}
    with grpc.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:
        answer = client.infer(model, tensors)
        return {each.name: answer.as_numpy(each.name) for each in answer.get_response().outputs}


def over_http(server: Serve, model: str, tensors: Any) -> Any:
    """Send what Triton's client would, whose event loops stay open with the threads of a test."""
    body, length = http.InferenceServerClient.generate_request_body(tensors)
    connection = HTTPConnection("127.0.0.1", server.http, timeout=200)
    try:
        head = {"Inference-Header-Content-Length": str(length), "Connection": "close"}
        connection.request("POST", f"/v2/models/{model}/infer", body, head)
        reply = connection.getresponse()
        said = reply.read()
        if reply.status != 200:
            raise InferenceServerException(json.loads(said)["error"], str(reply.status))
        length = int(reply.getheader("Inference-Header-Content-Length"))
        return http.InferenceServerClient.parse_response_body(said, header_length=length)
    finally:
        connection.close()


BOTH = pytest.mark.parametrize("module", [http, grpc], ids=["http", "grpc"])


def test_configuration_of_strings_is_completed(server) -> None:
    config = server.ask(server.http, "/v2/models/codes/config")[1]

    assert [(each["name"], each["data_type"], each["dims"]) for each in config["input"]] == [
        ("word", "TYPE_STRING", [2]),
        ("number", "TYPE_FP32", [3]),
    ]
    assert [(each["name"], each["data_type"], each["dims"]) for each in config["output"]] == [
        ("code", "TYPE_INT64", [2]),
        ("same", "TYPE_STRING", [2]),
        ("written", "TYPE_STRING", [3]),
    ]


@BOTH
def test_strings_and_numbers_go_through_one_model(server, module) -> None:
    words = [[b"cat", "Käse".encode()], [b"dog", b""], [b"a\0b", "ü€😀".encode()]]
    numbers = np.array([[1.5, 0, -2], [3, 4, 5], [6, 7, 8]], np.float32)

    made = infer(server, module, "codes", word=words, number=numbers)

    assert made["code"].tolist() == [[7, 8], [-1, -1], [-1, -1]]
    assert made["same"].tolist() == words
    assert made["written"].tolist() == [
        [b"1.5", b"0", b"-2"],
        [b"3", b"4", b"5"],
        [b"6", b"7", b"8"],
    ]


@BOTH
@pytest.mark.parametrize("count", [1, 4, 7, 8])
def test_model_of_a_fixed_batch_is_padded_with_strings_that_it_takes(server, module, count) -> None:
    if count > 4:
        with pytest.raises(InferenceServerException, match="batch-size must be <= 4"):
            infer(server, module, "fixed", word=[[str(each)] for each in range(count)])
        return
    made = infer(server, module, "fixed", word=[[str(each)] for each in range(count)])
    assert made["value"][:, 0].tolist() == list(range(count))


def workers_of(server: Serve, model: str) -> set[int]:
    """Return the processes that have a model open: children of its fork server."""
    (stub,) = server.stubs(model)
    return {worker for each in children_of(stub) for worker in children_of(each)}


def told(server: Serve, name: str, model: str) -> float:
    """Return what the server tells of a model by a metric."""
    metrics = server.text.split("metrics http://")[1].split()[0].rstrip(",")
    with urllib.request.urlopen(f"http://{metrics}", timeout=200) as page:
        lines = page.read().decode().splitlines()
    return sum(
        float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith(f"{name}{{") and f'model="{model}"' in line
    )


def merged_since(server: Serve, model: str, before: tuple[float, float] = (0, 0)) -> Any:
    """Return rows and executions since then."""
    names = ("gepipe_rows_total", "gepipe_batch_rows_count")
    rows, executions = (told(server, name, model) for name in names)
    return rows - before[0], executions - before[1]


@BOTH
def test_requests_of_other_lengths_are_merged_and_not_mixed_up(server, module) -> None:
    chance = random.Random(3)
    letters = "abcdefghijklmnopqrstuvwxyzäöü"
    asked = [
        [["".join(chance.choices(letters, k=chance.choice([0, 1, 5, 70, 3000, 20000])))]
         for _ in range(chance.randint(1, 4))]
        for _ in range(48)
    ]  # fmt: skip
    before = merged_since(server, "merged")

    with ThreadPoolExecutor(len(asked)) as pool:
        with held(*workers_of(server, "merged")):
            asking = [pool.submit(infer, server, module, "merged", word=word) for word in asked]
            wait_until(lambda: told(server, "gepipe_open_requests", "merged") == len(asked))
        answers = [each.result() for each in asking]

    for word, answer in zip(asked, answers, strict=True):
        assert answer["upper"].tolist() == [[text.upper().encode()] for (text,) in word]
    rows, executions = merged_since(server, "merged", before)
    assert rows == sum(map(len, asked))
    assert executions < len(asked) / 2


@BOTH
def test_one_bad_string_fails_its_own_request_only(server, module) -> None:
    asked = [[[str(number)], [f"{number}.5"]] for number in range(16)]
    asked[3] = [["3"], ["three"]]  # the model refuses it
    asked[9] = [[b"9"], [b"\xff9"]]
    before = merged_since(server, "numbers")

    def ask(word: Any) -> Any:
        try:
            return infer(server, module, "numbers", word=word)["value"][:, 0].tolist()
        except InferenceServerException as error:
            return error.message()

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(ask, asked))

    for number, answer in enumerate(answers):
        if number not in (3, 9):
            assert answer == [number, number + 0.5]
    assert "stod" in answers[3]
    assert "not_text: input 'word': row 1 is not UTF-8" in answers[9]
    assert merged_since(server, "numbers", before)[0] >= 28


@BOTH
def test_strings_that_are_too_long_are_told(server, module) -> None:
    fits = infer(server, module, "upper", word=[["x" * 296]])
    assert fits["upper"].tolist() == [[b"X" * 296]]
    with pytest.raises(
        InferenceServerException,
        match=r"too_large: input 'word': row 1 takes 301 bytes, 4 for each of 1 strings .* at most "
        "300; set the parameter text_bytes",
    ) as caught:
        infer(server, module, "upper", word=[["x"], ["x" * 297]])
    assert caught.value.status() == ("400" if module is http else "StatusCode.INVALID_ARGUMENT")


@BOTH
def test_strings_that_the_model_makes_too_long_fail_alone(server, module) -> None:
    def ask(word: str) -> Any:
        try:
            return infer(server, module, "twice", word=[[word]])["twice"].tolist()
        except InferenceServerException as error:
            return error.status(), error.message()

    words = ["12345678", "123456789", "x"]
    with ThreadPoolExecutor(3) as pool:
        short, long, other = pool.map(ask, words)

    assert short == [[b"12345678"] * 2]
    assert other == [[b"x"] * 2]
    assert long[0] == ("400" if module is http else "StatusCode.INVALID_ARGUMENT")
    assert "too_large: output 'twice': row" in long[1]


@BOTH
def test_strings_of_another_number_than_is_declared_are_no_answer(server, module) -> None:
    made = infer(server, module, "stops", word=[["the", "bad", "cat"]])
    assert made["left"].tolist() == [[b"bad", b"cat"]]
    with pytest.raises(
        InferenceServerException,
        match=r"shape: output 'left' has rows of shape \[3\]; the configuration has \[2\]",
    ):
        infer(server, module, "stops", word=[["a", "bad", "cat"]])


def test_rows_of_bytes_are_taken_by_lint_too(server) -> None:
    elements = [[bytes(range(6))], [b"\0\xff\0\0\0\0"]]
    assert infer(server, http, "raw", pixels=elements)["same"].tolist() == elements
