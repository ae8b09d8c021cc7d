from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gepipe.errors import ConfigError, ItemError
from gepipe.ops.results import Identity, Softmax, Threshold, TopK

SCORES = np.array([0.1, 0.5, 0.2, 0.5, 0.05], np.float32)


def classes(result):
    return [entry["class"] for entry in result["top_k"]]


def test_the_highest_classes_come_first_and_ties_by_class():
    assert classes(TopK(3)({"probs": SCORES}, {})) == [1, 3, 2]
    assert classes(TopK(3)({"probs": np.zeros(10, np.float32)}, {})) == [0, 1, 2]


def test_fewer_classes_than_k_are_all_listed():
    assert classes(TopK(50)({"probs": SCORES}, {})) == [1, 3, 2, 0, 4]


@given(
    hnp.arrays(np.float32, st.integers(1, 40), elements=st.sampled_from([-1, 0, 0.25, 0.5, 3])),
    st.integers(1, 45),
)
def test_top_k_agrees_with_a_full_stable_sort(scores, k):
    expected = sorted(range(len(scores)), key=lambda number: (-scores[number], number))[:k]

    assert classes(TopK(k)({"s": scores}, {})) == expected


def test_a_record_is_plain_json():
    result = TopK(1)({"probs": SCORES[None]}, {})

    assert json.loads(json.dumps(result)) == {"top_k": [{"class": 1, "score": 0.5}]}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("l.json", '["a", "b", "c", "d", "e"]'),
        ("l.json", '{"0": "a", "1": "b", "2": "c", "3": "d", "4": "e"}'),
        ("l.txt", "a\nb\nc\nd\ne\n"),
        ("l.txt", "\ufeffa\r\nb\r\nc\r\nd\r\ne\r\n\r\n"),
    ],
)
def test_labels_come_from_json_or_lines(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")

    result = TopK(2, labels=path)({"probs": SCORES}, {})

    assert result["top_k"][0] == {"class": 1, "label": "b", "score": 0.5}


def test_sparse_labels_leave_the_others_without_a_name(tmp_path):
    path = tmp_path / "labels.json"
    path.write_text('{"3": "tiger cat"}')

    result = TopK(2, labels=path)({"probs": SCORES}, {})

    assert [entry["label"] for entry in result["top_k"]] == [None, "tiger cat"]


@pytest.mark.parametrize("count", [4, 6])
def test_labels_of_another_model_are_refused_at_first_use(tmp_path, count):
    path = tmp_path / "labels.txt"
    path.write_text("x\n" * count)

    with pytest.raises(ConfigError, match=f"names {count} classes.*'probs' has 5"):
        TopK(2, labels=path)({"probs": SCORES}, {})


@pytest.mark.parametrize("text", ["", "{", '{"cat": 3}', '{"-1": "x"}', "[]"])
def test_broken_label_files_are_named_at_setup(tmp_path, text):
    path = tmp_path / "labels.json"
    path.write_text(text)

    with pytest.raises(ConfigError, match=r"labels\.json"):
        TopK(labels=path).setup()


def test_missing_label_files_are_named_at_setup(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        Threshold(0.5, labels=tmp_path / "no.json").setup()


def test_n8_nan_scores_that_are_let_through_come_last():
    scores = SCORES.copy()
    scores[1] = np.nan

    result = TopK(5)({"probs": scores}, {})

    assert classes(result) == [3, 2, 0, 4, 1]
    assert np.isnan(result["top_k"][4]["score"])
    assert classes(TopK(2)({"probs": np.full(4, np.nan, np.float32)}, {})) == [0, 1]
    assert [entry["class"] for entry in Threshold(0.15)({"p": scores}, {})["classes"]] == [3, 2]


def test_softmax_sums_to_one_and_does_not_overflow():
    result = Softmax()({"logits": np.array([1000.0, 1000.0, -1000.0], np.float16)}, {})

    assert result["logits"].tolist() == [0.5, 0.5, 0.0]
    assert result["logits"].dtype == np.float32


def test_the_output_must_be_named_if_there_are_several():
    outputs = {"boxes": SCORES, "scores": SCORES}

    with pytest.raises(ConfigError, match="say which"):
        TopK(1)(outputs, {})
    with pytest.raises(ConfigError, match="did you mean 'scores'"):
        TopK(1, output="score")(outputs, {})
    assert classes(TopK(1, output="scores")(outputs, {})) == [1]


def test_scores_must_be_one_row():
    with pytest.raises(ItemError, match=r"\[2, 5\]"):
        TopK(1)({"probs": np.stack([SCORES, SCORES])}, {})


def test_threshold_keeps_what_is_high_enough():
    labelled = Threshold(0.2)({"probs": SCORES}, {})
    shortened = Threshold(0.2)(TopK(5)({"probs": SCORES}, {}), {})

    assert [entry["class"] for entry in labelled["classes"]] == [1, 3, 2]
    assert classes(shortened) == [1, 3, 2]
    assert Threshold(0.9)({"probs": SCORES}, {}) == {"classes": []}


def test_identity_copies_out_of_the_slot():
    slot = SCORES.copy()

    result = Identity()({"probs": slot}, {})
    slot[:] = 0

    assert (result["probs"] == SCORES).all()
    assert list(Identity(("b",))({"a": slot, "b": slot}, {})) == ["b"]


def test_top_k_must_be_positive():
    with pytest.raises(ValueError, match="at least 1"):
        TopK(0)
