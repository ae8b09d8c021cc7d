from __future__ import annotations

import pytest

from gepipe.triton.lookout import Lookout


@pytest.fixture
def subject():
    """Return a lookout whose server is asked by the test, and what it has told."""

    class Silent:
        def taken(self, model: str) -> int | None:
            raise TimeoutError(model)

        def close(self) -> None:
            pass

    told: list[float] = []
    made = Lookout(Silent(), "m", told.append)  # type: ignore[arg-type]
    yield made, told
    made.close()


def test_a_model_that_goes_on_loses_nothing(subject) -> None:
    lookout, told = subject
    for now, count in enumerate((None, None, 0, 5, 5, 9)):
        lookout.take(now, count)
    assert told == []


@pytest.mark.parametrize("counts", [(5, None, None, None, 3), (5, 2, 3, 4), (5, None, 9, 9)])
def test_a_model_that_is_loaded_anew_has_a_while_for_its_calls(subject, counts) -> None:
    lookout, told = subject
    for now, count in enumerate(counts):
        lookout.take(now, count)
        assert told == ([1] if now >= 3 else [])


def test_each_time_is_told_once(subject) -> None:
    lookout, told = subject
    for now, count in enumerate((5, None, None, None, None, 1, None, None, None, None)):
        lookout.take(now, count)
    assert told == [1, 6]
