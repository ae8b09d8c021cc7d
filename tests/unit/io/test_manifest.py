"""The list of a job's inputs, held outside memory."""

from __future__ import annotations

import errno
import tempfile

import pytest

from gepipe.errors import ConfigError, GepipeError
from gepipe.io.manifest import CHUNK_COUNT, HASH_BYTES, Manifest
from gepipe.io.source import Entry


class Numbers:
    """A source of numbered entries; those that divide by three carry another payload."""

    finite = True
    reader = None

    def __init__(self, count, change=None):
        self.count = count
        self.change = change

    def entries(self):
        for number in range(self.count):
            name = "changed" if number == self.change else f"caf\udce9/{number}.jpg"
            payload = name.encode("utf-8", "surrogateescape")
            yield Entry(name, payload if number % 3 else b"\0row%d" % number)


@pytest.mark.parametrize("count", [0, 1, CHUNK_COUNT - 1, CHUNK_COUNT, CHUNK_COUNT + 1, 1000])
def test_entries_come_back_as_they_went_in(count):
    with Manifest.snapshot(Numbers(count)) as manifest:
        assert len(manifest) == count
        assert list(manifest.entries()) == list(Numbers(count).entries())


@pytest.mark.parametrize(("first", "last"), [(0, 1), (255, 257), (300, 300), (990, 5000), (-5, 2)])
def test_any_range_is_read_without_what_lies_before_it(first, last):
    with Manifest.snapshot(Numbers(1000)) as manifest:
        assert (
            list(manifest.entries(first, last))
            == list(Numbers(1000).entries())[max(first, 0) : last]
        )


def test_two_readers_do_not_disturb_each_other():
    with Manifest.snapshot(Numbers(600)) as manifest:
        one, other = manifest.entries(), manifest.entries(300)

        assert [next(one).source for _ in range(300)][-1] == "caf\udce9/299.jpg"
        assert next(other).source == "caf\udce9/300.jpg"
        assert next(one) == manifest[300]


def test_one_entry_is_found_by_its_index():
    with Manifest.snapshot(Numbers(1000)) as manifest:
        assert manifest[999].source == "caf\udce9/999.jpg"
        with pytest.raises(IndexError, match="entry 1000 of 1000"):
            manifest[1000]


def test_the_same_inputs_have_the_same_digest_and_others_another():
    with (
        Manifest.snapshot(Numbers(1000)) as one,
        Manifest.snapshot(Numbers(1000)) as same,
        Manifest.snapshot(Numbers(1000, change=300)) as other,
        Manifest.snapshot(Numbers(999)) as shorter,
    ):
        assert one.digest == same.digest
        assert len({one.digest, other.digest, shorter.digest}) == 3
        differs = [
            number
            for number in range(len(one.hashes) // HASH_BYTES)
            if one.hashes[number * HASH_BYTES :][:HASH_BYTES]
            != other.hashes[number * HASH_BYTES :][:HASH_BYTES]
        ]
        assert differs == [300 // CHUNK_COUNT]


def test_a_limit_takes_the_first_entries_only():
    with Manifest.snapshot(Numbers(1000), limit=10) as manifest:
        assert len(manifest) == 10


def test_no_name_is_left_in_the_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    with Manifest.snapshot(Numbers(10)):
        assert list(tmp_path.iterdir()) == []


def test_a_full_temporary_folder_is_named(monkeypatch):
    class Full:
        def write(self, _block):
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self):
            pass

    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: Full())

    with pytest.raises(GepipeError, match=r"cannot keep the list of inputs in .*set TMPDIR"):
        Manifest.snapshot(Numbers(10))


def test_a_source_without_an_end_has_no_manifest():
    class Endless(Numbers):
        finite = False

    with pytest.raises(ConfigError, match="no known end"):
        Manifest.snapshot(Endless(1))
