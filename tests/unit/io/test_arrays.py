"""Rows of .npy files as inputs, and .npy files as outputs."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

from gepipe.errors import ConfigError, GepipeError, ItemError
from gepipe.io.arrays import ArrayEncoder, NpyRows, NpySink
from gepipe.io.npy import format_header
from gepipe.io.sink import Record


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data.npy"


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "f8", "f2", "u1", "i8", "?", "c8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_each_row_is_an_input(path, dtype, order):
    array = np.arange(24).reshape(4, 3, 2).astype(dtype, order=order)
    np.save(path, array)
    source = NpyRows(str(path))

    entries = list(source.entries())
    reader = pickle.loads(pickle.dumps(source.reader))

    assert [entry.source for entry in entries] == [f"{path}[{row}]" for row in range(4)]
    for row, entry in enumerate(entries):
        np.testing.assert_array_equal(reader.read(entry.payload), array[row], strict=True)


def test_rows_may_be_single_numbers(path):
    np.save(path, np.arange(3))
    source = NpyRows(str(path))

    assert [int(source.reader.read(entry.payload)) for entry in source.entries()] == [0, 1, 2]


def test_a_reader_that_has_read_can_still_travel(path):
    np.save(path, np.arange(3))
    source = NpyRows(str(path))
    reader = source.reader
    payloads = [entry.payload for entry in source.entries()]
    reader.read(payloads[0])

    assert pickle.loads(pickle.dumps(reader)).read(payloads[2]) == 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: np.save(p, np.array([{}, []], dtype=object), allow_pickle=True), "type '|O'"),
        (lambda p: np.save(p, np.zeros(3, [("a", "i4")])), "expected plain numbers"),
        (lambda p: np.save(p, np.float32(1)), "no rows in an array of shape"),
        (lambda p: np.save(p, np.zeros((0, 3))), r"no rows in an array of shape \(0, 3\)"),
        (lambda p: p.write_bytes(b"PK\x03\x04 and so on"), "npz archive"),
        (lambda p: p.write_bytes(b"not an array"), "not an .npy file"),
        (lambda p: p.write_bytes(b""), "not an .npy file"),
        (lambda p: p.write_bytes(b"\x93NUMPY\x01\x00\x08\x00{'a': 1}"), "header is damaged"),
        (lambda p: (np.save(p, np.zeros(9)), os.truncate(p, 150)), "truncated: 22 bytes of data"),
        (lambda _: None, "no such file"),
    ],
)
def test_a_file_that_holds_no_rows_of_numbers_is_refused(path, make, message):
    make(path)

    with pytest.raises(ConfigError, match=message.replace("|", r"\|")):
        list(NpyRows(str(path)).entries())


def test_a_file_that_shrinks_during_the_run_fails_row_by_row(path):
    np.save(path, np.zeros((4, 2)))
    source = NpyRows(str(path))
    reader = source.reader
    payloads = [entry.payload for entry in source.entries()]
    os.truncate(path, 128 + 40)

    assert reader.read(payloads[1]).shape == (2,)
    with pytest.raises(ItemError, match="ends in row 3") as caught:
        reader.read(payloads[3])
    assert caught.value.kind == "truncated"


def test_a_file_that_vanishes_is_missing(path):
    np.save(path, np.zeros(4))
    source = NpyRows(str(path))
    reader = source.reader
    path.unlink()

    with pytest.raises(ItemError, match="does not exist any more") as caught:
        reader.read(bytes(8))
    assert caught.value.kind == "missing"


def test_listing_rows_does_not_import_numpy(path):
    np.save(path, np.zeros((4, 2)))
    code = (
        "import sys; from gepipe.io.arrays import NpyRows, NpySink;"
        f"assert len(list(NpyRows({str(path)!r}).entries())) == 4;"
        f"NpySink({str(path) + '.out'!r}).open().close(complete=True);"
        "assert 'numpy' not in sys.modules"
    )

    subprocess.run([sys.executable, "-c", code], check=True)


def test_rows_of_results_are_stacked_and_indexed(path):
    encode = NpySink(str(path)).encoder
    file = NpySink(str(path)).open()

    file.write([Record(0, "a", encode(np.full((2, 3), 1, "f4")))])
    loaded_early = np.load(path)
    file.write([Record(2, "caf\udce9", encode({"x": np.full((2, 3), 2, "f4")}))])
    file.close(complete=True)

    assert loaded_early.shape == (1, 2, 3)
    np.testing.assert_array_equal(np.load(path)[:, 0, 0], [1, 2])
    assert np.load(path, mmap_mode="r").dtype == np.float32
    lines = path.with_name("data.index.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"index": 0, "source": "a"},
        {"index": 2, "source": "caf\udce9"},
    ]


def test_a_run_without_results_leaves_an_array_without_rows(path):
    NpySink(str(path)).open().close(complete=True)

    assert np.load(path).shape == (0,)


def test_a_row_of_another_shape_is_refused_with_both_shapes(path):
    encode = NpySink(str(path)).encoder
    file = NpySink(str(path)).open()
    file.write([Record(0, "a", encode(np.zeros(3, "f4")))])

    with pytest.raises(
        GepipeError, match=r"input 1 \('b'\) is <f4 \[4\], but the first is <f4 \[3"
    ):
        file.write([Record(1, "b", encode(np.zeros(4, "f4")))])
    file.close(complete=False)


@pytest.mark.parametrize("result", [{"a": 1, "b": 2}, "text", {"a": {"b": 1}}, None])
def test_a_result_that_is_not_one_array_is_an_item_failure(result):
    with pytest.raises(ItemError) as caught:
        ArrayEncoder()(result)

    assert caught.value.kind == "not_an_array"


def test_one_tensor_of_several_can_be_chosen():
    encode = pickle.loads(pickle.dumps(NpySink("x.npy", tensor="b").encoder))

    assert encode({"a": 1, "b": 2}) == ArrayEncoder()(2)
    with pytest.raises(ItemError, match=r"no 'b'; it has \['a'\]"):
        encode({"a": 1})


@pytest.mark.parametrize("count", [0, 9, 10**19])
def test_a_header_keeps_its_length_as_rows_are_added(count):
    assert len(format_header("<f4", (count, 3))) == len(format_header("<f4", (0, 3)))
    assert len(format_header("<f4", (count, 3))) % 64 == 0
