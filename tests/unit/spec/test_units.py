# ruff: noqa: E501 - messages stand in one piece
"""Durations, sizes and failure limits."""

import pytest

from gepipe.spec.units import (
    FailureLimit,
    parse_duration,
    parse_failures,
    parse_size,
    parse_timeout,
    shown,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("50ms", 0.05),
        ("1.5s", 1.5),
        ("2m", 120.0),
        ("3min", 180.0),
        ("1h", 3600.0),
        ("7us", 7e-6),
        ("50 ms", 0.05),
        (" 2s ", 2.0),
        (".5s", 0.5),
        ("3", 3.0),
        (3, 3.0),
        (0.25, 0.25),
        (0, 0.0),
    ],
)
def test_a_duration_has_a_unit_or_is_seconds(text, seconds) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "value", ["", "ms", "1:30", "5 lightyears", "-5ms", "1e3s", True, None, [], -1, float("nan"), float("inf"), "1,5s", "5MS", "٣s"],
)  # fmt: skip
def test_anything_else_is_no_duration(value) -> None:
    with pytest.raises(ValueError, match="expected a duration such as 50ms, "):
        parse_duration(value)


def test_a_duration_error_says_what_it_got() -> None:
    with pytest.raises(ValueError, match=r"\(a plain number is seconds\), got '1:30'$"):
        parse_duration("1:30")


def test_a_timeout_is_more_than_zero() -> None:
    assert parse_timeout("1ms") == pytest.approx(0.001)
    with pytest.raises(
        ValueError, match="expected a duration of more than 0; leave the key out for the default"
    ):
        parse_timeout("0s")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64MiB", 64 << 20),
        ("1GB", 10**9),
        ("10k", 10_000),
        ("10kB", 10_000),
        ("10KB", 10_000),
        ("2KiB", 2048),
        ("1.5MiB", 3 << 19),
        ("1T", 10**12),
        ("7", 7),
        ("7B", 7),
        (7, 7),
        (0, 0),
    ],
)
def test_a_size_has_a_unit_or_is_bytes(text, size) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("value", ["", "MiB", "1.5", "-1k", -1, 1.5, True, None, "10 apples"])
def test_anything_else_is_no_size(value) -> None:
    with pytest.raises(ValueError, match="expected a size such as 64MiB, 1GB or 10k"):
        parse_size(value)


def test_a_failure_limit_is_a_number_or_a_share() -> None:
    assert parse_failures(100) == FailureLimit(count=100)
    assert parse_failures(0).allowed(1000) == 0
    assert parse_failures("1%").allowed(250) == 2
    assert parse_failures("0.5 %") == FailureLimit(percent=0.5)
    assert parse_failures("100%").allowed(7) == 7
    assert str(parse_failures("1%")) == "1.0%"
    assert str(parse_failures(3)) == "3"


@pytest.mark.parametrize("value", ["101%", "%", "-1%", "x", "5", -1, 1.5, True, None])
def test_anything_else_is_no_failure_limit(value) -> None:
    with pytest.raises(ValueError, match="a number of items such as 100, or a share of them such"):
        parse_failures(value)


def test_values_are_quoted_as_the_file_writes_them() -> None:
    values = [None, True, "a", "x" * 99, {}, [], (), 1, 2.5]

    assert [shown(value) for value in values] == [
        "nothing",
        "true",
        "'a'",
        repr("x" * 57 + "..."),
        "a mapping",
        "a list",
        "a list",
        "1",
        "2.5",
    ]
