"""The pieces around the supervisor, without a process."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import socket
import threading
import time

import numpy as np
import pytest

from gepipe.errors import BackendError
from gepipe.io.source import Entry
from gepipe.runtime.batches import Batch, Execution, Item
from gepipe.runtime.board import Board
from gepipe.runtime.channel import Channel, WorkerChannel, encode
from gepipe.runtime.events import WorkerId
from gepipe.runtime.feed import ListedFeed, ThreadedFeed
from gepipe.runtime.memory import SharedBuffer, SlotLayout, Slots
from gepipe.runtime.process import describe_exit
from gepipe.runtime.schedule import InOrder
from gepipe.runtime.watch import Watch
from gepipe.tensors import TensorSpec
from tests.support import wait_until

PRE = WorkerId("pre", 0)


@pytest.fixture
def channels():
    ours, theirs = socket.socketpair()
    pair = Channel(ours), WorkerChannel(theirs)
    yield pair
    for channel in pair:
        channel.close()


def test_messages_go_both_ways(channels) -> None:
    ours, theirs = channels
    ours.send((1, "two", b"3", (4.5, None)))
    assert theirs.receive() == (1, "two", b"3", (4.5, None))

    theirs.send(("ready",))
    theirs.send((7, [b"x"]))
    assert ours.receive() == [("ready",), (7, [b"x"])]
    assert ours.receive() == []
    assert not ours.ended


def test_message_that_the_socket_does_not_take_waits_without_blocking(channels) -> None:
    ours, theirs = channels
    big = os.urandom(5_000_000)
    ours.send((big,))
    ours.send(("after",))
    assert ours.backlog

    received: list = []
    reader = threading.Thread(target=lambda: received.extend([theirs.receive(), theirs.receive()]))
    reader.start()
    wait_until(lambda: ours.flush() or not ours.backlog)
    reader.join(60)

    assert received == [(big,), ("after",)]


def test_end_of_either_side_is_noticed() -> None:
    ours, theirs = socket.socketpair()
    mine, its = Channel(ours), WorkerChannel(theirs)
    its.close()
    mine.send(("into the void",))
    assert mine.receive() == []
    assert mine.ended
    mine.close()

    ours, theirs = socket.socketpair()
    mine, its = Channel(ours), WorkerChannel(theirs)
    mine.close()
    assert its.pending()
    assert its.receive() is None
    assert its.send((1,)) is False
    its.close()


def test_descriptors_travel_with_their_message(channels) -> None:
    ours, theirs = channels
    buffer = SharedBuffer.create(8192)
    buffer.map[:5] = b"hello"

    ours.send_shared(("attach",), [buffer.fd, buffer.fd])

    assert theirs.receive() == ("attach",)
    fds = theirs.take_fds()
    assert len(fds) == 2
    copy = SharedBuffer(fds[0], 8192)
    assert copy.map[:5] == b"hello"
    copy.close()
    os.close(fds[1])
    buffer.close()


def test_handing_memory_to_a_worker_that_is_gone_is_no_error() -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    theirs.close()

    channel.send_shared(("attach",), [0])

    assert channel.ended
    channel.close()


def test_only_plain_values_are_messages() -> None:
    with pytest.raises(ValueError, match="unmarshal"):
        encode((object(),))


def test_shared_memory_cannot_change_its_size_and_views_keep_it_open() -> None:
    buffer = SharedBuffer.create(4096)
    with pytest.raises(PermissionError):
        os.ftruncate(buffer.fd, 1)
    view = memoryview(buffer.map)
    with pytest.raises(BufferError):
        buffer.close()
    view.release()
    buffer.close()
    buffer.close()


def test_memory_that_cannot_be_reserved_is_refused_with_the_setting_to_change(monkeypatch) -> None:
    def full(*_args) -> None:  # a real attempt would fill the machine first
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(BackendError, match=r"cannot reserve 4\.0 MiB.*No space.*batch_size"):
        SharedBuffer.create(1 << 22)


def test_slots_are_views_that_share_their_bytes() -> None:
    rows = (TensorSpec("a", "uint8", (3,)), TensorSpec("b", "float16", ()))
    layout = SlotLayout.of(rows, 5)
    buffer = SharedBuffer.create(2 * layout.slot_nbytes)
    one, two = Slots(buffer, layout), Slots(buffer, layout)
    one[1]["a"][4] = 9
    one[1]["b"][2] = 0.5

    assert two[1]["a"][4].tolist() == [9, 9, 9]
    assert two[1]["b"][2] == np.float16(0.5)
    assert not two[0]["a"].any()
    assert two[0]["b"].shape == (5,)
    del one, two
    buffer.close()


def test_board_tells_what_is_in_work() -> None:
    board = Board.create(3)
    line = board.line(1)
    before = time.monotonic_ns()
    line.begin(42)
    seq, since = board.read(1)

    assert seq == 42
    assert before <= since <= time.monotonic_ns()
    assert board.read(0)[0] == -1
    board.clear(1)
    assert board.read(1)[0] == -1
    del line
    board.close()


def test_watch_has_no_deadline_without_a_limit() -> None:
    watch = Watch({"pre": math.inf})
    watch.starting(PRE, 5)
    watch.idle(PRE)
    watch.dealt(PRE)

    assert list(watch.late(time.monotonic() + 1e6, lambda _: (0, 0))) == []


def test_watch_names_a_late_worker_once() -> None:
    watch = Watch({"pre": 1.0})
    watch.starting(PRE, 5)
    watch.idle(PRE)
    watch.dealt(PRE)
    now = time.monotonic()
    begun = (3, int(now * 1e9))

    assert list(watch.late(now + 0.5, lambda _: begun)) == []
    assert watch.next_look <= now + 1.1
    assert list(watch.late(now + 1.5, lambda _: begun)) == [PRE]
    assert list(watch.late(now + 9, lambda _: begun)) == []
    assert watch.next_look == math.inf


def test_limit_counts_from_the_item_in_work() -> None:
    watch = Watch({"pre": 1.0})
    watch.starting(PRE, 5)
    watch.idle(PRE)
    watch.dealt(PRE)
    now = time.monotonic()

    assert list(watch.late(now + 1.5, lambda _: (3, int((now + 1.2) * 1e9)))) == []
    assert watch.next_look == pytest.approx(now + 2.2, abs=0.01)


@pytest.mark.parametrize("seq", [-1, 3])
def test_limits_do_not_run_while_the_supervisor_sleeps(seq) -> None:
    watch = Watch({"pre": 1.0})
    watch.starting(PRE, 5)
    watch.idle(PRE)
    watch.dealt(PRE)
    now = time.monotonic()
    begun = seq, int(now * 1e9)

    watch.looked(now, now + 0.5, now + 0.6)  # merely busy
    watch.looked(now, now + 0.9, now + 60)

    assert watch.next_look == pytest.approx(now + 61, abs=0.01)
    assert list(watch.late(now + 60.5, lambda _: begun)) == []
    assert list(watch.late(now + (61.1 if seq >= 0 else 71.1), lambda _: begun)) == [PRE]


def test_limit_of_a_start_does_not_run_while_the_supervisor_sleeps() -> None:
    watch = Watch({"pre": 1.0})
    watch.starting(PRE, 5)
    now = time.monotonic()

    watch.looked(now, now + 1, now + 60)

    assert list(watch.late(now + 63, lambda _: (-1, 0))) == []
    assert list(watch.late(now + 65, lambda _: (-1, 0))) == [PRE]


@pytest.mark.parametrize(
    ("exitcode", "text"),
    [(0, "exited with status 0"), (-11, "killed by SIGSEGV"), (-250, "killed by signal 250")],
)
def test_exit_is_put_into_words(exitcode, text) -> None:
    assert describe_exit(exitcode) == text
    assert "memory ran out" in describe_exit(-9)


def entries(count: int) -> list[Entry]:
    return [Entry(str(n), b"") for n in range(count)]


def test_listed_feed_gives_what_is_asked_for_and_says_when_it_ends() -> None:
    feed = ListedFeed(iter(entries(5)), 5)

    assert [(len(taken), ended) for taken, ended, _ in (feed.take(2), feed.take(3))] == [
        (2, False),
        (3, True),
    ]
    assert ListedFeed(iter([]), 0).take(4) == ([], True, False)


@contextlib.contextmanager
def threaded(source, ahead=4):
    feed = ThreadedFeed(source, ahead=ahead)
    try:
        yield feed
    finally:
        feed.close()
        feed.close()


def drained(feed) -> list[Entry]:
    import select

    taken: list[Entry] = []
    while True:
        assert select.select([feed.fileno()], [], [], 60)[0], "the feed never becomes readable"
        some, ended, _ = feed.take(3)
        taken += some
        if ended:
            return taken


def test_what_comes_back_goes_before_all_others_the_oldest_first() -> None:
    executions = [
        Execution(Batch(0, items=[Item(seq, 0, f"s{seq}", b"")]), 0, 1) for seq in range(6)
    ]
    queue = InOrder()
    for execution in executions[4:]:
        queue.push(execution)

    queue.push_back([executions[2]])  # given to a worker after it had failed with 1
    queue.push_back([executions[1], executions[3]])

    assert len(queue) == 5
    assert queue.peek().seq == 1
    assert [queue.pop().seq for _ in range(5)] == [1, 2, 3, 4, 5]


def test_threaded_feed_gives_everything_in_order() -> None:
    with threaded(iter(entries(50))) as feed:
        assert drained(feed) == entries(50)
    with threaded(iter([])) as feed:
        assert drained(feed) == []


def test_threaded_feed_pulls_no_more_than_it_was_told() -> None:
    pulled: list[int] = []

    def source():
        for entry in entries(100):
            pulled.append(1)
            yield entry

    with threaded(source(), ahead=4) as feed:  # noqa: F841
        wait_until(lambda: len(pulled) >= 4)
        threading.Event().wait(0.05)
        assert len(pulled) <= 5


def test_threaded_feed_raises_after_what_came_before() -> None:
    def source():
        yield from entries(4)
        raise OSError("unplugged")

    taken: list[Entry] = []
    with threaded(source(), ahead=9) as feed, pytest.raises(OSError, match="unplugged"):  # noqa: PT012
        while True:
            some, ended, _ = feed.take(3)
            taken += some
            assert not ended
    assert taken == entries(4)
