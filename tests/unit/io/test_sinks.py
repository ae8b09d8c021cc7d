"""What the text and column sinks write, to the byte."""

from __future__ import annotations

import csv
import json
import math
import os
import pickle

import numpy as np
import pytest

from gepipe.errors import ConfigError, ItemError
from gepipe.io.csv import CsvSink
from gepipe.io.jsonl import JsonlSink, encode_json
from gepipe.io.memory import MemoryItems
from gepipe.io.parquet import ParquetSink
from gepipe.io.sink import Record, Sink
from gepipe.io.source import Source


def write(sink, results, *, complete=True):
    """Write {source: result} through the sink's encoder as a worker would have it."""
    encode = pickle.loads(pickle.dumps(sink.encoder))
    file = sink.open()
    file.clear()
    file.write(
        [Record(index, name, encode(result)) for index, (name, result) in enumerate(results)]
    )
    file.close(complete=complete)


def test_a_json_line_has_index_source_and_result(tmp_path):
    path = tmp_path / "new" / "folder" / "out.jsonl"

    write(JsonlSink(str(path)), [("照片.jpg", {"top": "猫", "p": 0.5})])

    line = '{"index": 0, "source": "照片.jpg", "result": {"top": "猫", "p": 0.5}}\n'
    assert path.read_text(encoding="utf-8") == line


def test_json_holds_arrays_as_lists_and_non_finite_numbers_as_null():
    result = {
        "array": np.array([[1.5, np.nan]], np.float32),
        "scalar": np.int64(3),
        "flag": np.bool_(True),
        "inf": -math.inf,
        "nested": [{"nan": math.nan}, (1, 2)],
        "set": {2, 1},
    }

    assert json.loads(encode_json(result)) == {
        "array": [[1.5, None]],
        "scalar": 3,
        "flag": True,
        "inf": None,
        "nested": [{"nan": None}, [1, 2]],
        "set": [1, 2],
    }


def test_json_keeps_lone_surrogates_and_newlines_inside_one_line():
    encoded = encode_json({"path": "a\nb\udcff", "nan": math.nan})

    assert b"\n" not in encoded
    assert json.loads(encoded)["path"] == "a\nb\udcff"


@pytest.mark.parametrize("result", [b"bytes", {"x": object()}, {(1, 2): 3}, 1 + 2j])
def test_a_result_without_a_json_form_is_an_item_failure(result):
    with pytest.raises(ItemError, match="cannot be written as JSON") as caught:
        encode_json(result)

    assert caught.value.kind == "not_json"


def test_a_result_that_holds_itself_is_an_item_failure():
    circle: list[object] = []
    circle.append(circle)

    with pytest.raises(ItemError, match="cannot be written as JSON"):
        encode_json(circle)


def read_csv(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def test_csv_spreads_nested_results_over_columns(tmp_path):
    path = tmp_path / "out.csv"
    result = {"top_k": [{"label": 'the "cat", tabby', "p": 0.5}, {"label": "dog", "p": None}]}

    write(CsvSink(str(path)), [("a,\n.jpg", result), ("b.jpg", result)])

    header, first, second = read_csv(path)
    assert header == [
        *("index", "source"),
        *("top_k.0.label", "top_k.0.p", "top_k.1.label", "top_k.1.p"),
        "more",
    ]
    assert first == ["0", "a,\n.jpg", 'the "cat", tabby', "0.5", "dog", "", ""]
    assert second[:2] == ["1", "b.jpg"]


def test_csv_rows_of_other_columns_lose_nothing(tmp_path):
    path = tmp_path / "out.csv"
    results = [{"a": 1, "b": True}, {"b": False, "c": "x,y", "d": 2}, {}]

    write(CsvSink(str(path)), [(str(result), result) for result in results])

    _, *rows = read_csv(path)
    assert [row[2:] for row in rows] == [
        ["1", "true", ""],
        ["", "false", '{"c": "x,y", "d": "2"}'],
        ["", "", ""],
    ]


@pytest.mark.parametrize(
    ("result", "names", "cells"),
    [
        (7, ["result"], ["7"]),
        ([1, "x"], ["result"], ['[1, "x"]']),
        ({}, [], []),
        ({"index": 1, "more": 2}, ["result.index", "result.more"], ["1", "2"]),
        ({"a": {"b": 1}, "a.b": 2}, ["a.b", "a.b'"], ["1", "2"]),
        ({"": 1}, ["result"], ["1"]),
        ({"t": "nul\0"}, ["t"], ["nul\\0"]),
    ],
)
def test_csv_columns_never_collide(tmp_path, result, names, cells):
    path = tmp_path / "out.csv"

    write(CsvSink(str(path)), [("a", result)])

    assert read_csv(path) == [
        ["index", "source", *names, "more"],
        ["0", "a", *cells, ""],
    ]


def test_csv_of_nothing_has_a_header(tmp_path):
    write(CsvSink(str(tmp_path / "out.csv")), [])

    assert read_csv(tmp_path / "out.csv") == [["index", "source", "more"]]


def test_csv_is_utf8_whatever_the_file_names_are(tmp_path):
    write(CsvSink(str(tmp_path / "out.csv")), [("caf\udce9.jpg", 1)])

    assert read_csv(tmp_path / "out.csv")[1][1] == "caf\\udce9.jpg"


def test_csv_columns_survive_a_cell_longer_than_readers_allow(tmp_path):
    path = tmp_path / "out.csv"
    long = "x" * 200_000

    write(CsvSink(str(path)), [("a", {"t": "short"}), ("b", {"u": long})])

    file = CsvSink(str(path)).open()
    marks = list(file.scan())
    file.close(complete=False)
    assert [mark.index for mark in marks] == [0, 1]
    assert file.source_of(marks[1]) == "b"


def test_parquet_has_a_column_for_each_key_and_appears_at_the_end(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "out.parquet"
    results = [
        ("a.jpg", {"label": "cat", "p": 1, "boxes": []}),
        ("caf\udce9.jpg", {"p": 0.5, "boxes": [{"x": 1}], "index": 9, "none": None}),
        ("c.jpg", [1, 2]),
    ]

    write(ParquetSink(str(path)), results, complete=False)
    assert not path.exists()
    write(ParquetSink(str(path)), results)

    assert sorted(os.listdir(tmp_path)) == ["out.parquet"]  # noqa: PTH208
    rows = parquet.read_table(path).to_pylist()
    assert [row["index"] for row in rows] == [0, 1, 2]
    assert [row["source"] for row in rows] == ["a.jpg", "caf\\udce9.jpg", "c.jpg"]
    assert [row["p"] for row in rows] == [1.0, 0.5, None]
    assert rows[1]["boxes"] == [{"x": 1}]
    assert rows[1]["result.index"] == 9
    assert rows[2]["result"] == [1, 2]


def test_parquet_of_results_that_do_not_fit_keeps_the_journal(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "out.parquet"

    with pytest.raises(Exception, match=r"kept as JSON lines in .*journal"):
        write(ParquetSink(str(path)), [("a", {"x": 1}), ("b", {"x": "text"})])

    assert sorted(os.listdir(tmp_path)) == ["out.parquet.journal"]  # noqa: PTH208


@pytest.mark.parametrize(
    ("versions", "message"),
    [
        ({"numpy": "2.1"}, r"pip install 'gepipe\[parquet\]'"),
        ({"pyarrow": "26.0.0", "numpy": "1.26.4"}, "does not work with NumPy 1.26.4"),
    ],
)
def test_parquet_says_what_to_install(tmp_path, monkeypatch, versions, message):
    def version(name):
        from importlib.metadata import PackageNotFoundError

        if name not in versions:
            raise PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr("gepipe.io.parquet.version", version)

    with pytest.raises(ConfigError, match=message):
        ParquetSink(str(tmp_path / "out.parquet")).open()


def test_items_in_memory_are_paths_bytes_or_anything(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"file")
    array = np.arange(3)
    source = MemoryItems([str(tmp_path / "a.jpg"), tmp_path / "a.jpg", b"raw", array, {"x": array}])

    entries = list(source.entries())
    reader = pickle.loads(pickle.dumps(source.reader))
    values = [reader.read(entry.payload) for entry in entries]

    path = str(tmp_path / "a.jpg")
    assert [entry.source for entry in entries] == [path, path, "input[2]", "input[3]", "input[4]"]
    assert values[:3] == [b"file", b"file", b"raw"]
    np.testing.assert_array_equal(values[3], array)
    np.testing.assert_array_equal(values[4]["x"], array)


def test_items_in_memory_are_drawn_one_by_one():
    drawn = []

    def items():
        for number in range(10):
            drawn.append(number)
            yield b"x"

    next(MemoryItems(items()).entries())

    assert drawn == [0]


def test_an_item_that_cannot_travel_is_named():
    with pytest.raises(ConfigError, match=r"input\[1\]: a function cannot be sent"):
        list(MemoryItems([b"x", lambda: None]).entries())


def test_all_sinks_and_sources_fit_their_protocols():
    assert all(isinstance(each("x"), Sink) for each in (JsonlSink, CsvSink, ParquetSink))
    assert isinstance(MemoryItems([]), Source)


def test_parquet_keeps_the_type_and_the_bits_of_arrays(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    path = tmp_path / "out.parquet"
    vectors = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    vectors[1, 2] = np.nan
    maps = [np.arange(6, dtype=np.int16).reshape(2, 3), np.ones((2, 3), ">i2")]
    results = [
        ("a", {"vector": vectors[0], "n": 1, "map": maps[0]}),
        ("b", {"vector": vectors[1], "map": maps[1], "some": maps[0]}),
        ("c", {"vector": vectors[2], "n": np.float32(0.5), "map": maps[0]}),
    ]

    write(ParquetSink(str(path)), results)

    table = parquet.read_table(path)
    assert table.schema.names == ["index", "source", "vector", "n", "map", "some"]
    assert table.schema.field("vector").type.list_size == 4
    assert table.schema.field("vector").type.value_type == pyarrow.float32()
    assert table.schema.field("map").type.value_type.value_type == pyarrow.int16()
    kept = table["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    np.testing.assert_array_equal(kept.reshape(3, 4), vectors)
    assert table["map"].to_pylist() == [maps[0].tolist(), maps[1].tolist(), maps[0].tolist()]
    assert table["some"].to_pylist() == [None, maps[0].tolist(), None]
    assert table.schema.field("some").type.value_type.value_type == pyarrow.int16()
    assert table["n"].to_pylist() == [1, None, 0.5]


def test_parquet_takes_arrays_of_several_sizes_as_lists(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "out.parquet"

    write(
        ParquetSink(str(path)),
        [("a", {"x": np.arange(2.0)}), ("b", {"x": np.arange(3.0)}), ("c", {"x": [7]})],
    )
    assert parquet.read_table(path)["x"].to_pylist() == [[0, 1], [0, 1, 2], [7]]

    write(ParquetSink(str(path)), [("a", np.array([1, 2], np.uint8)), ("b", np.array([3, 4]))])
    assert parquet.read_table(path)["result"].to_pylist() == [[1, 2], [3, 4]]

    write(ParquetSink(str(path)), [("a", np.array([1, 2], np.uint8))])
    assert parquet.read_table(path)["result"].type.list_size == 2
