"""Exports served by a real Triton server: the same results as `gepipe run`, to the last digit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gepipe.errors import ConfigError, ExportError, GepipeError
from gepipe.serving.client_text import curl_text
from gepipe.serving.export import export
from gepipe.serving.export_plan import plan_export
from gepipe.spec.load import load, loads
from gepipe.triton.bell import Bell
from gepipe.triton.ports import free_ports
from gepipe.triton.runs import new_run
from gepipe.triton.server import Server
from tests.support import jpeg, onnx_model, wait_until

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "samples/models/efficientnet_lite0.onnx"
GEPIPE = [sys.executable, "-c", "from gepipe.cli.app import main; main()"]
#: User code with a module beside it, in pre and in post; post sees what pre has noted.
OPS = """
import os
import threading

import numpy as np
import tables


def head(blob, meta):
    if blob == b"ab":
        raise ValueError("half a pair: \\ud800")
    meta["length"] = len(blob)
    meta["pair"] = (1, b"two")
    return np.frombuffer(blob[:4], np.uint8).astype(np.float32) * tables.FACTOR


def corner(picture):
    return picture[0, :4, 0].astype(np.float32)


def box(outputs, meta):
    corners = [2.0, 3.0, 20.5, meta["height"] / 2]
    return {"detections": [{"box": corners, "score": 0.5, "class": 1, "label": "box"}]}


def tell(outputs, meta):
    if meta["length"] == 251:
        os._exit(7)
    if meta["length"] == 252:
        threading.Event().wait(600)
    return {
        "sum": float(outputs["y"].sum()),
        "score": float(outputs["score"]),
        "shape": list(outputs["score"].shape),
        "length": meta["length"],
        "pair": repr(meta["pair"]),
    }
"""
BYTES_YAML = """
pipeline:
  name: {name}
  source: {{images: inputs}}
  profile: {{queue: 1000}}
  stages:
    - {{name: preprocess, batch_size: 4, ops: [{{python: './ops.py:head'}}]}}
    - name: inference
      model: net.onnx
      {infer}
    - {{name: postprocess, timeout: 2s, ops: [{{python: './ops.py:tell'}}]}}
  sink: {{jsonl: {name}.jsonl}}
"""
SHOWN = "[decode_image, {python: './ops.py:corner'}]"
EMULATED = "backend: {ge: {device: emulator}}\n      gears: [1, 4]"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def gepipe(folder: Path, *words: str, expected: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*GEPIPE, *words], capture_output=True, text=True, timeout=200, cwd=folder, check=False
    )
    assert done.returncode == expected, done.stdout + done.stderr
    return done


def net(path: Path) -> Path:
    """Write a model of rows of four: y = 2 x + 1, and a score that is one number a row."""
    return onnx_model(
        path,
        [
            ("Mul", ["x", "two"], ["t"], {}),
            ("Add", ["t", "one"], ["y"], {}),
            ("ReduceSum", ["y", "axes"], ["score"], {"keepdims": 0}),
        ],
        {"x": ("float32", ["n", 4])},
        {"y": ("float32", ["n", 4]), "score": ("float32", ["n"])},
        {
            "two": np.array(2, "float32"),
            "one": np.array(1, "float32"),
            "axes": np.array([1], "int64"),
        },
    )


#: Pipelines by name, with what their infer stage says; each is served in both layouts.
PIPELINES = {"bytes": "", "card": EMULATED}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    (folder / "ops.py").write_text(OPS)
    (folder / "tables.py").write_text("FACTOR = 3\n")
    net(folder / "net.onnx")
    (folder / "inputs").mkdir()
    for number in range(9):
        content = bytes([number, 255 - number, 7, 0]) + os.urandom(number) + b"\0\0"
        (folder / "inputs" / f"{number}.jpg").write_bytes(content)
    (folder / "inputs" / "bad.jpg").write_bytes(b"ab")
    for name, infer in PIPELINES.items():
        for served in (name, f"{name}_fused"):
            (folder / f"{served}.yaml").write_text(BYTES_YAML.format(name=served, infer=infer))
    (folder / "models").mkdir()
    return folder


class Served:
    """A server that is given a pipeline when a test asks for it.

    Attributes:
        ports: The server's.
    """

    def __init__(self, server: Server, place: Path) -> None:
        self.ports = server.ports
        self._server = server
        self._place = place
        self._loaded: set[str] = set()

    def load(self, name: str) -> None:
        """Export a pipeline and load it, once."""
        if name in self._loaded:
            return
        self._loaded.add(name)
        layout = "fused" if name.endswith("fused") else "ensemble"
        if name.startswith("classify"):
            spec = load(ROOT / "pipelines/classify.yaml", (f"name={name}",))
            done = export(spec, self._place / "models", layout=layout)  # type: ignore[arg-type]
            models = list(done.models)
        else:
            words = ("triton", "export", f"{name}.yaml", "models", "--layout", layout, "--json")
            models = json.loads(gepipe(self._place, *words).stdout)["models"]
        for model in sorted(models, key=len, reverse=True):  # the ensemble comes last
            self._server.control.load(model)

    def waiting(self, model: str) -> int:
        """Return how many requests wait for a model."""
        return self._server.waiting()[model]


@pytest.fixture(scope="module")
def server(triton_kit, place) -> Iterator[Served]:
    ports = free_ports("127.0.0.1", {"http": 0, "grpc": 0, "metrics": 0})
    with (
        new_run() as run,
        Bell() as bell,
        Server(triton_kit, run, place / "models", ports) as running,
    ):
        running.wait_live(bell)
        yield Served(running, place)
        running.stop(10, bell)


@pytest.fixture(scope="module")
def local(place: Path) -> Callable[[str], Path]:
    """Return what runs a pipeline here, once, and gives its results."""

    def run(name: str) -> Path:
        results = place / f"{name}.jsonl"
        if not results.exists():
            gepipe(place, "run", f"{name}.yaml", expected=3)
        return results

    return run


@pytest.fixture(params=["http", "grpc"])
def url(request: pytest.FixtureRequest, server: Served) -> str:
    return f"{request.param}://127.0.0.1:{server.ports[request.param]}"


def _curl(server: Served, name: str, file: Path) -> Any:
    spec = load(ROOT / "pipelines/classify.yaml", (f"name={name}",))
    line = curl_text(plan_export(spec), f"http://127.0.0.1:{server.ports['http']}", str(file))
    done = subprocess.run(
        ["sh", "-c", line], capture_output=True, text=True, timeout=150, check=True
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ["bytes", "bytes_fused", "card", "card_fused"])
def test_a_served_pipeline_writes_what_a_local_run_writes(
    place: Path, server: Served, local: Callable[[str], Path], url: str, name: str
) -> None:
    server.load(name)
    out = place / f"{name}-{url[:4]}.jsonl"

    gepipe(place, "run", f"{name}.yaml", "--via", url, "--output", str(out), expected=3)

    here = local(name.removesuffix("_fused"))
    assert lines(out) == lines(here)
    (mine,), (theirs,) = (
        lines(path.with_name(f"{path.stem}.failures.jsonl")) for path in (out, here)
    )
    facts = ("index", "source", "stage", "kind")
    assert [mine[fact] for fact in facts] == [theirs[fact] for fact in facts]
    assert "half a pair: \\ud800" in mine["error"]
    assert lines(out)[0]["result"]["shape"] == []
    assert lines(out)[3]["result"]["pair"] == "(1, b'two')"


@pytest.mark.parametrize("name", ["bytes", "bytes_fused"])
def test_a_thousand_requests_at_once_are_never_mixed_up(
    place: Path, server: Served, url: str, name: str, tmp_path: Path
) -> None:
    server.load(name)
    (tmp_path / "many").mkdir()
    for number in range(1000):
        length, first = divmod(number, 250)
        content = bytes([first, 0, 0, 0]) + bytes(length)
        (tmp_path / "many" / f"{number:04}.jpg").write_bytes(content)
    out = tmp_path / "out.jsonl"

    words = ("--input", str(tmp_path / "many"), "--output", str(out), "--concurrency", "1000")
    gepipe(place, "run", f"{name}.yaml", "--via", url, *words)

    results = [each["result"] for each in lines(out)]
    assert [(each["length"] - 4, (each["sum"] - 4) / 6) for each in results] == [
        divmod(number, 250) for number in range(1000)
    ]


@pytest.mark.parametrize("name", ["bytes", "bytes_fused"])
def test_an_item_that_ends_or_holds_up_post_fails_alone(
    place: Path, server: Served, name: str, tmp_path: Path
) -> None:
    server.load(name)
    (tmp_path / "in").mkdir()
    for number, length in enumerate((4, 251, 5, 252, 6)):
        (tmp_path / "in" / f"{number}.jpg").write_bytes(bytes(length))
    out = tmp_path / "out.jsonl"

    url = f"http://127.0.0.1:{server.ports['http']}"
    words = ("--input", str(tmp_path / "in"), "--output", str(out))
    gepipe(place, "run", f"{name}.yaml", "--via", url, *words, expected=3)

    assert [each["result"]["length"] for each in lines(out)] == [4, 5, 6]
    failures = lines(tmp_path / "out.failures.jsonl")
    assert [(each["index"], each["stage"], each["kind"]) for each in failures] == [
        (1, "postprocess", "crash"),
        (3, "postprocess", "timeout"),
    ]
    assert [each["error"] for each in failures] == [
        "postprocess worker exited with status 7, twice, while on this item",
        "postprocess worker exceeded its limit of 2 s, twice, while on this item",
    ]


@pytest.mark.parametrize(
    ("sink", "files"),
    [
        ("{coco: out.json}", 1),
        ("{annotated: out.jsonl}", 4),
    ],
)
def test_sinks_that_show_the_input_are_written_as_in_a_local_run(
    place: Path, server: Served, tmp_path: Path, sink: str, files: int
) -> None:
    text = BYTES_YAML.format(name="shown", infer="").replace("[{python: './ops.py:head'}]", SHOWN)
    text = text.replace("ops.py:tell", "ops.py:box")
    (place / "shown.yaml").write_text(text)
    server.load("shown")
    (tmp_path / "in").mkdir()
    for number in range(3):
        (tmp_path / "in" / f"{number}.jpg").write_bytes(jpeg(40 + number, 64, seed=number))
    (tmp_path / "in" / "3.jpg").write_bytes(b"no image")
    for file in ("ops.py", "tables.py", "net.onnx"):
        shutil.copy(place / file, tmp_path)
    text = text.replace("{jsonl: shown.jsonl}", sink).replace("images: inputs", "images: in")
    (tmp_path / "p.yaml").write_text(text)

    def made(*words: str) -> dict[str, bytes]:
        gepipe(tmp_path, "run", "p.yaml", *words, expected=3)
        (tmp_path / "out.job.json").unlink()
        paths = [path for path in tmp_path.rglob("out*/**/*") if path.is_file()]
        paths += tmp_path.glob("out.*")
        found = {str(path.relative_to(tmp_path)): path.read_bytes() for path in paths}
        for path in paths:
            path.unlink()
        assert found.pop("out.failures.jsonl", b"")
        return found

    there = made("--via", f"http://127.0.0.1:{server.ports['http']}")
    here = made()

    assert there == here
    assert len(here) == files


@pytest.mark.skipif(not MODEL.exists(), reason="run `make samples` first")
@pytest.mark.parametrize("name", ["classify", "classify_fused"])
def test_client_and_curl_get_what_a_run_writes(
    place: Path, server: Served, name: str, tmp_path: Path
) -> None:
    server.load(name)
    photos = sorted((ROOT / "samples/media/photos").glob("*.jpg"))[:3]
    wanted = tmp_path / "wanted.jsonl"
    paths = [word for photo in photos for word in ("--input", str(photo))]
    # One session for each, as the server has it: rows of a batch of another size differ in digits.
    more = ["--set", "preprocess.batch_size=1", "--output", str(wanted)]
    gepipe(ROOT, "run", "pipelines/classify.yaml", *paths, *more)

    client = place / "models" / name / "client.py"
    url = f"127.0.0.1:{server.ports['http']}"
    done = subprocess.run(
        [sys.executable, str(client), *map(str, photos), "--url", url],
        capture_output=True,
        text=True,
        timeout=150,
        check=True,
        cwd=tmp_path,
    )

    results = [each["result"] for each in lines(wanted)]
    assert [json.loads(line)["result"] for line in done.stdout.splitlines()] == results
    assert [_curl(server, name, photo) for photo in photos] == results


@pytest.mark.skipif(not MODEL.exists(), reason="run `make samples` first")
@pytest.mark.parametrize("name", ["classify", "classify_fused"])
def test_client_and_curl_tell_what_is_wrong_with_a_file(
    place: Path, server: Served, name: str, tmp_path: Path
) -> None:
    server.load(name)
    (tmp_path / "text.jpg").write_text("no photo")
    good = tmp_path / "good.jpg"
    good.write_bytes(jpeg(64, 48))
    client = place / "models" / name / "client.py"
    url = f"127.0.0.1:{server.ports['http']}"

    done = subprocess.run(
        [sys.executable, str(client), "text.jpg", "absent.jpg", "good.jpg", "--url", url],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
        cwd=tmp_path,
    )

    assert done.returncode == 3
    assert "preprocess: not_an_image: " in done.stderr
    assert "absent.jpg: " in done.stderr
    assert "Traceback" not in done.stderr
    assert [json.loads(line)["source"] for line in done.stdout.splitlines()] == ["good.jpg"]
    answer = _curl(server, name, tmp_path / "text.jpg")
    assert "preprocess: not_an_image: " in answer["error"]


def test_a_real_time_request_overtakes_in_the_steps_of_an_ensemble(
    place: Path, server: Served
) -> None:
    slow, gate = place / "slow.py", place / "gate"
    slow.write_text(
        "import os\nimport threading\nimport numpy as np\n\n\ndef head(blob):\n"
        f"    while not os.path.exists({str(gate)!r}):\n        threading.Event().wait(0.01)\n"
        "    threading.Event().wait(0.2)\n    return np.frombuffer(blob, np.uint8)[:4]"
        ".astype(np.float32)\n"
    )
    text = BYTES_YAML.format(name="slow", infer="").replace("./ops.py:head", f"{slow}:head")
    text = text.replace("- {python: './ops.py:tell'}", "").replace(
        "ops: [{python: './ops.py:tell'}]", "ops: []"
    )
    text = text.replace("batch_size: 4", "threads: 1")
    (place / "slow.yaml").write_text(text.replace("profile: {queue: 1000}", "profile: latency"))
    server.load("slow")
    url = f"http://127.0.0.1:{server.ports['http']}/v2/models/slow/infer"
    order: list[str] = []

    def send(name: str) -> None:
        first = name == "real time"
        tensor = {"name": "INPUT", "shape": [1, 1], "datatype": "BYTES", "data": ["abcd"]}
        facts = {"realtime": first, "priority": 1 if first else 2}
        body = json.dumps({"inputs": [tensor], "parameters": facts}).encode()
        with urllib.request.urlopen(urllib.request.Request(url, body), timeout=120) as answer:
            assert "outputs" in json.load(answer)
        order.append(name)

    with ThreadPoolExecutor(9) as pool:
        sent = [pool.submit(send, "bulk") for _ in range(8)]
        wait_until(lambda: server.waiting("slow_preprocess") >= 5)  # the others may be taken
        before = server.waiting("slow_preprocess")
        sent.append(pool.submit(send, "real time"))
        wait_until(lambda: server.waiting("slow_preprocess") > before)
        gate.touch()
        for each in sent:
            each.result()
    wait_until(lambda: not server.waiting("slow_preprocess"))

    assert sorted(set(order)) == ["bulk", "real time"]
    assert order.index("real time") <= 3  # behind what was taken before it came


# --- what is written, and what is refused ---------------------------------------------------------


@pytest.fixture
def here(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("ops.py", "tables.py", "net.onnx"):
        (tmp_path / name).write_bytes((place / name).read_bytes())
    (tmp_path / "p.yaml").write_text(BYTES_YAML.format(name="p", infer=""))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_second_export_replaces_the_highest_version_and_keeps_the_others(here: Path) -> None:
    for words in ((), ("--version", "3"), ("--version", "2"), ()):
        done = gepipe(here, "triton", "export", "p.yaml", "models", *words)

    assert done.stdout.startswith("p: version 3 in models: p, p_inference, p_postprocess, ")
    for model in ("p", "p_inference", "p_preprocess", "p_postprocess"):
        found = sorted(path.name for path in (here / "models" / model).iterdir() if path.is_dir())
        assert found == ["1", "2", "3"]


def test_a_version_that_the_server_would_not_serve_is_told(here: Path) -> None:
    gepipe(here, "triton", "export", "p.yaml", "models", "--version", "5")

    done = gepipe(here, "triton", "export", "p.yaml", "models", "--version", "4")

    assert "warning: version 5 is there too, and the server serves the highest" in done.stderr


def test_another_layout_takes_the_place_of_the_first(here: Path) -> None:
    gepipe(here, "triton", "export", "p.yaml", "models")

    done = gepipe(here, "triton", "export", "p.yaml", "models", "--layout", "fused", "--json")

    facts = json.loads(done.stdout)
    assert facts["removed"] == ["p_inference", "p_postprocess", "p_preprocess"]
    assert [path.name for path in (here / "models").iterdir()] == ["p"]
    assert facts["models"] == ["p"]
    assert facts["curl"].startswith("curl -s http://localhost:8000/v2/models/p/infer ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("name: p\n", "name: a b\n"), "name: 'a b' cannot be the name of a served model"),
        (("name: p\n", "name: ../p\n"), "cannot be the name of a served model"),
        (("./ops.py:head", "./ops.py:haed"), "has no function 'haed'; did you mean 'head'"),
        (
            ("{python: './ops.py:head'}", "{resize: {size: [4, 4]}}"),
            "preprocess: begins with resize",
        ),
    ],
)
def test_what_cannot_be_served_is_refused(
    here: Path, change: tuple[str, str], message: str
) -> None:
    text = (here / "p.yaml").read_text()
    (here / "p.yaml").write_text(text.replace(*change))

    done = gepipe(here, "triton", "export", "p.yaml", "models", expected=6)

    assert message in done.stderr
    assert not (here / "models").exists()


def test_a_folder_of_somebody_else_is_left_alone(here: Path) -> None:
    (here / "models" / "p").mkdir(parents=True)
    (here / "models" / "p" / "config.pbtxt").write_text('backend: "python"\n')

    done = gepipe(here, "triton", "export", "p.yaml", "models", expected=6)

    assert "models/p: is there already, and no export of gepipe has made it" in done.stderr
    assert [path.name for path in (here / "models").iterdir()] == ["p"]


def test_an_output_that_depends_on_the_input_is_refused(here: Path) -> None:
    """Trap 5 of npu_ge: an open extent that is not the batch, here without a name of its own."""
    onnx_model(
        here / "net.onnx",
        [("NonZero", ["x"], ["y"], {})],
        {"x": ("float32", ["n", 4])},
        {"y": ("int64", [2, "k"])},
    )
    spec = loads(BYTES_YAML.format(name="p", infer=""))

    for target in ("ge", "npu_ge"):
        with pytest.raises(GepipeError):
            export(spec, here / "models", target=target)  # type: ignore[arg-type]
    assert not (here / "models").exists()


def test_a_missing_model_is_told(here: Path) -> None:
    (here / "net.onnx").unlink()

    with pytest.raises(ConfigError, match="no such model file"):
        export(load("p.yaml"), here / "models")


@pytest.mark.parametrize(
    ("version", "limit"), [(0, "at least 1"), (1 << 63, r"at most 2\*\*63 - 1")]
)
def test_a_version_that_triton_does_not_take_is_refused(
    here: Path, version: int, limit: str
) -> None:
    with pytest.raises(ExportError, match=f"expected a whole number of {limit}, got {version}"):
        export(load("p.yaml"), here / "models", version=version)
