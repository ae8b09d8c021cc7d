"""Small files that are read whole."""

from __future__ import annotations

import os

import pytest

from gepipe.errors import ConfigError
from gepipe.ops.scores import Labels
from gepipe.regular import read_regular
from gepipe.spec.load import load


def fifo(path):
    os.mkfifo(path)


def large(path):
    path.touch()
    os.truncate(path, 65 << 20)


def endless(path):
    path.symlink_to("/dev/zero")


def folder(path):
    path.mkdir()


WRONG = [
    (fifo, "a device, pipe or socket; expected a regular file"),
    (endless, "a device, pipe or socket; expected a regular file"),
    (large, "larger than (16,777,216|67,108,864) bytes"),
    (folder, "is a (folder|directory)"),
]


def test_a_file_is_read_whole(tmp_path):
    (tmp_path / "x").write_bytes(b"x" * 3_000_000)

    assert read_regular(tmp_path / "x", 3_000_000) == b"x" * 3_000_000
    with pytest.raises(OSError, match="larger than"):
        read_regular(tmp_path / "x", 2_999_999)


@pytest.mark.parametrize(("make", "says"), WRONG)
def test_a_pipeline_file_that_is_none_is_refused(tmp_path, make, says):
    make(tmp_path / "x.yaml")

    with pytest.raises(ConfigError, match=f"(?i)x.yaml: .*{says}"):
        load(tmp_path / "x.yaml")


@pytest.mark.parametrize(("make", "says"), WRONG)
def test_labels_that_are_no_file_are_refused(tmp_path, make, says):
    make(tmp_path / "labels.txt")

    with pytest.raises(ConfigError, match=f"(?i)labels: cannot read .*labels.txt: .*{says}"):
        Labels.read(tmp_path / "labels.txt")


def test_labels_nested_without_end_are_refused(tmp_path):
    (tmp_path / "labels.json").write_text("[" * 100_000)

    with pytest.raises(ConfigError, match="expected a JSON list"):
        Labels.read(tmp_path / "labels.json")


def test_a_nul_byte_in_the_path_is_refused():
    with pytest.raises(ConfigError, match=r"cannot be read: .*embedded null"):
        load("a\0b.yaml")
