"""Texts as inputs: lines, JSON lines, columns of CSV and of Parquet files."""

from __future__ import annotations

import io
import json
import pickle
import sys
import tracemalloc

import pytest

from gepipe.errors import ConfigError, ItemError
from gepipe.io.csvrows import CsvRows
from gepipe.io.lines import JsonlRows, TextLines
from gepipe.io.manifest import Manifest
from gepipe.io.parquetrows import ParquetRows
from gepipe.io.source import Source


def taken(source) -> list[tuple[str, str]]:
    """Return the place of each input and its text, or the kind of its failure in brackets."""
    reader = pickle.loads(pickle.dumps(source.reader))
    found = []
    for entry in source.entries():
        try:
            text = reader.read(entry.payload).decode()
        except ItemError as error:
            text = f"[{error.kind}]"
        found.append((entry.source.rpartition("/")[2], text))
    return found


def refusal(source, number: int) -> str:
    """Return why the input of a number fails."""
    entry = list(source.entries())[number]
    with pytest.raises(ItemError) as error:
        source.reader.read(entry.payload)
    return str(error.value)


@pytest.fixture
def file(tmp_path):
    """Writes a file and returns its path."""

    def write(content: bytes, name: str = "a.txt") -> str:
        (tmp_path / name).write_bytes(content)
        return str(tmp_path / name)

    return write


@pytest.mark.parametrize("kind", [TextLines, JsonlRows, CsvRows, ParquetRows])
def test_they_are_sources_that_can_be_listed(kind):
    assert isinstance(kind("x"), Source)
    assert kind("x").finite


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        (b"one\ntwo\n", [(1, "one"), (2, "two")]),
        (b"one\ntwo", [(1, "one"), (2, "two")]),
        (b"one\r\ntwo\r\n", [(1, "one"), (2, "two")]),
        (b"one\r\n\r\n \t\r\ntwo\r\n", [(1, "one"), (4, "two")]),
        (b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n", [(1, "one"), (2, "\ufefftwo")]),
        (b" one \n", [(1, " one ")]),
        ("今天\u2028天气\x0b很好\n".encode(), [(1, "今天\u2028天气\x0b很好")]),
        (b"one\n\xff\xfe\nthree\n", [(1, "one"), (2, "[not_text]"), (3, "three")]),
        (b"x" * 10 + b"\n" + b"x" * 11 + b"\n" + b"x" * 10, [(1, "x" * 10), (2, "[too_large]"),
                                                            (3, "x" * 10)]),
        (b"x" * 10 + b"\r\n" + b"x" * 300_000 + b"\r\none", [(1, "x" * 10), (2, "[too_large]"),
                                                            (3, "one")]),
        (b"x" * 300_000, [(1, "[too_large]")]),
        (b"x" * 12, [(1, "[too_large]")]),
        (b"\xef\xbb\xbf" + b"x" * 10 + b"\r\ntwo", [(1, "x" * 10), (2, "two")]),
        (b"\xef\xbb\xbf" + b"x" * 11 + b"\r\ntwo", [(1, "[too_large]"), (2, "two")]),
    ],
)  # fmt: skip
def test_each_line_is_an_input(file, content, texts):
    source = TextLines(file(content), max_bytes=200 if b"x" not in content else 10)

    assert taken(source) == [(f"a.txt:{number}", text) for number, text in texts]


def test_several_files_a_folder_and_a_glob_are_read_in_order(file, tmp_path):
    one, two = file(b"1\n2\n", "one.txt"), file(b"3\n", "two.txt")
    file(b"no text", "photo.jpg")

    for paths in (str(tmp_path), (one, two), str(tmp_path / "*.txt")):
        assert [text for _, text in taken(TextLines(paths))] == ["1", "2", "3"]
    assert [text for _, text in taken(TextLines((two, one)))] == ["3", "1", "2"]


def test_a_zero_byte_and_bytes_outside_utf_8_concern_their_line_only(file):
    content = b"one\nt\0wo\n" + b"x" * 2000 + b"\n\xff\xff\nfive"

    assert [text for _, text in taken(TextLines(file(content)))] == [
        "one", "t\0wo", "x" * 2000, "[not_text]", "five",
    ]  # fmt: skip
    letters = "é" * 600  # one of them across the end of what is looked at
    assert taken(TextLines(file(b"a\0" + letters.encode()))) == [("a.txt:1", "a\0" + letters)]


def test_standard_input_is_read(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbfone\ntwo"))
    monkeypatch.setattr(sys, "stdin", stream)

    assert taken(TextLines("-")) == [("-:1", "one"), ("-:2", "two")]
    assert TextLines("-").path == "-"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (lambda f, _: TextLines(f(b"\n \n")), "only empty lines"),
        (lambda _f, d: TextLines(str(d / "absent.txt")), "no such file"),
        (lambda f, d: TextLines((f(b"x"), str(d / "absent.txt"))), "no such file"),
        (lambda _f, d: TextLines(str(d)), r"no text file in this folder.*\.txt, \.text"),
        (lambda _f, _d: TextLines("/dev/zero"), "is a device"),
        (lambda f, _: TextLines(f("é\n".encode("utf-16"))), "is UTF-16; expected UTF-8; .*iconv"),
        (lambda f, _: CsvRows(f(b"\xfe\xff\0a\0,\0b\0\n")), "is UTF-16"),
        (lambda f, _: TextLines(f(b"\x89PNG\r\n\x1a\n\0\0\0\r")), "is no text file"),
        (lambda f, _: CsvRows(f(b"a,b\n1,2\n")), r"no column 'text'; known: a, b.*`field:`"),
        (lambda f, _: CsvRows(f(b"txt,b\n1,2\n")), "did you mean 'txt'"),
        (lambda f, _: CsvRows(f(b"text\n")), "no row below the header"),
        (lambda f, _: CsvRows(f(b"\n"), field=0, header=False), "there is no row"),
        (lambda f, _: ParquetRows(f(b"text\n")), "cannot read this Parquet file"),
    ],
)
def test_what_cannot_be_listed_is_refused(file, tmp_path, source, message):
    with pytest.raises(ConfigError, match=message):
        list(source(file, tmp_path).entries())


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        (TextLines, {"paths": ""}, "paths is empty"),
        (TextLines, {"paths": ("-", "a.txt")}, "standard input"),
        (TextLines, {"paths": "a", "max_bytes": 0}, "at least 1"),
        (JsonlRows, {"paths": "a", "field": ""}, "field is empty"),
        (CsvRows, {"paths": "a", "delimiter": ";;"}, "one ASCII character"),
        (CsvRows, {"paths": "a", "field": -1}, "counted from 0"),
        (CsvRows, {"paths": "a", "header": False}, "give the column's number"),
        (ParquetRows, {"paths": "-"}, "standard input"),
    ],
)
def test_wrong_options_are_refused(kind, arguments, message):
    with pytest.raises(ValueError, match=message):
        kind(**arguments)


def test_the_field_of_a_json_line_is_taken(file):
    rows = [
        {"text": "one", "n": 1},
        {"n": 2},
        {"text": None},
        {"text": 5},
        {"text": ["x"]},
        ["text"],
        {"text": "zwei é 今"},
    ]
    lines = [json.dumps(row).encode() for row in rows]
    path = file(
        b"\r\n".join([*lines, b"", b'{"text": "cut', b'{"text": "\xff"}', b"{}" + b" " * 300])
        + b'\n{"text": "\\ud800"}',
        "a.jsonl",
    )
    source = JsonlRows(path, max_bytes=200)

    assert taken(source) == [
        ("a.jsonl:1", "one"),
        ("a.jsonl:2", "[no_field]"),
        ("a.jsonl:3", "[no_field]"),
        ("a.jsonl:4", "[not_text]"),
        ("a.jsonl:5", "[not_text]"),
        ("a.jsonl:6", "[bad_row]"),
        ("a.jsonl:7", "zwei é 今"),
        ("a.jsonl:9", "[bad_row]"),
        ("a.jsonl:10", "[not_text]"),
        ("a.jsonl:11", "[too_large]"),
        ("a.jsonl:12", "[not_text]"),
    ]
    assert refusal(source, 1) == "the row has no field 'text'; known: n"
    assert refusal(source, 3) == "field 'text' is a number; expected text"
    assert "302 bytes; at most 200" in refusal(source, 9)


def test_a_field_may_lie_in_another(file):
    path = file(b'{"a": {"b": "in", "b.c": "x"}, "a.b": "out"}\n{"a": {"b": "in"}}\n{"a": 1}\n')

    assert [text for _, text in taken(JsonlRows(path, field="a.b"))] == ["out", "in", "[no_field]"]


def test_the_column_of_a_csv_file_is_taken(file):
    content = (
        b'\xef\xbb\xbfid,text\r\n1,plain\r\n2,"a, ""b""\r\nand c"\r\n\r\n3\r\n4,5" pipe\r\n'
        b"5,\r\n6,\xff\r\n7," + b"x" * 300 + b"\r\n8,last"
    )
    source = CsvRows(file(content, "a.csv"), max_bytes=200)

    assert taken(source) == [
        ("a.csv:2", "plain"),
        ("a.csv:3", 'a, "b"\nand c'),
        ("a.csv:6", "[no_field]"),
        ("a.csv:7", '5" pipe'),
        ("a.csv:8", ""),
        ("a.csv:9", "[not_text]"),
        ("a.csv:10", "[too_large]"),
        ("a.csv:11", "last"),
    ]


def test_columns_may_have_numbers_and_other_delimiters(file):
    path = file(b"1;eins\n2;zwei\n", "a.csv")

    assert [text for _, text in taken(CsvRows(path, 1, ";", header=False))] == ["eins", "zwei"]
    assert [text for _, text in taken(CsvRows(path, 1, ";"))] == ["zwei"]


def test_a_quote_that_never_ends_costs_a_bounded_number_of_rows(file):
    rows = [b"%d,text of row %d" % (n, n) for n in range(30_000)]
    rows[10] = b'10,"never closed'
    source = CsvRows(file(b"id,text\n" + b"\n".join(rows), "a.csv"))

    found = taken(source)

    assert [text for _, text in found].count("[too_large]") == 1
    assert found[10] == ("a.csv:12", "[too_large]")
    assert found[-1] == ("a.csv:30001", "text of row 29999")
    assert len(found) > 22_000


def test_a_column_of_parquet_files_is_taken(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    texts = ["one", None, "", "é" * 101, "今天"]
    for number, kind in enumerate((pa.string(), pa.large_string(), pa.dictionary("i4", "string"))):
        table = pa.table({"n": list(range(5)), "text": pa.array(texts).cast(kind)})
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=2)

    found = taken(ParquetRows(str(tmp_path), max_bytes=200))

    assert found == [
        (f"{number}.parquet[{row}]", text)
        for number in range(3)
        for row, text in enumerate(["one", "[no_field]", "", "[too_large]", "今天"])
    ]
    with pytest.raises(ConfigError, match="column 'n' is int64; expected text"):
        list(ParquetRows(str(tmp_path), field="n").entries())
    with pytest.raises(ConfigError, match="no column 'txt'; did you mean 'text'"):
        list(ParquetRows(str(tmp_path), field="txt").entries())


def test_a_changed_line_is_another_input(file):
    path = file(b"one\ntwo\n")
    with Manifest.snapshot(TextLines(path)) as before:
        digest = before.digest
    file(b"one\ntwa\n")
    with Manifest.snapshot(TextLines(path)) as after:
        assert after.digest != digest
        assert after.is_read_from(path)


def test_listing_many_lines_takes_no_memory_for_each(file):
    path = file(b"a line of text that is as long as such lines are\n" * 50_000)
    with Manifest.snapshot(TextLines(path), limit=10):  # what is imported is not counted
        pass

    tracemalloc.start()
    with Manifest.snapshot(TextLines(path)) as manifest:
        peak = tracemalloc.get_traced_memory()[1]
        last = manifest[49_999]
    tracemalloc.stop()

    assert last.source == f"{path}:50000"
    assert peak < 1 << 18
