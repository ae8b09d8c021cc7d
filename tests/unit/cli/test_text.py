import io
import sys
from pathlib import Path

import pytest

from gepipe.cli import text
from gepipe.errors import GepipeError


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("plain.jpg", "plain.jpg"),
        ("雪 é [red].jpg", "雪 é [red].jpg"),
        ("a\x1b[31mb\n", "a\\x1b[31mb\\n"),
        ("\udcff\udc80.jpg", "\\xff\\x80.jpg"),
        ("right\u202eleft", "right\\u202eleft"),
    ],
)
def test_names_cannot_move_the_cursor(name, shown):
    assert text.harmless(name) == shown


def test_line_breaks_of_a_message_are_kept():
    assert text.harmless_lines("a:1: x\nb:\t2\x07") == "a:1: x\nb:  2\\x07"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.416, "0.42 s"), (9, "9 s"), (12.3, "12 s"), (187, "3:07"), (3750, "1:02:30")],
)
def test_durations_are_read_at_a_glance(seconds, shown):
    assert text.duration(seconds) == shown


@pytest.mark.parametrize(
    ("nbytes", "shown"),
    [(12, "12 B"), (32768, "32.0 KiB"), (9699328, "9.2 MiB"), (1 << 34, "16.0 GiB")],
)
def test_sizes_have_a_unit(nbytes, shown):
    assert text.size(nbytes) == shown


def test_the_end_of_a_long_name_is_kept():
    assert text.cut("a/long/folder/photo.jpg", 10) == "…photo.jpg"
    assert text.cut("photo.jpg", 10) == "photo.jpg"


def test_counts_have_the_right_plural():
    assert text.count(1, "item") == "1 item"
    assert text.count(2000, "item") == "2,000 items"
    assert text.count(2, "process", "processes") == "2 processes"


def test_nothing_is_written_where_there_is_no_stream(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", None)

    text.print_out("lost")

    assert capsys.readouterr() == ("", "")


def test_a_line_goes_out_at_once(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)

    text.print_error("seen")

    assert stream.getvalue() == "seen\n"


def test_a_full_disk_behind_standard_output_is_an_error(monkeypatch):
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)

        with pytest.raises(GepipeError, match="cannot write to standard output: no space left"):
            text.print_out("a line")

        text.print_out("what follows leads nowhere")


def test_few_notes_stand_on_one_line_and_many_below():
    assert text.spread("run", ["a", "b"]) == ["run; a; b"]
    assert text.spread("run", ["a", "b", "c"]) == ["run", "  a", "  b", "  c"]
    assert text.spread("run", []) == ["run"]
