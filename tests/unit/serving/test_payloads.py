from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest

from gepipe.errors import ItemError
from gepipe.serving import payloads
from gepipe.serving.payloads import PayloadMemory, PayloadReader, to_payload

PHOTO = bytes(range(256)) * 100


@pytest.fixture
def memory(monkeypatch) -> Iterator[PayloadMemory]:
    monkeypatch.setattr(payloads, "_MEMORY", 3 * 28672)  # three photos
    with closing(PayloadMemory()) as made:
        yield made


@pytest.fixture
def reader(memory) -> PayloadReader:
    made = PayloadReader()
    made.attach(memory.buffer)
    return made


def test_a_large_payload_is_found_in_the_memory(memory, reader) -> None:
    given, place = memory.put(PHOTO)

    assert len(given) == 2
    assert place == 0
    assert reader.read(given) == PHOTO


def test_an_array_is_found_in_the_memory(memory, reader) -> None:
    array = np.arange(6000, dtype=np.float32).reshape(2, 3000)

    given, place = memory.put(to_payload(array))

    assert place is not None
    assert len(given[2]) == 2
    found = reader.read(given)
    assert np.array_equal(found, array)
    assert found.dtype == array.dtype


@pytest.mark.parametrize("value", [b"", b"x" * 16384, np.arange(4.0)])
def test_small_payloads_travel_as_they_are(memory, reader, value) -> None:
    payload = to_payload(value)

    assert memory.put(payload) == (payload, None)
    if isinstance(value, bytes) and not value:
        with pytest.raises(ItemError, match="empty"):
            reader.read(payload)
    else:
        assert np.array_equal(reader.read(payload), value)


def test_what_has_no_room_travels_as_it_is_until_something_is_dropped(memory, reader) -> None:
    others = [bytes([number]) * len(PHOTO) for number in range(3)]
    put = [memory.put(each) for each in others]

    assert memory.put(PHOTO) == (PHOTO, None)
    memory.drop(put[1][1])
    given, place = memory.put(PHOTO)

    assert place == put[1][1]
    assert [reader.read(each) for each in (put[0][0], given, put[2][0])] == [
        others[0],
        PHOTO,
        others[2],
    ]


def test_what_was_read_stays_when_its_memory_goes_to_another(memory, reader) -> None:
    given, place = memory.put(PHOTO)
    read = reader.read(given)

    memory.drop(place)
    memory.put(bytes(len(PHOTO)))

    assert read == PHOTO


def test_after_the_end_nothing_is_put_there(memory) -> None:
    _, place = memory.put(PHOTO)
    memory.close()

    memory.drop(place)
    assert memory.put(PHOTO) == (PHOTO, None)
