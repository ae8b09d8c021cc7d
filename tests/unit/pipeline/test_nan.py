"""Outputs that hold NaN: set aside, passed on, or passed on with a word."""

from __future__ import annotations

import logging
import math

import numpy as np
import pytest

from gepipe.io.jsonl import JsonlSink
from gepipe.ops.plan import plan_post
from gepipe.ops.user import Python
from gepipe.pipeline.bodies import NanError, PostBody
from gepipe.pipeline.meta import encode

WRONG = {"y": np.array([1.0, math.nan], np.float32)}
RIGHT = {"y": np.array([1.0, 2.0], np.float32)}


def first(outputs):
    return {"first": float(outputs["y"][0])}


def body(nan: str) -> PostBody:
    made = PostBody(plan_post([Python(first)]), JsonlSink("out.jsonl").encoder, nan)
    made.setup()
    return made


def test_an_item_is_set_aside_and_the_next_is_not() -> None:
    post = body("fail")

    with pytest.raises(NanError, match=r"output 'y' holds 1 NaN of 2 values; set `nan: keep` or"):
        post.read(WRONG, encode({}))
    assert post.read(RIGHT, encode({})) == b'{"first": 1.0}'


@pytest.mark.parametrize(("nan", "said"), [("keep", 0), ("warn", 1)])
def test_items_are_passed_on_and_one_word_is_said_at_most(caplog, nan, said) -> None:
    post = body(nan)

    with caplog.at_level(logging.WARNING, "gepipe"):
        made = [post.read(rows, encode({})) for rows in (RIGHT, WRONG, WRONG)]

    assert made == [b'{"first": 1.0}'] * 3
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == said
    assert all("'y' holds 1 NaN of 2 values and is passed on" in each for each in texts)
    assert all(each.endswith("`nan: fail` names the inputs") for each in texts)
