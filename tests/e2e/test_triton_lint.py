"""Each row of lint's table on a real server: it does what lint says, and serves after `--fix`."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gepipe.cli.triton_linting import describe
from gepipe.triton.kit import STUB, Kit
from gepipe.triton.lint import lint
from gepipe.triton.mending import mend
from gepipe.triton.ports import free_ports
from gepipe.triton.schema import check, descriptor
from gepipe.triton.textnodes import tokens
from gepipe.triton.textproto import parse
from tests.support import doubling_model, wait_until
from tests.unit.triton.lint_table import (
    BASE,
    CARDS,
    GE,
    GE_ONE,
    GOOD,
    PYTHON,
    QUEUE,
    ROWS,
    Row,
    base_files,
    files_of,
)

GEPIPE = [sys.executable, "-c", "from gepipe.cli.app import main; main()"]
START_S = 120.0
LOAD_S = 120.0
HANGS_S = 4.0  # a model of these tests loads in a tenth of that
ALL = (*ROWS, *CARDS)
UNSERVED = (
    GOOD.replace('"python"', '"nobody"') + QUEUE + "model_transaction_policy { decoupled: false }\n"
    'parameters [ { key: "a" value { string_value: "b" "c" } }, { key: \'d\' value < > } ]\n'
    "version_policy: { specific { versions: [ 1, 2 ] } }\n"
    "optimization { graph { level: -1 } input_pinned_memory { enable: true } }\n"
)  # fmt: skip
PIECES = (
    r", ; : { } [ ] < > - = / \ 4 4.0 0x1F 007 08 1e3 1.5f 1 -1 99999999999 3abc inf T true yes "
    r"""FP32 TYPE_FP32 KIND_GPU name dims input a.b _x " 's' "a\q" "\u00e9" #c"""
)
SLOW = ("warmup-", "python-")  # refused only after Python has started; the answer says why
HANGING = [row for row in ALL if row.outcome == "hangs"]


@dataclass
class Bare:
    """A server without models that does nothing for its user; ends by SIGKILL."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path
    read: int = field(default=0)

    def ask(self, path: str, body: Any = None, timeout_s: float = LOAD_S) -> Any:
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(f"{self.url}/{path}", data, timeout=timeout_s) as answer:
            return json.loads(answer.read() or b"null")

    def load(self, model: str, timeout_s: float = LOAD_S) -> str:
        """Return what the server says of a load: `loaded`, `no answer`, or its error."""
        try:
            self.ask(f"v2/repository/models/{model}/load", {}, timeout_s)
        except urllib.error.HTTPError as error:
            return str(json.loads(error.read())["error"])
        except OSError:
            return "no answer"
        return "loaded"

    def infer(self, model: str) -> str:
        """Return `answered` or the error of a request with zeros, of two rows if it may be."""
        try:
            config = self.ask(f"v2/models/{model}/config")
            self.ask(
                f"v2/models/{model}/infer", {"inputs": [*map(_zeros(config), config["input"])]}
            )
        except urllib.error.HTTPError as error:
            return str(json.loads(error.read())["error"])
        return "answered"

    def said(self) -> str:
        """Return what was logged since the last time."""
        text = self.log.read_text(errors="replace")
        new, self.read = text[self.read :], len(text)
        return new


def _zeros(config: dict[str, Any]) -> Any:
    def tensor(stated: dict[str, Any]) -> dict[str, Any]:
        dims = [max(int(extent), 1) for extent in stated["dims"]]
        rows = min(2, config["max_batch_size"])
        shape = [rows, *dims] if rows else dims
        count = 1
        for extent in shape:
            count *= extent
        dtype = stated["data_type"].removeprefix("TYPE_")
        text = dtype == "STRING"
        return {"name": stated["name"], "shape": shape, "datatype": "BYTES" if text else dtype,
                "data": ["a" if text else 0] * count}  # fmt: skip

    return tensor


@contextmanager
def serving(kit: Kit, work: Path, repository: Path) -> Iterator[Bare]:
    work.mkdir()
    backends = work / "backends"
    shutil.copytree(kit.backend, backends / "python")
    shutil.copy(kit.stub, backends / "python" / STUB)
    (backends / "ge").mkdir()
    (backends / "ge" / "model.py").write_text(PYTHON)
    ports = free_ports("127.0.0.1", {"http": 0, "grpc": 0, "metrics": 0})
    prefix = f"gepipe_lint_{os.getpid()}_{ports['http']}_"
    command = [
        kit.server, f"--model-repository={repository}", f"--backend-directory={backends}",
        "--model-control-mode=explicit", "--disable-auto-complete-config", "--allow-metrics=false",
        f"--backend-config=python,shm-region-prefix-name={prefix}",
        *(f"--{name}-address=127.0.0.1" for name in ("http", "grpc")),
        *(f"--{name}-port={ports[name]}" for name in ("http", "grpc")),
    ]  # fmt: skip
    log = work / "server.log"
    environ = kit.environ() | {"OPENBLAS_NUM_THREADS": "1"}  # a stub starts sooner
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environ,
            start_new_session=True,
        )  # fmt: skip
    server = Bare(process, f"http://127.0.0.1:{ports['http']}", log)
    try:
        wait_until(lambda: is_live(server), START_S)
        yield server
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for region in Path("/dev/shm").glob(f"{prefix}*"):
            region.unlink(missing_ok=True)


def is_live(server: Bare) -> bool:
    assert server.process.poll() is None, server.log.read_text(errors="replace")[-2000:]
    with suppress(OSError):
        server.ask("v2/health/live")
        return True
    return False


def lay(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def mutations(count: int) -> dict[str, str]:
    """Return configurations of a backend that is not there, most of them broken in one place."""
    chance = random.Random(20)
    words = PIECES.split()
    whole = [token.text for token in tokens(UNSERVED)]
    made: dict[str, str] = {}
    for number in range(count):
        pieces = list(whole)
        for _ in range(chance.randint(1, 2)):
            at = chance.randrange(len(pieces))
            pieces[at : at + chance.randint(0, 1)] = chance.choice([[], [chance.choice(words)]])
        made[f"mutation-{number}"] = "".join(pieces)
    return made


def reads(text: str) -> bool:
    document = parse(text)
    return not document.faults and not list(check(document.root, descriptor()))


def content(folder: Path) -> tuple[tuple[str, str], ...]:
    """Return a model's files: of models that have become alike, one is loaded."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return tuple(sorted((str(path.relative_to(folder)), path.read_text()) for path in paths))


@dataclass
class Seen:
    """What the server did with each row before and after `--fix`."""

    before: dict[str, str] = field(default_factory=dict)
    calls: dict[str, str] = field(default_factory=dict)
    after: dict[str, str] = field(default_factory=dict)
    fixed_calls: dict[str, str] = field(default_factory=dict)
    read: dict[str, bool] = field(default_factory=dict)


MUTATIONS = mutations(300)


@pytest.fixture(scope="module")
def seen(triton_kit: Kit, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    work = tmp_path_factory.mktemp("lint")
    repository = work / "models"
    lay(repository, base_files())
    for row in ALL:
        lay(repository / row.name, files_of(row))
    for name, text in MUTATIONS.items():
        lay(repository / name, {"config.pbtxt": text})
    found = Seen()
    with serving(triton_kit, work / "server", repository) as server, ThreadPoolExecutor(4) as pool:
        assert set(pool.map(server.load, BASE)) == {"loaded"}
        server.said()
        for row in ALL:  # one by one: the log does not say whose its lines are
            if row.outcome == "refuses" and not row.name.startswith(SLOW):
                found.before[row.name] = server.load(row.name) + server.said()
        slow = [row.name for row in ALL if row.name.startswith(SLOW) and row not in HANGING]
        found.before |= zip(slow, pool.map(server.load, slow), strict=True)
        for name in MUTATIONS:
            said = server.load(name) + server.said()
            found.read[name] = "Error parsing text-format" not in said
        loading = [r.name for r in ALL if r.outcome in ("loads", "fails") and r.name not in slow]
        found.before |= zip(loading, pool.map(server.load, loading), strict=True)
        failing = [row.name for row in ALL if row.outcome == "fails"]
        found.calls = dict(zip(failing, pool.map(server.infer, failing), strict=True))
        for name in MUTATIONS:
            shutil.rmtree(repository / name)
        mend(lint(repository, describe=describe))
        alike: dict[Any, list[str]] = {}
        for row in ALL:
            if row.is_fixable:
                alike.setdefault(content(repository / row.name), []).append(row.name)
        firsts = [names[0] for names in alike.values()]
        for names, loaded in zip(alike.values(), pool.map(server.load, firsts), strict=True):
            found.after |= dict.fromkeys(names, loaded)
            found.fixed_calls |= dict.fromkeys(names, server.infer(names[0]))
    return found


@pytest.mark.parametrize("row", [r for r in ALL if r.outcome != "hangs"], ids=lambda row: row.name)
def test_server_does_what_lint_says(seen: Seen, row: Row) -> None:
    if row.outcome == "refuses":
        assert "loaded" not in seen.before[row.name][:6]
        assert re.search(row.words, seen.before[row.name]), seen.before[row.name]
    else:
        assert seen.before[row.name] == "loaded"
    if row.outcome == "fails":
        assert re.search(row.words, seen.calls[row.name]), seen.calls[row.name]


def test_text_is_read_as_the_server_reads_it(seen: Seen) -> None:
    read = {name: reads(text) for name, text in MUTATIONS.items()}

    assert 20 < sum(read.values()) < len(read) - 20
    assert [MUTATIONS[name] for name in read if read[name] != seen.read[name]] == []


@pytest.mark.parametrize("row", [r for r in ALL if r.is_fixable], ids=lambda row: row.name)
def test_server_serves_what_was_fixed(seen: Seen, row: Row) -> None:
    assert seen.after[row.name] == "loaded"
    assert seen.fixed_calls[row.name] == "answered"


def test_server_never_answers(triton_kit: Kit, tmp_path: Path) -> None:
    repository, spaced = tmp_path / "models", tmp_path / "my models"
    for row in HANGING:
        lay(repository / row.name, files_of(row))
    lay(spaced / "m", {"config.pbtxt": GOOD, "1/model.py": PYTHON})
    with (
        serving(triton_kit, tmp_path / "server", repository) as server,
        serving(triton_kit, tmp_path / "other", spaced) as other,
        ThreadPoolExecutor(len(HANGING) + 1) as pool,
    ):
        breaks = pool.submit(other.load, "m", HANGS_S)  # on the space in its path
        answers = list(pool.map(lambda row: server.load(row.name, HANGS_S), HANGING))

    for row, answer in zip(HANGING, answers, strict=True):
        assert answer == "no answer" or (row.words and row.words in answer), (row.name, answer)
    assert breaks.result() == "no answer"
    assert "there is a space in its path" in str(lint(spaced).problems[0])


@pytest.mark.usefixtures("triton_kit")
def test_serve_refuses_what_only_a_model_file_tells(tmp_path: Path) -> None:
    lay(tmp_path / "models" / "m", {"config.pbtxt": GE + GE_ONE, "1/.keep": ""})
    doubling_model(tmp_path / "models" / "m" / "1" / "model.om")

    done = subprocess.run(
        [*GEPIPE, "triton", "serve", "models"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )

    assert done.returncode == 2
    assert "models/m/1/model.om: model file is not .om format: this is ONNX" in done.stderr
