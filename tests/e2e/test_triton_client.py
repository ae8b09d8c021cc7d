"""`gepipe triton infer` and `gepipe run --via` with a real server whose model knows its tricks."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gepipe.triton.address import Address
from gepipe.triton.bell import Bell
from gepipe.triton.connection import Busy, Connection, ServedModel
from gepipe.triton.ports import free_ports
from gepipe.triton.runs import new_run
from gepipe.triton.server import Server
from tests.served import held
from tests.support import pause, wait_until

GEPIPE = [sys.executable, "-c", "from gepipe.cli.app import main; main()"]
#: Answers by content: `bad…` is refused; `busy…` finds a full queue the first time.
PHOTOS = """
import hashlib, json, threading
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    seen = set()

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        blob = pb_utils.get_input_tensor_by_name(request, "IMAGE").as_numpy()[0, 0]
        if blob.startswith(b"bad"):
            text = "preprocess: truncated: the JPEG: cut off at 12: 3 bytes"
            return self.refused(text, pb_utils.TritonError.INVALID_ARG)
        if blob.startswith(b"busy") and blob not in self.seen:
            self.seen.add(blob)
            return self.refused("Exceeds maximum queue size", pb_utils.TritonError.UNAVAILABLE)
        if blob.startswith(b"slow"):
            threading.Event().wait(0.5)
        if blob.startswith(b"late"):
            threading.Event().wait(2)
        record = {"bytes": len(blob), "sha": hashlib.sha256(blob).hexdigest()}
        record["realtime"] = json.loads(request.parameters() or "{}").get("realtime")
        out = np.array([[json.dumps(record).encode()]], dtype=object)
        return pb_utils.InferenceResponse([pb_utils.Tensor("RESULT", out)])

    def refused(self, text, code):
        return pb_utils.InferenceResponse(error=pb_utils.TritonError(text, code))
"""
NUMBERS = """
import json
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        replies = []
        for request in requests:
            rows = pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy()
            out = [[json.dumps({"sum": float(row.sum())}).encode()] for row in rows]
            tensor = pb_utils.Tensor("RESULT", np.array(out, dtype=object))
            replies.append(pb_utils.InferenceResponse([tensor]))
        return replies
"""
CONFIG = """backend: "python"
max_batch_size: 4
input [ {{ name: "{input}" data_type: TYPE_{dtype} dims: [ {extent} ] }} ]
output [ {{ name: "RESULT" data_type: TYPE_STRING dims: [ 1 ] }} ]
instance_group [ {{ kind: KIND_CPU count: 2 }} ]
"""
ALBUM = """max_batch_size: 4
platform: "ensemble"
input [ { name: "IMAGE" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "RESULT" data_type: TYPE_STRING dims: [ 1 ] } ]
ensemble_scheduling {
  step [
    {
      model_name: "inner"
      model_version: -1
      input_map { key: "IMAGE" value: "IMAGE" }
      output_map { key: "RESULT" value: "RESULT" }
    }
  ]
}
"""
YAML = """
pipeline:
  name: {name}
  source: {source}
  stages: [{{name: preprocess}}, {{name: inference}}, {{name: postprocess}}]
  sink: {{jsonl: out.jsonl}}
"""


@pytest.fixture(scope="module")
def server(triton_kit, tmp_path_factory) -> Iterator[Server]:
    tmp = tmp_path_factory.mktemp("client")
    repository = tmp / "models"
    for name, code, config in (
        ("photos", PHOTOS, {"input": "IMAGE", "dtype": "STRING", "extent": 1}),
        ("numbers", NUMBERS, {"input": "INPUT", "dtype": "FP32", "extent": -1}),
        ("inner", PHOTOS, {"input": "IMAGE", "dtype": "STRING", "extent": 1}),
        ("leaving", PHOTOS, {"input": "IMAGE", "dtype": "STRING", "extent": 1}),
    ):
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(CONFIG.format(**config))
        (repository / name / "1" / "model.py").write_text(code)
    (repository / "album" / "1").mkdir(parents=True)
    (repository / "album" / "config.pbtxt").write_text(ALBUM)
    ports = free_ports("127.0.0.1", {"http": 0, "grpc": 0, "metrics": 0})
    with new_run() as run, Bell() as bell, Server(triton_kit, run, repository, ports) as running:
        running.wait_live(bell)
        for name in ("photos", "numbers", "inner", "album"):
            running.control.load(name)
        yield running
        running.stop(10, bell)


@pytest.fixture(params=["http", "grpc"])
def url(request, server) -> str:
    return f"{request.param}://127.0.0.1:{server.ports[request.param]}"


@pytest.fixture
def photos(tmp_path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(40):
        kind = {7: b"bad", 9: b"busy", 30: b"bad"}.get(number, b"good")
        content = kind + os.urandom(500 + number) + b"\0\0"
        (folder / f"{number:02}.jpg").write_bytes(content)
    return folder


def gepipe(folder: Path, *words: str, expected: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command, which leaves no shared memory of its own behind."""
    with subprocess.Popen(
        [*GEPIPE, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder
    ) as process:
        out, err = process.communicate(timeout=150)
    assert process.returncode == expected, out + err
    assert list(Path("/dev/shm").glob(f"gepipe_client_{process.pid}_*")) == []
    return subprocess.CompletedProcess(words, expected, out, err)


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.usefixtures("photos")
def test_job_through_a_server_writes_the_files_of_a_local_run(tmp_path, url) -> None:
    (tmp_path / "p.yaml").write_text(YAML.format(name="photos", source="{images: photos}"))

    done = gepipe(tmp_path, "run", "p.yaml", "--via", url, expected=3)

    found = lines(tmp_path / "out.jsonl")
    assert [each["index"] for each in found] == [n for n in range(40) if n not in (7, 30)]
    for each in found:
        content = (tmp_path / each["source"]).read_bytes()
        assert each["result"]["sha"] == hashlib.sha256(content).hexdigest()
    assert lines(tmp_path / "out.failures.jsonl")[0] == {
        "index": 7,
        "source": "photos/07.jpg",
        "stage": "preprocess",
        "kind": "truncated",
        "error": "the JPEG: cut off at 12: 3 bytes",
    }
    assert "38 of 40 inputs with results" in done.stdout


def test_job_goes_on_where_it_was_stopped(tmp_path, server) -> None:
    (tmp_path / "photos").mkdir()
    for number in range(30):
        kind = b"slow" if number >= 12 else b"good"
        (tmp_path / "photos" / f"{number:02}.jpg").write_bytes(kind + bytes([number]))
    (tmp_path / "p.yaml").write_text(YAML.format(name="photos", source="{images: photos}"))
    url = f"http://127.0.0.1:{server.ports['http']}"
    command = [*GEPIPE, "run", "p.yaml", "--via", url, "--concurrency", "2"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    out = tmp_path / "out.jsonl"
    wait_until(lambda: out.exists() and len(out.read_bytes().splitlines()) >= 12)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=200)
    assert process.returncode == 130, said
    assert "--resume" in said
    begun = len(lines(out))
    assert begun < 30

    done = gepipe(tmp_path, "run", "p.yaml", "--via", url, "--resume")

    assert "left of 30" in done.stderr
    assert [each["index"] for each in lines(out)] == list(range(30))


def test_a_model_that_is_gone_after_it_was_described_may_come_back(server) -> None:
    """So says a server that stops: a job must not count its items as failures."""
    connection = Connection(Address.parse(f"grpc://127.0.0.1:{server.ports['grpc']}"), 5)
    connection.open()
    with pytest.raises(Busy, match=r"unknown model: 'gone' .*; the server is being stopped, or"):
        connection.call(ServedModel("gone", "IMAGE", "BYTES", True, "RESULT"), b"good")
    connection.close()


def test_arrays_go_through_shared_memory_and_leave_none(tmp_path, url, server) -> None:
    rows = np.random.default_rng(0).random((5, 400_000), np.float32)
    np.save(tmp_path / "rows.npy", rows)
    (tmp_path / "p.yaml").write_text(YAML.format(name="numbers", source="{npy: rows.npy}"))

    gepipe(tmp_path, "run", "p.yaml", "--via", url)

    sums = [each["result"]["sum"] for each in lines(tmp_path / "out.jsonl")]
    assert np.allclose(sums, rows.sum(1), rtol=1e-4)
    address = f"http://127.0.0.1:{server.ports['http']}/v2/systemsharedmemory/status"
    with urllib.request.urlopen(address, timeout=200) as answer:
        assert json.load(answer) == []


def test_infer_shows_a_line_a_file_and_tells_failures(tmp_path, photos, url) -> None:
    names = [str(photos / f"{number:02}.jpg") for number in (6, 7, 8)]

    words = ("triton", "infer", url, "photos", *names, "--priority", "realtime")
    done = gepipe(tmp_path, *words, expected=3)

    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["source"] for each in found] == [names[0], names[2]]
    assert [each["result"]["realtime"] for each in found] == [True, True]
    assert "07.jpg: preprocess: the JPEG: cut off at 12: 3 bytes" in done.stderr


def test_infer_writes_other_formats_too(tmp_path, photos, url) -> None:
    gepipe(tmp_path, "triton", "infer", url, "photos", str(photos), "--output", "o.csv", expected=3)

    table = (tmp_path / "o.csv").read_text().splitlines()
    assert len(table) == 1 + 38
    assert "sha" in table[0]


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("absent", "model 'absent': there is no such model; it serves album, numbers, photos"),
        ("photo", "model 'photo': there is no such model; did you mean 'photos'? it serves album"),
        ("numbers", "takes FP32 as 'INPUT', not the bytes of a file"),
    ],
)
def test_wrong_model_is_told(tmp_path, photos, url, model, said) -> None:
    done = gepipe(tmp_path, "triton", "infer", url, model, str(photos), expected=2)

    assert said in done.stderr
    assert done.stdout == ""


def test_a_run_of_a_pipeline_that_is_not_served_names_what_is(tmp_path, photos, url) -> None:
    (tmp_path / "p.yaml").write_text(YAML.format(name="foto", source=f"{{images: {photos}}}"))

    done = gepipe(tmp_path, "run", "p.yaml", "--via", url, expected=2)

    assert "model 'foto': there is no such model; did you mean 'photos'? it serves" in done.stderr


def states_of(server: Server) -> dict[str, Any]:
    return {each["name"]: each.get("state") for each in server.control.index()}


def test_a_model_that_is_away_when_a_job_begins_is_waited_for(tmp_path, url, server) -> None:
    (tmp_path / "a.jpg").write_bytes(b"good")
    words = ("triton", "infer", url, "leaving", "a.jpg")
    server.control.load("leaving")
    server.control.unload("leaving")  # as a server does that is being stopped
    wait_until(lambda: states_of(server)["leaving"] == "UNAVAILABLE")

    done = gepipe(tmp_path, *words, "--patience", "0.5", expected=5)

    assert "took no call within 0.5 s: Request for unknown model: 'leaving'" in done.stderr
    assert "the server is being stopped, or loads it anew" in done.stderr
    with subprocess.Popen(
        [*GEPIPE, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path, text=True
    ) as waiting:
        assert "waiting for the server" in (waiting.stderr.readline() if waiting.stderr else "")
        server.control.load("leaving")
        said, _ = waiting.communicate(timeout=200)
    assert waiting.returncode == 0
    assert '"bytes": 4' in said


@pytest.mark.usefixtures("photos")
def test_source_that_gives_another_kind_than_the_model_takes_is_told(tmp_path, url) -> None:
    (tmp_path / "p.yaml").write_text(YAML.format(name="numbers", source="{images: photos}"))

    done = gepipe(tmp_path, "run", "p.yaml", "--via", url, expected=2)

    assert "takes FP32 as 'INPUT', and the source of 'numbers' gives files" in done.stderr


def test_port_of_another_protocol_is_told(tmp_path, photos, server) -> None:
    url = f"http://127.0.0.1:{server.ports['grpc']}"

    done = gepipe(tmp_path, "triton", "infer", url, "photos", str(photos), expected=2)

    assert "perhaps grpc:// is meant" in done.stderr


def test_server_that_is_gone_ends_the_job_with_what_was_tried(tmp_path, photos) -> None:
    with socket.socket() as taken:  # nobody else can listen there, and it does not
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        words = ("triton", "infer", url, "photos", str(photos))
        done = gepipe(tmp_path, *words, "--patience", "0.3", expected=5)

    assert "took no call within 0.3 s: cannot connect: Connection refused" in done.stderr


def test_limit_of_a_call_is_an_items_failure_and_none_of_the_first_question(
    tmp_path, url, server
) -> None:
    (tmp_path / "late.jpg").write_bytes(b"late")
    port = int(url.rpartition(":")[2])

    words = ("triton", "infer", url, "photos", str(tmp_path / "late.jpg"), "--timeout", "0.1")
    with ThreadPoolExecutor(1) as pool:
        with held(server.pid):
            asked = pool.submit(gepipe, tmp_path, *words, expected=3)
            wait_until(lambda: has_caller(port))
            pause(0.5)
        done = asked.result()

    assert "server: no answer within 0.1 s" in done.stderr


def has_caller(port: int) -> bool:
    """Whether somebody has connected to a port of this machine."""
    text = "".join(Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6"))
    rows = [line.split() for line in text.splitlines()]
    return any(row[2].endswith(f":{port:04X}") and row[3] == "01" for row in rows)
