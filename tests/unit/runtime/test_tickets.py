"""A worker's side of the messages: shapes that travel with tickets, memory, runs of pre alone."""

from __future__ import annotations

import gc
import socket
import struct
import threading

import numpy as np
import pytest

from gepipe.errors import ItemError
from gepipe.runtime.board import Board
from gepipe.runtime.channel import Channel, WorkerChannel
from gepipe.runtime.memory import SharedBuffer, SlotLayout, Slots
from gepipe.runtime.tickets import serve
from gepipe.tensors import TensorSpec
from tests.support import wait_until

OPEN = SlotLayout.of((TensorSpec("x", "float32", (2, -1)),), 4, (2 * 6 * 4,))
MADE = SlotLayout.of((TensorSpec("y", "float32", (-1,)),), 4, (6 * 4,))


class Worker:
    """A worker in a thread, and the supervisor's end of its channel."""

    def __init__(self, role, stage, *layouts) -> None:
        ours, self._theirs = socket.socketpair()
        self.channel = Channel(ours)
        self._board = Board.create(1)
        buffers = [SharedBuffer.create(2 * layout.slot_nbytes) for layout in layouts]
        self.slots = [Slots(*link) for link in zip(buffers, layouts, strict=True)]
        self._buffers = [self._board.buffer, *buffers]
        links = [
            (buffer.nbytes, layout.to_plain())
            for buffer, layout in zip(buffers, layouts, strict=True)
        ]
        message = ("attach", self._board.buffer.nbytes, links)
        self.channel.send_shared(message, [buffer.fd for buffer in self._buffers])

        def run() -> None:
            channel = WorkerChannel(self._theirs)
            serve(channel, role, 0, stage, channel.receive())
            channel.close()

        self._thread = threading.Thread(target=run)
        self._thread.start()

    def answers(self, count=1):
        found = []
        wait_until(lambda: found.extend(self.channel.receive()) or len(found) >= count)
        return [(ticket, results, *shapes) for ticket, _, results, *shapes in found]

    def close(self) -> None:
        self.channel.close()
        self._thread.join(60)
        assert not self._thread.is_alive()
        self.slots.clear()
        for buffer in self._buffers:
            buffer.close()


@pytest.fixture
def worker(monkeypatch):
    made, held = [], []

    class Held(SharedBuffer):
        """What a worker maps, which the end of its process would unmap."""

        def __init__(self, fd, nbytes) -> None:
            super().__init__(fd, nbytes)
            held.append(self)

    monkeypatch.setattr("gepipe.runtime.tickets.SharedBuffer", Held)

    def make(role, stage, *layouts):
        made.append(Worker(role, stage, *layouts))
        return made[-1]

    yield make
    for each in made:
        each.close()
    gc.collect()  # an error keeps the frames that it went through
    for buffer in held:
        buffer.close()


class Fill:
    """Writes rows as wide as the payload says, each full of the payload."""

    def __init__(self) -> None:
        self.memory = []

    def attach(self, buffer) -> None:
        self.memory.append(bytes(buffer.map[:4]))
        buffer.close()

    def write(self, payload, rows) -> bytes:
        if payload < 0:
            raise ItemError("odd", "below zero")
        for row in rows.values():
            (row if isinstance(row, np.ndarray) else row.one((2, payload)))[...] = payload
        return b"%d of %d" % (payload, len(rows))


def test_pre_says_the_shape_that_it_made(worker) -> None:
    subject = worker("pre", Fill(), OPEN)

    for ticket, width in enumerate((6, 1, 3, -1, 7)):
        subject.channel.send((ticket, ticket % 2, [0], [ticket], [width], None))

    first, second, third, failed, large = subject.answers(5)
    assert first == (0, [b"6 of 1"], ((2, 6),))
    assert second == (1, [b"1 of 1"], ((2, 1),))
    assert third == (2, [b"3 of 1"], ((2, 3),))
    assert failed == (3, [("odd", "below zero", None)], None)
    assert large[1][0][0] == "too_large"
    assert large[2] is None
    assert (subject.slots[0].view(0, ((2, 3),))["x"][0] == 3).all()


def test_pre_is_given_rows_of_the_shape_that_came_with_the_ticket(worker) -> None:
    subject = worker("pre", Fill(), OPEN)

    subject.channel.send((1, 1, [0, 2], [4, 6], [5, 7], ((2, 3),)))
    subject.channel.send((2, 0, [0, 1], [8, 9], [5, 7], ((2, 9),)))  # there is no room

    fitting, large = subject.answers(2)
    assert fitting == (1, [b"5 of 1", b"7 of 1"])
    assert [kind for kind, _, _ in large[1]] == ["too_large", "too_large"]
    rows = subject.slots[0].view(1, ((2, 3),))["x"]
    assert (rows[0] == 5).all()
    assert (rows[2] == 7).all()


def test_memory_arrives_between_tickets_in_their_order(worker) -> None:
    stage = Fill()
    subject = worker("pre", stage, OPEN)

    for number in range(5):
        buffer = SharedBuffer.create(4096)
        buffer.map[:4] = struct.pack("<i", number)
        subject.channel.send_shared(("memory", 4096), [buffer.fd])
        buffer.close()
        subject.channel.send((number, 0, [0], [number], [1], None))
    subject.answers(5)

    assert stage.memory == [struct.pack("<i", number) for number in range(5)]


def test_a_run_of_pre_alone_has_no_slots(worker) -> None:
    subject = worker("pre", Fill())

    subject.channel.send((1, -1, [0, 1, 2], [0, 1, 2], [3, -1, 4], None))

    assert subject.answers() == [(1, [b"3 of 0", ("odd", "below zero", None), b"4 of 0"])]


class Sum:
    """Sums the first axis of each row, which it is told the width of by the batch."""

    in_flight = 2

    def submit(self, inputs, outputs, count):
        total = inputs["x"].sum(axis=1)
        if total.max() > 1000:
            raise ValueError("too much")
        outputs["y"].open(total.shape[1:])[...] = total
        return count

    def collect(self, pending) -> None:
        assert pending > 0


def test_infer_says_the_shapes_of_its_outputs(worker) -> None:
    subject = worker("infer", Sum(), OPEN, MADE)
    inputs, outputs = subject.slots
    inputs.view(0, ((2, 3),))["x"][...] = np.arange(4)[:, None, None]
    inputs.view(1, ((2, 5),))["x"][...] = 600

    subject.channel.send((1, 0, 0, 0, 2, [], 0, ((2, 3),)))
    subject.channel.send((2, 0, 0, 2, 4, [3], 2, ((2, 3),)))  # the other half, with a hole
    subject.channel.send((3, 1, 1, 0, 4, [], 4, ((2, 5),)))

    first, second, failed = subject.answers(3)
    assert first == (1, [b""], ((3,),))
    assert second == (2, [b""], ((3,),))
    assert failed[0] == 3
    assert failed[1][0][0] == "ValueError"
    assert len(failed) == 2
    assert outputs.view(0, ((3,),))["y"][:, 0].tolist() == [0, 2, 4, 0]


class Tell:
    def read(self, rows, meta) -> bytes:
        return b"%d %d" % (len(rows["y"]), rows["y"].sum()) + meta


def test_post_reads_rows_at_the_shape_that_came_with_the_ticket(worker) -> None:
    subject = worker("post", Tell(), MADE)
    subject.slots[0].view(1, ((3,),))["y"][...] = np.arange(4)[:, None]

    subject.channel.send((1, 1, [1, 3], [1, 3], [b"a", b"b"], ((3,),)))

    assert subject.answers() == [(1, [b"3 3a", b"3 9b"])]
