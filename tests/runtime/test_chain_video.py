"""Chains over videos: parts are cut out of the frame's shared memory, held till the end."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import av
import pytest

from gepipe.errors import Interrupted
from gepipe.io.videos import VideoFiles
from gepipe.ops.gather import Gather
from gepipe.ops.user import Python
from gepipe.pipeline.job import Job
from gepipe.video.sink import VideoSink
from tests.cameras import Camera
from tests.chains import chain
from tests.clips import clip
from tests.support import wait_until

FRAMES = (70, 45)


@pytest.fixture
def videos(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    clip(folder / "a.mp4", FRAMES[0])
    clip(folder / "b.mp4", FRAMES[1], first=1000)
    return folder


def results(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def number_of(record) -> int:
    """Read the number that a frame shows from its twelve bars, a part each."""
    bits = [str(int(part["grey"] > 127)) for part in record["squares"]]
    assert len(bits) == 12
    return int("".join(bits), 2)


def shown(path: Path) -> list[int]:
    return [number_of(record["result"]) for record in results(path)]


WANTED = [*range(FRAMES[0]), *range(1000, 1000 + FRAMES[1])]


def test_every_part_is_cut_out_of_its_own_frame(tmp_path, videos) -> None:
    out = tmp_path / "out.jsonl"
    # Room for a group and a batch: each frame must wait until those before have left the chain.
    source = VideoFiles(str(videos), memory=20 * (16 << 10))
    job = Job(chain(tmp_path, source=source), output=str(out))
    report = job.run()

    assert shown(out) == WANTED
    assert [record["result"]["frame"] for record in results(out)] == [
        *range(FRAMES[0]), *range(FRAMES[1])
    ]  # fmt: skip
    assert (report.total, report.failed) == (sum(FRAMES), 0)


def test_a_run_over_videos_goes_on_in_the_middle(tmp_path, videos) -> None:
    out = tmp_path / "out.jsonl"
    spec = chain(tmp_path, source=VideoFiles(str(videos)))
    Job(spec, output=str(out)).run()
    whole = out.read_bytes()
    out.write_bytes(b"".join(whole.splitlines(keepends=True)[:53]))
    Job(spec, output=str(out), resume=True).run()

    assert out.read_bytes() == whole


def test_films_of_a_chain_have_every_frame(tmp_path, videos) -> None:
    out = tmp_path / "films.jsonl"
    post = [Python("tests.chains:grey"), Gather(), Python("tests.chains:found")]
    spec = chain(tmp_path, source=VideoFiles(str(videos)), post=post)
    Job(spec.model_copy(update={"sink": VideoSink(str(out))})).run()

    films = sorted(out.with_suffix("").glob("*.mp4"))
    counts = []
    for film in films:
        with av.open(str(film)) as container:
            counts.append(sum(1 for _ in container.decode(video=0)))
    assert counts == list(FRAMES)
    assert len(results(out)) == sum(FRAMES)


def test_what_a_camera_sends_goes_through_a_chain_as_it_comes(tmp_path) -> None:
    path = clip(tmp_path / "camera.ts", 400, codec="mpeg2video", form="mpegts")
    camera = Camera(path, bytes_a_second=4 * path.stat().st_size * 25 / 400)
    out = tmp_path / "out.jsonl"
    job = Job(chain(tmp_path, source=VideoFiles(camera.address)), output=str(out))

    def stop() -> None:
        wait_until(lambda: job.done >= 20)  # while the camera goes on
        job.request_stop()

    stopper = threading.Thread(target=stop)
    stopper.start()
    try:
        with pytest.raises(Interrupted):
            job.run()
    finally:
        stopper.join()
        camera.close()

    frames = [record["result"]["frame"] for record in results(out)]
    assert len(frames) == job.done >= 20
    assert shown(out) == [frame % 400 for frame in frames]
    assert frames == sorted(set(frames))
    assert job.failed == job.parts.failed == 0
