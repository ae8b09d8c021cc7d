from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from gepipe.serving.postprocess import Postprocess


@pytest.mark.parametrize(
    ("row_s", "rows"),
    [
        ([math.inf], 4),  # nobody knows yet
        ([0.0], 32),
        ([0.0001], 32),
        ([0.0005], 10),
        ([0.02], 4),
        ([0.0001, 0.0005], 10),  # of several workers, the slowest counts
    ],
)
def test_rows_are_worked_on_together_as_far_as_others_need_not_wait_long(row_s, rows) -> None:
    subject = object.__new__(Postprocess)
    subject._rows = 32
    subject._processes = [SimpleNamespace(wanted=SimpleNamespace(row_s=each)) for each in row_s]

    assert subject._rows_at_once() == rows
