"""Whatever moment a run dies at, resuming it gives the files of a run that nothing disturbed."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gepipe.io.arrays import NpySink
from gepipe.io.csv import CsvSink
from gepipe.io.failures import Failure
from gepipe.io.jsonl import JsonlSink
from gepipe.io.manifest import Manifest
from gepipe.io.outputs import Outputs
from gepipe.io.parquet import ParquetSink
from gepipe.io.records import RecordFile
from gepipe.io.sink import Record
from gepipe.io.source import Entry
from gepipe.spec.normal import difference

FORM = {"stages": [{"name": "preprocess", "batch_size": 8}]}
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
SINKS = {"jsonl": JsonlSink, "csv": CsvSink, "npy": NpySink}


class Listed:
    """A source that lists given names."""

    finite = True
    reader = None

    def __init__(self, names):
        self.names = names

    def entries(self):
        return (Entry(name, name.encode()) for name in self.names)


@st.composite
def jobs(draw, results):
    """Draw the inputs, each with the result it will give, or None if it will fail."""
    return draw(st.lists(st.tuples(NAMES, st.none() | results), max_size=12))


@st.composite
def batches(draw, count):
    """Draw how the outcomes are cut into calls of `write`."""
    cuts = draw(st.lists(st.integers(0, count), max_size=4))
    edges = sorted({0, count, *cuts})
    return list(pairwise(edges))


def outcomes(job, encoder, first, last):
    for index in range(first, last):
        name, result = job[index]
        if result is None:
            yield Failure(index, name, "preprocess", "truncated", f"bad {name!r}")
        else:
            yield Record(index, name, encoder(result[0]))


def run(sink, job, ranges, *, resume=False, status="complete"):
    with Manifest.snapshot(Listed([name for name, _ in job])) as manifest:
        out = Outputs.open(sink, manifest, FORM, difference=difference, resume=resume)
        out.begin()
        first = out.first
        for start, stop in ranges:
            out.write(list(outcomes(job, sink.encoder, max(start, first), max(stop, first))))
        out.close(status)
    return first


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@contextmanager
def folders():
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        yield Path(one), Path(other)


def sink_in(folder, kind):
    return SINKS[kind](str(folder / f"out.{kind}"))


def resumed_equals_undisturbed(kind, data, results, crash):
    job = data.draw(jobs(results))
    with folders() as (whole, broken):
        run(sink_in(whole, kind), job, [(0, len(job))])
        run(sink_in(broken, kind), job, data.draw(batches(len(job))), status="interrupted")
        crash(broken)

        first = run(sink_in(broken, kind), job, data.draw(batches(len(job))), resume=True)

        assert content(broken) == content(whole)
        return first, len(job)


RESULTS = {
    "jsonl": st.tuples(VALUES),
    "csv": st.tuples(VALUES),
    "npy": st.tuples(st.integers(0, 9).map(lambda value: np.full((2, 3), value, np.float32))),
}


@pytest.mark.parametrize("kind", SINKS)
@settings(max_examples=60)
@given(data=st.data())
def test_files_cut_anywhere_are_finished_as_if_nothing_had_happened(kind, data):
    """Each file loses a tail of its own length, as after a power cut; zeros may take its place."""

    def crash(folder):
        for path in sorted(folder.iterdir()):
            if path.name.endswith(".job.json"):
                continue
            size = path.stat().st_size
            keep = data.draw(st.integers(0, size), label=path.name)
            zeros = data.draw(st.sampled_from([0, 0, 1, 100]))
            path.write_bytes(path.read_bytes()[:keep] + b"\0" * zeros)

    if kind == "npy":  # rows carry no marks, so zeros cannot be told from a row of zeros

        def crash(folder):
            for path in (
                folder / "out.npy",
                folder / "out.index.jsonl",
                folder / "out.failures.jsonl",
            ):
                keep = data.draw(st.integers(0, path.stat().st_size), label=path.name)
                path.write_bytes(path.read_bytes()[:keep])

    resumed_equals_undisturbed(kind, data, RESULTS[kind], crash)


@pytest.mark.parametrize("kind", SINKS)
@settings(max_examples=60)
@given(data=st.data())
def test_a_killed_run_loses_no_more_than_the_call_it_died_in(kind, data):
    """The process dies after any byte that `write` hands to the system, in the order it does."""
    job = data.draw(jobs(RESULTS[kind]))
    ranges = data.draw(batches(len(job)))
    budget = data.draw(st.integers(0, 2000))
    with folders() as (whole, broken), pytest.MonkeyPatch.context() as patch:
        run(sink_in(whole, kind), job, [(0, len(job))])
        done = 0
        with Manifest.snapshot(Listed([name for name, _ in job])) as manifest:
            sink = sink_in(broken, kind)
            out = Outputs.open(sink, manifest, FORM, difference=difference)
            patch.setattr(RecordFile, "overwrite", dying(RecordFile.overwrite, budget))
            try:
                for start, stop in ranges:
                    out.write(list(outcomes(job, sink.encoder, start, stop)))
                    done = stop
            except Killed:
                pass
            patch.undo()
            abandon(out)

        first = run(sink_in(broken, kind), job, data.draw(batches(len(job))), resume=True)

        assert first >= done
        assert content(broken) == content(whole)


class Killed(BaseException):
    """Stands for SIGKILL."""


def dying(overwrite, budget):
    left = budget

    def until_killed(self, offset, data):
        nonlocal left
        if len(data) > left:
            overwrite(self, offset, data[:left])
            raise Killed
        left -= len(data)
        overwrite(self, offset, data)

    return until_killed


def abandon(out):
    """Drop the open files as the kernel does: unlocked, but neither cut nor flushed."""
    out._results = out._failures = None


def test_a_parquet_file_is_finished_as_if_nothing_had_happened(tmp_path):
    pytest.importorskip("pyarrow")
    job = [
        (f"{i}.jpg", None if i % 3 == 1 else ({"label": f"c{i}", "p": i / 7},)) for i in range(9)
    ]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    run(ParquetSink(str(whole / "out.parquet")), job, [(0, 9)])
    run(ParquetSink(str(broken / "out.parquet")), job, [(0, 5)], status="interrupted")
    journal = broken / "out.parquet.journal"
    journal.write_bytes(journal.read_bytes()[:-3])

    first = run(ParquetSink(str(broken / "out.parquet")), job, [(0, 9)], resume=True)

    assert first == 3
    assert content(broken) == content(whole)
    assert not journal.exists()
