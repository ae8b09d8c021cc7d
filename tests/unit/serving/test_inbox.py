"""A pre worker reads its items from memory that it shares with the process that has them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import numpy as np
import pytest

from gepipe.errors import ItemError
from gepipe.pipeline.crews import pickled
from gepipe.runtime.memory import SharedBuffer
from gepipe.serving.inbox import Inbox, InboxReader
from gepipe.serving.stageprocess import StageProcess
from tests.support import INPUT, Fate, Write


@pytest.fixture
def inbox():
    made = Inbox()
    yield made
    made.close()


@pytest.fixture
def reader():
    made = InboxReader()
    yield made
    if made._buffer is not None:
        made._buffer.close()


def passed(inbox: Inbox, reader: InboxReader, values: list) -> list:
    """Return what a worker reads of items."""
    places = inbox.put(values)
    assert inbox.buffer is not None
    reader.attach(SharedBuffer.mapped(os.dup(inbox.buffer.fd), inbox.buffer.nbytes))
    return [reader.read(place) for place in places]


def test_items_are_read_as_they_were_put(inbox, reader) -> None:
    frame = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    values = [b"\0one\0", frame[:, ::2], np.zeros((0, 3), np.float32), np.float64(2.5).reshape(())]

    text, part, empty, number = passed(inbox, reader, values)

    assert text == b"\0one\0"
    assert np.array_equal(part, frame[:, ::2])
    assert (empty.shape, empty.dtype) == ((0, 3), np.float32)
    assert (number.shape, number) == ((), 2.5)
    assert not part.flags.writeable


def test_what_was_read_outlives_the_next_items(inbox, reader) -> None:
    (first,) = passed(inbox, reader, [np.full(5, 7)])
    passed(inbox, reader, [np.full(5, 8)])
    assert first.tolist() == [7] * 5


def test_an_empty_item_is_refused(inbox, reader) -> None:
    with pytest.raises(ItemError, match="the input is empty") as caught:
        passed(inbox, reader, [b""])
    assert caught.value.kind == "empty"


def test_memory_follows_the_items(inbox, reader) -> None:
    passed(inbox, reader, [b"x"])
    small = inbox.buffer
    passed(inbox, reader, [b"x" * 500_000] * 2)
    assert inbox.buffer is small

    large = b"y" * (20 << 20)
    assert passed(inbox, reader, [large]) == [large]
    assert inbox.buffer is not small
    assert len(large) <= inbox.buffer.nbytes < 2 * len(large)
    passed(inbox, reader, [b"x"])
    assert inbox.buffer.nbytes == 1 << 20


@dataclass
class Placed(Write):
    """Writes the number that an item in the inbox is."""

    reader: InboxReader = field(default_factory=InboxReader)

    def attach(self, buffer: SharedBuffer) -> None:
        self.reader.attach(buffer)

    def write(self, payload, rows) -> bytes:
        return super().write(self.reader.read(payload), rows)


def test_a_worker_that_replaces_another_finds_its_items(tmp_path) -> None:
    body = Placed(fates=(Fate("pre", "mid-write", "SIGKILL", str(tmp_path), 9),))
    process = StageProcess("pre", "preprocess", pickled(body, "preprocess"), [INPUT], 30.0)
    try:
        process.open()
        numbers = [(number).to_bytes(8, "little") for number in range(12)]
        for first in range(0, 12, 4):
            results = process.work(process.hand_over(numbers[first : first + 4]))
            assert results == [b"meta of %d" % number for number in range(first, first + 4)]
            assert process.rows(4)["x"][:, 0].tolist() == [*range(first, first + 4)]
        large = (12).to_bytes(8, "little") + bytes(3 << 20)
        assert process.work(process.hand_over([large])) == [b"meta of 12"]
    finally:
        process.close()
