from __future__ import annotations

import numpy as np
import pytest

from gepipe.errors import TensorMismatchError
from gepipe.pipeline.comparison import CompareRequest, Comparison
from gepipe.pipeline.differences import Differences, OutputDifference, agrees


def added(*pairs):
    output = OutputDifference("y")
    for index, (a, b) in enumerate(pairs):
        output.add(index, np.array(a, np.float32), np.array(b, np.float32))
    return output


def test_differences_are_the_largest_of_all_items():
    output = added(([1, 2], [1, 2]), ([4, 0], [3, 0]), ([2, 2], [2, 2.5]))

    assert (output.items, output.max_abs, output.max_rel, output.reach) == (3, 1.0, 0.25, 4.0)
    assert output.scaled == 0.25
    assert output.worst == 1
    assert 0.99 < output.cosine < 1


def test_nan_and_infinity_count_where_the_other_side_has_none():
    nan, inf = np.nan, np.inf
    output = added(([nan, 1, inf, inf], [nan, nan, inf, -inf]))

    assert (output.nan_a, output.nan_b, output.torn) == (1, 2, 2)
    assert output.max_abs == 0


def test_opposite_and_empty_values():
    assert added(([1, 0], [-1, 0])).cosine == -1
    assert added(([0, 0], [0, 0])).cosine == 1
    assert added(([0, 0], [0, 1])).cosine == 0
    assert added(([], [])).max_abs == 0
    assert added(([0, 0], [0, 1])).scaled == 1


def test_outputs_of_other_names_are_matched_by_place():
    kept = Differences()
    one = np.ones(2)
    kept.add(0, {"a": one, "b": one}, {"x": one, "y": 2 * one})

    assert kept.outputs["b"].max_abs == 1
    with pytest.raises(TensorMismatchError, match="outputs"):
        kept.add(1, {"a": one}, {"x": one, "y": one})
    with pytest.raises(TensorMismatchError, match="shape"):
        kept.add(1, {"a": one, "b": one}, {"a": one, "b": np.ones(3)})


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"top_k": [{"class": 3, "score": 0.9}]}, {"top_k": [{"class": 3, "score": 0.1}]}, True),
        ({"top_k": [{"class": 3, "score": 0.9}]}, {"top_k": [{"class": 4, "score": 0.9}]}, False),
        ({"a": [1, "x", 0.5]}, {"a": [1, "x", 0.505]}, True),
        ({"a": [1, "x", 0.5]}, {"a": [1, "x", 0.6]}, False),
        ({"a": 1}, {"b": 1}, False),
        ([1], [1, 2], False),
        (float("nan"), float("nan"), True),
        (float("inf"), float("inf"), True),
        (float("inf"), 1.0, False),
        (1.0, float("-inf"), False),
        (np.array([np.inf, 1.0]), np.array([np.inf, 9.0]), False),
        (np.array([np.nan, 1.0]), np.array([np.nan, 1.0]), True),
        ([np.ones(2)], [np.ones(2) * 2], False),
        (np.array([1.0, 200.0]), np.array([1.0, 201.0]), True),
        (np.array([1, 2]), np.array([1, 3]), False),
        (np.ones(2), np.ones(3), False),
        ("a", "a", True),
        (None, None, True),
    ],
)
def test_whether_results_say_the_same(first, second, expected):
    assert agrees(first, second, 0.01) is expected


def test_what_is_beyond_the_thresholds_is_listed():
    found = Comparison(CompareRequest("p.yaml"), ("a", "b"), items=10, agreeing=9)
    found.outputs = [added(([1.0], [1.1]))]
    found.failed = {"b": (2, "why")}

    problems = found.problems()

    assert len(problems) == 3
    assert "9 of 10" in problems[1]
