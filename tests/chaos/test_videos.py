"""Jobs over parts of videos are killed at any moment: resumed, they come to the same files."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("av")

import av

from tests.clips import clip
from tests.support import (
    doubling_model,
    family_of,
    is_alive,
    pause,
    script_environment,
    wait_until,
)

pytestmark = pytest.mark.chaos

YAML = """
pipeline:
  name: films
  source: {{videos: {{paths: [a.mp4, b.mp4, c.avi, none.mp4], {part}}}}}
  stages:
    - {{name: preprocess, threads: 2, batch_size: 4,
       ops: [decode_image, {{python: "tests.filmstages:shown"}}]}}
    - {{name: inference, model: model.onnx}}
    - {{name: postprocess, stream_count: 2,
       ops: [{{python: {{function: "tests.filmstages:found", args: {found}}}}}]}}
  sink: {{{sink}: out.jsonl}}
"""
COMMAND = [sys.executable, "-c", "from gepipe.cli.app import main; main()", "run"]
SIZE = (96, 132)


def make(folder: Path, part: str, sink: str, slow: float) -> Path:
    """Write two healthy videos, one that lacks a key frame, and what goes over them."""
    folder.mkdir()
    for name, codec in (("a.mp4", "libx264"), ("b.mp4", "libx264"), ("c.avi", "mpeg4")):
        clip(folder / name, 90, SIZE, codec=codec)
    with av.open(str(folder / "b.mp4")) as container:
        keys = [(each.pos, each.size) for each in container.demux(video=0) if each.is_keyframe]
    data = bytearray((folder / "b.mp4").read_bytes())
    pos, size = keys[len(keys) // 2]
    data[pos : pos + size] = np.random.default_rng(3).bytes(size)
    (folder / "b.mp4").write_bytes(data)
    doubling_model(folder / "model.onnx")
    found = f"{{slow: {slow}, bad: [27]}}"
    (folder / "films.yaml").write_text(YAML.format(part=part, sink=sink, found=found))
    return folder


def started(folder: Path, *options: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*COMMAND, str(folder / "films.yaml"), "--quiet", *options],
        env=script_environment(), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def outcome(folder: Path) -> dict[str, object]:
    """Return what a job has made; of films the times of their frames."""
    found: dict[str, object] = {}
    for path in sorted(folder.glob("out*")) + sorted(folder.glob("out/*")):
        if path.suffix == ".mp4":
            with av.open(str(path)) as container:
                found[path.name] = [each.pts for each in container.decode(video=0)]
        elif path.is_file() and path.name != "out.job.json":
            found[path.name] = path.read_bytes()
    return found


def shown(film: Path) -> list[np.ndarray]:
    with av.open(str(film)) as container:
        return [each.to_ndarray().astype(int) for each in container.decode(video=0)]


@pytest.mark.parametrize(
    ("sink", "part"),
    [
        ("video", "start: 0.5s, every: 2"),
        ("annotated", "start: 0.5s, every: 3"),
        ("contact_sheet", "every: 2, stop: 3s"),
        ("jsonl", "start: 1s, stop: 3s, fps: 9"),
    ],
)
def test_a_job_killed_again_and_again_makes_the_files_of_an_undisturbed_one(tmp_path, part, sink):
    rng = random.Random(f"{part} {sink}")
    whole = make(tmp_path / "whole", part, sink, slow=0)
    process = started(whole)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 3, said
    folder = make(tmp_path / "killed", part, sink, slow=0.03)

    code, kills = -signal.SIGKILL, 0
    while code == -signal.SIGKILL:
        process = started(folder, *(["--resume"] * (kills > 0)))
        if kills < 4:
            pause(rng.uniform(0.3, 3.0))
            family = family_of(process.pid)
            process.kill()
            wait_until(lambda family=family: not any(map(is_alive, family)))
        _, said = process.communicate(timeout=60)
        code, kills = process.returncode, kills + 1

    assert code == 3, said
    assert outcome(folder) == outcome(whole)
    for film in (whole / "out").glob("*.mp4"):
        one, other = shown(film), shown(folder / "out" / film.name)
        # The encoder may lose other details of the same frames.
        assert all(np.abs(a - b).mean() < 3 for a, b in zip(one, other, strict=True))
    assert not list(folder.glob(".out*"))
