"""What the emulator tells of a program."""

from __future__ import annotations

from gepipe.emulator.report import Report, Tally


def test_what_differs_in_numbers_only_is_one_kind() -> None:
    tally = Tally()

    assert tally.add("f at a.py:1: ", "0x7f00 has 3 bytes")
    assert not tally.add("f at a.py:1: ", "0x8ff0 has 12 bytes")
    assert tally.add("f at a.py:2: ", "0x7f00 has 3 bytes")
    assert list(tally) == [
        "f at a.py:1: 0x7f00 has 3 bytes (2 times)",
        "f at a.py:2: 0x7f00 has 3 bytes",
    ]
    assert len(tally) == 2


def test_a_report_is_true_to_what_was_told() -> None:
    report = Report(quiet=True, leaks=lambda: ["a stream"])
    report.breaks.add("f: ", "wrong")
    report.breaks.add("f: ", "wrong")
    report.note("f: ", "forgiven")

    assert report.lines() == ["rule broken: f: wrong (2 times)", "not released: a stream"]
    assert list(report.notes) == ["f: forgiven"]
