"""Live sources: MPEG-TS over TCP on loopback, as a camera would send it."""

from __future__ import annotations

import os
import signal
import socket
import threading
from itertools import pairwise

import pytest

from gepipe.io.videos import VideoFiles
from gepipe.video.feed import VideoFeed
from tests.cameras import Camera
from tests.clips import Watcher, clip
from tests.support import wait_until


@pytest.fixture
def camera(tmp_path):
    cameras = []

    def camera(frames=500, *, fps=25, pace=1.0, first=0):
        path = clip(
            tmp_path / f"{len(cameras)}.ts", frames, fps=fps, codec="mpeg2video", form="mpegts",
            first=first,
        )  # fmt: skip
        cameras.append(Camera(path, bytes_a_second=pace * path.stat().st_size * fps / frames))
        return cameras[-1]

    yield camera
    for each in cameras:
        each.close()


@pytest.fixture
def watcher_of():
    feeds = []

    def watcher_of(*addresses, batch=8, **options):
        source = VideoFiles(addresses, **options)
        assert source.is_live(addresses[0].encode()) is options.get("live", True)
        feeds.append(VideoFeed(source, source.entries(), batch=batch))
        return Watcher(feeds[-1], batch)

    yield watcher_of
    for feed in feeds:
        feed.close()


def test_frames_come_as_they_are_sent(camera, watcher_of):
    watcher = watcher_of(camera().address, stop="2s")

    watcher.all()

    # What had to be looked at before the beginning arrives at once: there is no room for all.
    assert watcher.frames[0] <= 40
    assert watcher.frames[-9:] == list(range(watcher.frames[-9], watcher.frames[-1] + 1))
    assert 44 <= watcher.frames[-1] <= 60
    assert watcher.times == sorted(watcher.times)
    assert watcher.times[-1] < 2.0
    assert not watcher.failures


def test_a_lost_connection_is_made_anew_and_numbers_and_times_go_on(camera, watcher_of, caplog):
    source = camera(pace=4)
    source.stop_behind = len(source._data) // 10  # fifty frames
    watcher = watcher_of(source.address)

    while source.connections < 4:
        watcher.take()

    assert watcher.frames == sorted(set(watcher.frames))
    assert watcher.times == sorted(watcher.times)
    assert watcher.frames[-1] > 100
    assert watcher.frames[-1] < 4 * 60
    assert "connecting again in 0.5 s" in caplog.text


@pytest.mark.parametrize("good", [True, False])
def test_a_pipe_ends_when_its_writer_has_gone(tmp_path, watcher_of, good):
    film = clip(tmp_path / "film.ts", 60, codec="mpeg2video", form="mpegts")
    sent = film.read_bytes() if good else b"no film at all" * 1000
    pipe = tmp_path / "pipe.ts"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(sent,), daemon=True)
    writer.start()

    watcher = watcher_of(str(pipe), live=True)
    watcher.all()

    writer.join()
    if good:
        assert len(watcher.frames) + watcher.feed.progress().dropped == 60
        assert not watcher.failures
    else:
        assert not watcher.frames
        assert [kind for _, kind, _ in watcher.failures] == ["decoder"]


def test_a_connection_that_falls_silent_is_made_anew(camera, watcher_of, caplog):
    source = camera(pace=4)
    source.silent_behind = len(source._data) // 5
    watcher = watcher_of(source.address, timeout=1)

    while source.connections < 2 or watcher.frames[-1] < 110:
        watcher.take()

    assert watcher.frames == sorted(set(watcher.frames))
    assert watcher.times == sorted(watcher.times)
    assert "connecting again" in caplog.text


def test_numbers_and_times_go_on_over_a_lost_decoder(camera, watcher_of, caplog):
    watcher = watcher_of(camera(pace=2).address)
    while not watcher.frames or watcher.frames[-1] < 50:
        watcher.take()
    before = len(watcher.frames)

    os.kill(watcher.feed._crew.pids()[0], signal.SIGKILL)
    while len(watcher.frames) < before + 30:
        watcher.take()

    assert watcher.frames == sorted(set(watcher.frames))
    assert watcher.times == sorted(watcher.times)
    assert "killed by SIGKILL" in caplog.text


def test_a_source_that_is_gone_is_given_up_in_the_end(watcher_of):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
    watcher = watcher_of(address, reconnect=1)

    watcher.all()

    ((source, kind, text),) = watcher.failures
    assert (source, kind) == (address, "connection")
    assert "tried 2 times" in text
    assert "refused" in text


def test_a_server_that_does_not_answer_is_a_failure_that_says_so(watcher_of):
    with socket.create_server(("127.0.0.1", 0)) as server:  # takes connections, and no more
        address = f"http://127.0.0.1:{server.getsockname()[1]}/a.mp4"
        watcher = watcher_of(address, live=False, timeout=1)

        watcher.all()

    ((source, kind, text),) = watcher.failures
    assert (source, kind) == (address, "connection")
    assert "nothing came for 1 s" in text


def test_nobody_is_told_the_password_of_a_camera(watcher_of):
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"127.0.0.1:{server.getsockname()[1]}/street"
    watcher = watcher_of(f"rtsp://guard:p@ss:word@{place}", reconnect=0)

    watcher.all()

    ((source, _, text),) = watcher.failures
    assert source == f"rtsp://guard:***@{place}"
    assert f"'rtsp://guard:***@{place}'" in text
    assert "word" not in text


def test_frames_are_dropped_that_there_is_no_time_for(camera, watcher_of):
    size = 48 * 96 * 3
    watcher = watcher_of(camera(pace=20).address, memory=64 * 4096 * 4)
    watcher.take()

    wait_until(lambda: (watcher.feed.take(0), watcher.feed.progress().dropped)[1] > 100)
    before = len(watcher.frames)
    watcher.take()

    gap = watcher.frames[before] - watcher.frames[before - 1]
    assert gap > 50, "the newest are given, not the oldest"
    assert watcher.feed._arena._reserved < 64 * max(size, 4 * 4096)
    assert watcher.frames == sorted(set(watcher.frames))


def test_sources_share_memory_that_is_too_small_for_all(camera, watcher_of):
    cameras = [camera(pace=2) for _ in range(4)]
    watcher = watcher_of(*(each.address for each in cameras), batch=2, memory=6 * 4 * 4096)

    while len({source.partition("#")[0] for source, *_ in watcher.items}) < 4:
        watcher.take()

    videos = list(watcher.feed._open_videos)
    assert all(video.frames <= 6 // len(videos) for video in videos)


def test_sources_come_interleaved_and_one_that_ends_stalls_no_other(camera, watcher_of):
    slow, fast, ends = camera(fps=25), camera(fps=50, first=1000), camera(first=2000)
    watcher = watcher_of(
        slow.address, fast.address, ends.address, reconnect=0, stop="6s", timeout=2
    )
    names = {source.address: source for source in (slow, fast, ends)}

    while len({item.source.partition("#")[0] for item in watcher.items}) < 3:
        watcher.take()
    ends.close()
    watcher.all()

    by_source = {name: [] for name in names}
    for item in watcher.items:
        if item.payload[0] != "failed":
            by_source[item.source.partition("#")[0]].append(item.payload[5])
    assert all(numbers == sorted(set(numbers)) for numbers in by_source.values())
    assert [source for source, _, _ in watcher.failures] == [ends.address]
    assert len(by_source[fast.address]) > len(by_source[slow.address]) > 60
    order = [item.payload[4] for item in watcher.items if item.payload[0] != "failed"]
    assert sum(one != other for one, other in pairwise(order)) > 20, "none waits for another"
