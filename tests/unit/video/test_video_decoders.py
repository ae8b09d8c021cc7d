"""Decoders that end, hang or are stopped, and what becomes of their videos."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from gepipe.io.videos import VideoFiles
from gepipe.video.crew import DecoderCrew
from gepipe.video.feed import VideoFeed
from tests.clips import Watcher, clip, watch


def anonymous_kib(pid: int) -> int:
    """Return the memory that a process has for itself; frames in shared memory do not count."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1])
    return 0


@pytest.fixture
def feed_of():
    """Feeds that are closed behind the test."""
    feeds = []

    def feed_of(*paths, batch=8, keep=False, **options):
        source = VideoFiles(tuple(map(str, paths)), **options)
        feeds.append(VideoFeed(source, source.entries(), batch=batch, keep=keep))
        return feeds[-1]

    yield feed_of
    for feed in feeds:
        feed.close()


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSEGV])
def test_a_decoder_that_ends_is_replaced_and_goes_on_behind_its_last_frame(
    tmp_path, feed_of, caplog, sent
):
    feed = feed_of(clip(tmp_path / "a.mp4", 200))
    watcher = Watcher(feed)
    while len(watcher.frames) < 40:
        watcher.take()

    os.kill(feed._crew.pids()[0], sent)
    watcher.all()

    assert watcher.frames == watcher.shown == list(range(200))
    assert not watcher.failures
    assert f"killed by {sent.name}" in caplog.text


def test_a_decoder_that_hangs_is_replaced(tmp_path, feed_of, caplog):
    feed = feed_of(clip(tmp_path / "a.mp4", 100), timeout=1)
    watcher = Watcher(feed)
    while len(watcher.frames) < 24:
        watcher.take()

    os.kill(feed._crew.pids()[0], signal.SIGSTOP)
    watcher.all()

    assert watcher.frames == watcher.shown == list(range(100))
    assert "silent for 1 s" in caplog.text


def test_the_rest_of_a_video_is_left_out_where_two_decoders_end_at_the_same_place(
    tmp_path, feed_of, monkeypatch
):
    opened = DecoderCrew.open
    started = []

    def open_and_kill(crew, video, order):
        opened(crew, video, order)
        if video.path.endswith(b"hostile.mp4"):
            started.append(crew.pids()[-1])
            os.kill(started[-1], signal.SIGKILL)

    monkeypatch.setattr(DecoderCrew, "open", open_and_kill)
    hostile, good = clip(tmp_path / "hostile.mp4", 10), clip(tmp_path / "good.mp4", 10)

    watcher = Watcher(feed_of(good, hostile, good))
    watcher.all()

    ((source, kind, text),) = watcher.failures
    assert (source, kind) == (str(hostile), "decoder")
    assert "ended twice before its first frame, killed by SIGKILL" in text
    assert len(started) == 2
    assert watcher.shown == list(range(10)) * 2


def test_a_decoder_that_ends_while_it_is_ahead_costs_nothing(tmp_path, feed_of):
    feed = feed_of(clip(tmp_path / "a.mp4", 300), clip(tmp_path / "b.mp4", 50, first=1000))
    watcher = Watcher(feed)
    while len(watcher.frames) < 8:
        watcher.take()

    os.kill(feed._crew.pids()[-1], signal.SIGKILL)
    watcher.all()

    assert watcher.shown == [*range(300), *range(1000, 1050)]
    assert not watcher.failures


def test_a_stop_in_the_middle_leaves_no_process(tmp_path, feed_of):
    feed = feed_of(clip(tmp_path / "a.mp4", 300))
    watcher = Watcher(feed)
    watcher.take()
    pids = feed._crew.pids()

    feed.close()

    assert pids
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_frames_that_are_kept_until_their_batch_is_out_seal_it_where_there_is_no_more_room(
    tmp_path, feed_of
):
    size = (240, 320)
    nbytes = 240 * 320 * 3
    feed = feed_of(
        clip(tmp_path / "a.mp4", 40, size), clip(tmp_path / "b.mp4", 9, size, first=100),
        keep=True, memory=5 * nbytes + 8 * 4096,
    )  # fmt: skip
    watcher = Watcher(feed)
    batches, batch = [], []
    while True:
        entries, ended, seal = feed.take(8 - len(batch))
        for entry in entries:
            watcher._look(entry)
        batch += entries
        if batch and (seal or ended or len(batch) == 8):
            batches.append(len(batch))
            first = len(watcher.items) - len(batch)
            feed._let_go(range(first, first + len(batch)))
            batch = []
        if ended:
            break
        if not entries and not seal:
            assert watcher._poll.poll(60_000)

    assert watcher.shown == [*range(40), *range(100, 109)]
    assert max(batches) == 5  # as many as there is room for


def test_many_short_videos_need_two_decoders_and_no_more_memory(tmp_path):
    path = clip(tmp_path / "a.mp4", 10, (120, 160))
    sizes = {}

    class Measured(Watcher):
        def take(self, wait_s=60.0):
            more = super().take(wait_s)
            for pid in self.feed._crew.pids():
                sizes.setdefault(pid, []).append(anonymous_kib(pid))
            return more

    source = VideoFiles((str(path),) * 200)
    feed = VideoFeed(source, source.entries(), batch=8)
    try:
        watcher = Measured(feed)
        watcher.all()
        reserved = feed._arena._reserved
    finally:
        feed.close()

    assert watcher.shown == list(range(10)) * 200
    assert len(sizes) == 2
    for seen in sizes.values():
        half = seen[len(seen) // 2 :]
        assert max(half) - min(half) < 2048, "KiB between the first and the last hundred videos"
    assert reserved <= 32 * 120 * 160 * 3


def test_progress_tells_where_it_is(tmp_path):
    paths = [clip(tmp_path / f"{n}.mp4", 50) for n in range(3)]
    source = VideoFiles(tuple(map(str, paths)))
    feed = VideoFeed(source, source.entries(), batch=8, count=3)
    try:
        watcher = Watcher(feed)
        while len(watcher.frames) < 60:
            watcher.take()
        progress = feed.progress()
    finally:
        feed.close()

    assert (progress.begun, progress.videos, progress.source) == (2, 3, str(paths[1]))
    assert progress.frames == len(watcher.frames) - 50
    assert progress.estimate == 50


def test_a_feed_of_many_takes_needs_no_poll(tmp_path):
    assert watch(clip(tmp_path / "a.mp4", 64), batch=64).shown == list(range(64))
