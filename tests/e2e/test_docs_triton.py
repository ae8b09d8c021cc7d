"""What docs/triton.md shows is done, in its order, with the server that it starts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_docs import FETCHED, ROOT, Block, blocks
from tests.support import wait_until

PAGE = ROOT / "docs" / "triton.md"
#: Ports as the page names them, and where `serve` says which ones it has taken.
PORTS = {
    "8000": r"HTTP http://\S+?:(\d+)",
    "8001": r"gRPC \S+?:(\d+)",
    "8002": r"metrics http://\S+?:(\d+)",
    "8003": r"health http://\S+?:(\d+)",
}
ANY_PORT = " ".join(f"--{name}-port 0" for name in ("http", "grpc", "metrics", "health"))

pytestmark = pytest.mark.skipif(not FETCHED, reason="the samples are not fetched")


@dataclass(frozen=True)
class Place:
    """A folder with what the page has made so far, and the server that it has started."""

    folder: Path
    ports: dict[str, str]

    def here(self, text: str) -> str:
        """Return a text of the page with the server's own ports."""
        return re.sub(r"(?<=127\.0\.0\.1:)\d+", lambda found: self.ports[found[0]], text)

    def do(self, command: str) -> str:
        """Have a shell do what the page says, and return what is printed."""
        return _shell(self.here(command), self.folder)


def _environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def _shell(command: str, folder: Path) -> str:
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=folder, env=_environment(), capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert not done.returncode, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _lines(start: str) -> list[str]:
    """Return the lines of the block that begins with a word, without comments."""
    (block,) = (b for b in blocks(PAGE) if b.language == "sh" and b.text.startswith(start))
    return [line.split(" #")[0].strip() for line in block.text.splitlines()]


@pytest.fixture(scope="module")
def place(
    triton_kit: Any,  # noqa: ARG001 - it installs the server
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Place]:
    """Follow the ten lines of the page up to the server, and stop it in the end."""
    folder = tmp_path_factory.mktemp("docs")
    (folder / "samples").symlink_to(ROOT / "samples")
    (folder / "pipelines").symlink_to(ROOT / "pipelines")
    lines = _lines("pip install")
    assert len(lines) == 10
    (serve,) = (number for number, line in enumerate(lines) if line.startswith("gepipe triton se"))
    for line in lines[:serve]:
        if not line.startswith(("pip install", "gepipe samples fetch", "gepipe triton install")):
            _shell(line, folder)
    with (folder / "said").open("w") as said:
        server = subprocess.Popen(
            f"exec {lines[serve]} {ANY_PORT}",
            shell=True, cwd=folder, env=_environment(), stdout=said, stderr=said,
        )  # fmt: skip
    try:
        wait_until(
            lambda: "Ctrl-C" in (folder / "said").read_text() or server.poll() is not None, 150
        )
        text = (folder / "said").read_text()
        assert server.poll() is None, text
        yield Place(folder, {port: re.findall(where, text)[0] for port, where in PORTS.items()})
    finally:
        server.terminate()
        assert server.wait(120) == 0, (folder / "said").read_text()


def test_the_last_of_the_ten_lines_get_what_the_job_got(place: Place) -> None:
    job = (place.folder / "out" / "classify.jsonl").read_bytes()
    infer, via = _lines("pip install")[-2:]

    place.do(infer)
    place.do(via)

    records = [json.loads(line) for line in job.splitlines()]
    served = (place.folder / "out" / "served.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in served] == records
    assert (place.folder / "out" / "classify.jsonl").read_bytes() == job


@pytest.mark.parametrize("page", ["README.md", "README.zh.md", "docs/triton.md"])
def test_the_curl_line_of_a_page_is_answered(place: Place, page: str) -> None:
    (line,) = re.findall(r"^curl .*infer .*$", (ROOT / page).read_text(), re.MULTILINE)

    answer = json.loads(place.do(line))

    assert answer["top_k"][0]["label"] == "espresso"
    shown = [b.text for b in blocks(PAGE) if b.text.startswith('{"top_k"')]
    assert json.dumps(answer).startswith(shown[0].rstrip("… \n"))


def test_the_calls_of_the_page_are_answered(place: Place) -> None:
    printed = ""
    calls: list[Block] = [block for block in blocks(PAGE) if block.mark in ("server", "prints")]
    for block in calls:
        if block.mark == "prints":
            assert printed == block.text
        elif block.language == "python":
            (place.folder / "call.py").write_text(place.here(block.text))
            printed = place.do("python call.py")
        else:
            printed = "".join(place.do(line) for line in block.text.splitlines())
            assert printed
    assert sum(block.mark == "server" for block in calls) >= 4


def test_health_is_told_as_the_page_shows(place: Place) -> None:
    (shown,) = (b.text for b in blocks(PAGE) if b.text.startswith('{\n "status"'))

    told = place.do("curl -s http://127.0.0.1:8003/readyz")

    assert json.loads(told) == json.loads(shown)


def test_the_repository_of_an_article_is_mended_as_the_page_shows(tmp_path: Path) -> None:
    before, after = (
        next(b.text for b in blocks(PAGE) if b.text.startswith(head))
        for head in ("platform:", 'backend: "ge"\nmax')
    )
    config = tmp_path / "models" / "net" / "config.pbtxt"
    (config.parent / "1").mkdir(parents=True)
    (config.parent / "1" / "model.om").write_bytes(b"IMOD" + bytes(300))
    config.write_text(before)
    (command,) = re.findall(r"`(gepipe triton lint models --fix)`", PAGE.read_text())

    _shell(command, tmp_path)

    assert config.read_text() == after
