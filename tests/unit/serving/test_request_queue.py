from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from gepipe.errors import ItemError
from gepipe.serving.classes import SHARE
from gepipe.serving.merging import Query
from gepipe.serving.request_queue import RequestQueue


def filled(
    urgent: int, bulk: int, *, rows: int = 1, limit: int = 1000, gears: tuple[int, ...] = ()
) -> RequestQueue:
    waiting = RequestQueue(limit, gears=gears)
    for number in range(max(urgent, bulk)):
        if number < bulk:
            waiting.put(Query(rows=rows, request=("bulk", number)), realtime=False)
        if number < urgent:
            waiting.put(Query(rows=rows, request=("real-time", number)), realtime=True)
    return waiting


def taken(waiting: RequestQueue, capacity: int, *, merged: bool = True) -> list:
    return [query.request for query in waiting.take(capacity, merged=merged)]


def test_batch_is_what_waits_in_order() -> None:
    waiting = filled(0, 6)
    assert taken(waiting, 4) == [("bulk", number) for number in range(4)]
    assert taken(waiting, 4) == [("bulk", 4), ("bulk", 5)]


def test_real_time_comes_first_and_takes_along_what_costs_it_nothing() -> None:
    waiting = filled(2, 3, gears=(1, 4, 8))
    urgent = [("real-time", 0), ("real-time", 1)]
    assert taken(waiting, 8) == [*urgent, ("bulk", 0), ("bulk", 1)]
    assert taken(waiting, 8) == [("bulk", 2)]


@pytest.mark.parametrize("gears", [(), (1, 2, 8)])
def test_real_time_is_not_made_slower_by_bulk(gears) -> None:
    waiting = filled(2, 3, gears=gears)
    assert taken(waiting, 8) == [("real-time", 0), ("real-time", 1)]
    assert taken(waiting, 8) == [("bulk", number) for number in range(3)]


@pytest.mark.parametrize("gears", [(2,), (1, 2)])
def test_bulk_keeps_its_share(gears) -> None:
    waiting = filled(10 * SHARE, 10, gears=gears)
    picked = [kind for _ in range(2 * SHARE) for kind, _ in taken(waiting, 2)]
    assert picked.count("bulk") in (len(picked) // SHARE, len(picked) // SHARE + 1)


def test_batch_ends_at_the_request_that_does_not_fit() -> None:
    waiting = filled(0, 3, rows=3)
    assert taken(waiting, 8) == [("bulk", 0), ("bulk", 1)]
    assert taken(waiting, 2) == [("bulk", 2)]  # too long for any batch: cut up later


def test_requests_that_must_not_be_merged_come_one_by_one() -> None:
    waiting = filled(0, 2)
    assert taken(waiting, 8, merged=False) == [("bulk", 0)]


def test_request_without_rows_is_handed_out() -> None:
    assert taken(filled(0, 1, rows=0), 4) == [("bulk", 0)]


def test_too_many_are_refused() -> None:
    waiting = filled(1, 1, limit=2)
    with pytest.raises(ItemError, match="2 requests wait already") as caught:
        waiting.put(Query(rows=1), realtime=True)
    assert caught.value.kind == "overloaded"


def test_what_waits_is_handed_out_after_the_end() -> None:
    waiting = filled(0, 1)
    waiting.end()
    with pytest.raises(ItemError):
        waiting.put(Query(rows=1), realtime=False)
    assert taken(waiting, 4) == [("bulk", 0)]
    assert taken(waiting, 4) == []


def test_part_filled_batch_waits_for_more() -> None:
    waiting = RequestQueue(10, max_wait_s=100)
    with ThreadPoolExecutor(1) as pool:
        batch = pool.submit(waiting.take, 2, merged=True)
        for _ in range(2):
            waiting.put(Query(rows=1, began=time.monotonic()), realtime=False)
        assert len(batch.result(60)) == 2


def test_part_filled_batch_waits_no_longer_than_it_may() -> None:
    waiting = RequestQueue(10, max_wait_s=0.05)
    begin = time.monotonic()
    waiting.put(Query(rows=1, began=begin), realtime=False)

    assert len(waiting.take(2, merged=True)) == 1
    assert 0.05 <= time.monotonic() - begin < 30


def test_taker_is_woken_by_the_end() -> None:
    waiting = RequestQueue(10)
    timer = threading.Timer(0.05, waiting.end)
    timer.start()
    assert waiting.take(4, merged=True) == []
    timer.join()
