"""Items put together again, as the join's workers do it."""

from __future__ import annotations

import marshal
import pickle

import pytest

from gepipe.ops.gather import Gather
from gepipe.ops.user import Python
from gepipe.pipeline.join import EarlierError, JoinBody
from gepipe.pipeline.meta import encode
from gepipe.pipeline.objects import to_bytes


def head(record, key="parts", **meta):
    return marshal.dumps((to_bytes(record), encode(meta), key))


def part(facts, result):
    told = result if isinstance(result, tuple) else to_bytes(result)
    return encode(facts), told


def joined(item, *ops, singles=(False,), encode_=to_bytes, original=None):
    body = JoinBody(ops, encode_, singles, original)
    body.setup()
    return pickle.loads(body.write((b"payload", item), {}))


def test_parts_take_the_place_of_the_list_that_the_item_was_split_by() -> None:
    item = (head({"n": 1, "boxes": [1, 2]}, "boxes"),
            (part({"box": 1}, {"grey": 5}), part({"box": 2}, 7)))  # fmt: skip

    assert joined(item) == {"n": 1, "boxes": [{"box": 1, "grey": 5}, {"box": 2, "value": 7}]}
    assert joined(item, Gather("found")) == {
        "n": 1, "boxes": [1, 2], "found": [{"box": 1, "grey": 5}, {"box": 2, "value": 7}]
    }  # fmt: skip


def test_a_part_that_failed_says_why() -> None:
    item = (head({"boxes": []}), (part({"box": 1}, ("read", "nan", "holds NaN")),))

    assert joined(item)["parts"] == [
        {"box": 1, "failure": {"stage": "read", "kind": "nan", "error": "holds NaN"}}
    ]


def test_a_record_that_is_no_mapping_is_called_value() -> None:
    assert joined((head([1, 2]), ())) == {"value": [1, 2], "parts": []}


def test_the_only_part_adds_to_the_record() -> None:
    good = (head({"n": 1}), (part({}, {"grey": 5}),))

    assert joined(good, singles=(True,)) == {"n": 1, "grey": 5}
    assert joined(good, Gather(), Python(len), singles=(True,)) == 2


def test_an_item_that_failed_before_keeps_its_stage() -> None:
    with pytest.raises(EarlierError, match="no picture") as caught:
        joined(("preprocess", "not_an_image", "no picture"))
    assert caught.value.role == "preprocess"


def test_parts_of_parts() -> None:
    inner = (head({"kind": "line"}, "words"), (part({"at": 1}, {"text": "a"}),))
    item = (
        head({"page": 1}, "lines"),
        (part({"box": 1}, inner), part({"box": 2}, ("s", "k", "e"))),
    )

    lines = joined(item, singles=(False, False))["lines"]
    assert lines[0] == {"box": 1, "kind": "line", "words": [{"at": 1, "text": "a"}]}
    assert lines[1]["failure"]["stage"] == "s"
    assert joined(item, singles=(False, True))["lines"][0] == {
        "box": 1, "kind": "line", "at": 1, "text": "a"
    }  # fmt: skip


def test_frames_keep_their_number_in_front_whatever_the_last_operator_returns() -> None:
    item = (head({"boxes": []}, frame=3, time=0.1, position=3), ())

    assert list(joined(item, Gather(), Python(lambda _: {"own": 1}))) == ["frame", "time", "own"]
