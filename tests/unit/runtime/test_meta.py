"""What pre leaves for post arrives as it was, or is refused."""

from __future__ import annotations

import datetime as dt
from enum import IntEnum

import numpy as np
import pytest

from gepipe.errors import ItemError
from gepipe.pipeline.meta import decode, encode


class Side(IntEnum):
    LEFT = 1


@pytest.mark.parametrize(
    "value",
    [1, 2.5, "a", b"ab", True, None, 1j, [1, [2, "b"]], (1, 2), {"a": {"b": (1,)}}, {1, 2}, [], {}],
)
def test_plain_values_arrive_as_they_were(value) -> None:
    assert decode(encode({"key": value})) == {"key": value}


@pytest.mark.parametrize(
    ("value", "arrives"),
    [
        (np.float32(2.5), 2.5),
        (np.float64(2.5), 2.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.str_("text"), "text"),
        (np.arange(3), [0, 1, 2]),
        (np.array(7.0), 7.0),
        (np.array([["a"], ["b"]]), [["a"], ["b"]]),
        ([1, np.int32(2)], [1, 2]),
        ((np.uint8(1), "a"), (1, "a")),
        ({"box": [np.float32(1), np.ones(2)]}, {"box": [1.0, [1.0, 1.0]]}),
        ({np.int64(1): "a"}, {1: "a"}),
    ],
)
def test_numpy_arrives_as_numbers_and_lists(value, arrives) -> None:
    got = decode(encode({"key": value}))["key"]

    assert got == arrives
    assert type(got) is type(arrives)


class Circle(list):
    pass


circle: list = []
circle.append(circle)


@pytest.mark.parametrize(
    "value",
    [
        bytearray(b"ab"),
        memoryview(b"ab"),
        [bytearray(b"ab")],
        {"a": (bytearray(b"ab"),)},
        Side.LEFT,
        object(),
        int,
        compile("1", "a", "eval"),
        ...,
        np.datetime64("2024-01-01"),
        np.longdouble(1),
        np.array([object()]),
        np.zeros(5000),
        dt.date(2024, 1, 1),
        Circle(),
        circle,
    ],
)
def test_anything_else_is_refused(value) -> None:
    with pytest.raises(ItemError, match="meta") as caught:
        encode({"size": 3, "key": value})

    assert caught.value.kind == "meta"
