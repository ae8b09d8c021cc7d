"""The files of a job: fresh, refused, resumed, full disks included."""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
from contextlib import contextmanager

import numpy as np
import pytest

from gepipe.errors import ClosedError, ConfigError, GepipeError, InternalError
from gepipe.io.arrays import NpyRows, NpySink
from gepipe.io.csv import CsvSink
from gepipe.io.failures import Failure, read_failures
from gepipe.io.job import Job
from gepipe.io.jsonl import JsonlSink
from gepipe.io.manifest import Manifest
from gepipe.io.outputs import Outputs
from gepipe.io.sink import Record
from gepipe.io.source import Entry
from gepipe.spec.normal import difference

FORM = {"stages": [{"name": "preprocess", "batch_size": 8}]}
RESULT = b'{"x": 1}'


class Listed:
    finite = True
    reader = None

    def __init__(self, names):
        self.names = names

    def entries(self):
        return (Entry(name, os.fsencode(name)) for name in self.names)


def names(count):
    return [f"{number}.jpg" for number in range(count)]


def outcome(index):
    source = f"{index}.jpg"
    if index % 4 == 2:
        return Failure(index, source, "preprocess", "truncated", "it ends early")
    return Record(index, source, RESULT)


@pytest.fixture
def sink(tmp_path):
    return JsonlSink(str(tmp_path / "out.jsonl"))


def opened(sink, inputs=10, form=FORM, **options):
    listed = Listed(names(inputs) if isinstance(inputs, int) else inputs)
    with Manifest.snapshot(listed) as manifest:
        return Outputs.open(sink, manifest, form, **{"difference": difference, **options})


def run(sink, start, stop, status, **options):
    out = opened(sink, **options)
    out.write(map(outcome, range(start, stop)))
    out.close(status)
    return out


def indexes(path):
    return [json.loads(line)["index"] for line in path.read_text().splitlines()]


def test_results_and_failures_are_the_inputs(sink, tmp_path):
    run(sink, 0, 10, "complete")

    assert indexes(tmp_path / "out.jsonl") == [0, 1, 3, 4, 5, 7, 8, 9]
    assert list(read_failures(tmp_path / "out.failures.jsonl")) == [outcome(2), outcome(6)]
    assert Job.load(tmp_path / "out.job.json").status == "complete"


def test_a_nul_byte_in_the_path_is_refused():
    with pytest.raises(ConfigError, match=r"cannot write 'a.+00b.jsonl': .*embedded null"):
        JsonlSink("a\0b.jsonl").open()


def test_the_failures_file_exists_although_nothing_failed(sink, tmp_path):
    run(sink, 0, 2, "complete", inputs=2)

    assert (tmp_path / "out.failures.jsonl").read_bytes() == b""


def test_a_new_run_replaces_what_an_earlier_one_left(sink, tmp_path):
    run(sink, 0, 10, "complete")

    run(sink, 0, 1, "interrupted")

    assert indexes(tmp_path / "out.jsonl") == [0]
    assert (tmp_path / "out.failures.jsonl").read_bytes() == b""
    assert Job.load(tmp_path / "out.job.json").status == "interrupted"


def test_an_interrupted_run_goes_on_where_it_stopped(sink, tmp_path):
    run(sink, 0, 10, "complete")
    whole = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    run(sink, 0, 7, "interrupted")

    out = opened(sink, resume=True)
    assert (out.first, out.failed, out.done) == (7, 2, False)
    assert out.notes == ("going on at input 7 of 10",)
    out.write(map(outcome, range(7, 10)))
    out.close("complete")

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == whole


def test_a_complete_job_is_left_alone(sink, tmp_path):
    run(sink, 0, 10, "complete")
    before = (tmp_path / "out.jsonl").stat().st_mtime_ns

    out = opened(sink, resume=True)
    out.close("complete")

    assert (out.done, out.first, out.failed) == (True, 10, 2)
    assert out.notes[0].endswith("is complete already: nothing left to do")
    assert (tmp_path / "out.jsonl").stat().st_mtime_ns == before


def test_results_deleted_from_a_complete_job_are_made_again(sink, tmp_path):
    run(sink, 0, 10, "complete")
    (tmp_path / "out.jsonl").unlink()

    assert run(sink, 0, 10, "complete", resume=True).first == 0
    assert indexes(tmp_path / "out.jsonl") == [0, 1, 3, 4, 5, 7, 8, 9]


def test_a_complete_job_whose_results_were_cut_is_finished_again(sink, tmp_path):
    run(sink, 0, 10, "complete")
    whole = (tmp_path / "out.jsonl").read_bytes()
    (tmp_path / "out.jsonl").write_bytes(whole[: len(whole) // 2])

    out = opened(sink, resume=True)
    assert 0 < out.first < 10
    assert not out.done
    out.write(map(outcome, range(out.first, 10)))
    out.close("complete")

    assert (tmp_path / "out.jsonl").read_bytes() == whole


def test_a_run_that_never_begins_leaves_the_earlier_job_as_it_was(sink, tmp_path):
    run(sink, 0, 5, "interrupted")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    with opened(sink):
        pass

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert run(sink, 5, 10, "complete", resume=True).first == 5


def test_resuming_nothing_starts_anew(sink):
    assert opened(sink, resume=True).first == 0


def test_results_of_unknown_origin_are_not_resumed_into(sink, tmp_path):
    (tmp_path / "out.jsonl").write_text("precious\n")

    with pytest.raises(ConfigError, match=r"there is no '.*out\.job\.json' that says what wrote"):
        opened(sink, resume=True)
    assert (tmp_path / "out.jsonl").read_text() == "precious\n"


CHANGED_INPUTS = [
    ([*names(5), "other.jpg", *names(10)[6:]], "input 5 was '5.jpg', now 'other.jpg'"),
    (["new.jpg", *names(10)], "input 0 was '0.jpg', now 'new.jpg'"),
    (names(11), "10 inputs then, 11 now"),
    (names(3), "10 inputs then, 3 now"),
    ([*names(9), "other.jpg"], "something differs in the inputs 0 to 9"),
]


@pytest.mark.parametrize(("inputs", "message"), CHANGED_INPUTS)
@pytest.mark.parametrize("kind", [JsonlSink, CsvSink])
def test_changed_inputs_are_named_and_nothing_is_touched(tmp_path, kind, inputs, message):
    sink = kind(str(tmp_path / "out.x"))
    run(JsonlSink(str(tmp_path / "out.x")), 0, 7, "interrupted")
    if kind is CsvSink:
        out = opened(sink)
        out.write(
            Record(i, f"{i}.jpg", sink.encoder(1)) if isinstance(outcome(i), Record) else outcome(i)
            for i in range(7)
        )
        out.close("interrupted")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    with pytest.raises(ConfigError, match=message):
        opened(sink, inputs=inputs, resume=True)

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_changed_pipeline_is_named_key_by_key(sink):
    run(sink, 0, 7, "interrupted")
    other = {"stages": [{"name": "preprocess", "batch_size": 16}], "new": True}

    with pytest.raises(ConfigError) as caught:
        opened(sink, form=other, resume=True)

    assert "  stages.preprocess.batch_size: 8 → 16\n  new: (not set) → true\n" in str(caught.value)


def test_the_caller_may_say_that_a_change_does_not_matter(sink):
    run(sink, 0, 7, "interrupted")

    assert opened(sink, form={}, resume=True, difference=lambda _was, _now: []).first == 7


def test_another_sink_of_the_same_stem_is_not_resumed(sink, tmp_path):
    run(sink, 0, 7, "interrupted")

    with pytest.raises(ConfigError, match=r"belongs to 'out\.jsonl', not to 'out\.csv'"):
        opened(CsvSink(str(tmp_path / "out.csv")), resume=True)


def test_a_damaged_job_file_is_named(sink, tmp_path):
    (tmp_path / "out.job.json").write_text('{"gepipe": 1}')

    with pytest.raises(ConfigError, match="is not a job file of gepipe"):
        opened(sink, resume=True)


def test_what_a_killed_run_left_of_its_job_file_is_gone_with_the_next(sink, tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def kill(_fd):
        raise Killed

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", kill)
        with pytest.raises(Killed):
            run(sink, 0, 1, "interrupted")
    assert len(list(tmp_path.glob(".out*"))) == 1
    gc.collect()

    run(sink, 0, 10, "complete")

    assert not list(tmp_path.glob(".out*"))


def test_two_runs_on_one_output_are_refused(sink, tmp_path):
    first = opened(sink)

    with pytest.raises(ConfigError, match="is being written by another run"):
        opened(sink)
    with pytest.raises(ConfigError, match=r"out\.failures\.jsonl' is being written by another"):
        opened(CsvSink(str(tmp_path / "out.csv")))

    first.close("interrupted")
    opened(sink).close("interrupted")


def test_an_output_that_is_the_input_is_refused_before_it_is_emptied(tmp_path):
    path = tmp_path / "data.npy"
    np.save(path, np.zeros(3))
    before = path.read_bytes()

    with (
        Manifest.snapshot(NpyRows(str(path))) as manifest,
        pytest.raises(ConfigError, match="is what the inputs are read from"),
    ):
        Outputs.open(
            NpySink(str(tmp_path / "." / "data.npy")), manifest, FORM, difference=difference
        )

    assert path.read_bytes() == before


def test_an_outcome_out_of_order_is_our_bug(sink):
    with opened(sink) as out, pytest.raises(InternalError, match="input 1 where 0 was due"):
        out.write([outcome(1)])


def test_leaving_the_block_early_means_interrupted(sink, tmp_path):
    with opened(sink) as out:
        out.write([outcome(0)])

    assert Job.load(tmp_path / "out.job.json").status == "interrupted"
    with pytest.raises(ClosedError):
        out.write([outcome(1)])


def test_a_range_of_a_list_keeps_its_indexes(sink, tmp_path):
    run(sink, 4, 7, "interrupted", first=4, last=9)
    assert indexes(tmp_path / "out.jsonl") == [4, 5]

    with pytest.raises(ConfigError, match="the inputs from 4 up to 9, not from 0 up to 10"):
        opened(sink, resume=True)
    out = run(sink, 7, 9, "complete", first=4, last=9, resume=True)

    assert out.first == 7
    assert indexes(tmp_path / "out.jsonl") == [4, 5, 7, 8]
    assert opened(sink, first=4, last=9, resume=True).done


def test_a_job_that_lacks_outcomes_is_never_called_complete(sink, tmp_path):
    with pytest.raises(InternalError, match="complete at input 7 of 10"):
        run(sink, 0, 7, "complete")

    assert Job.load(tmp_path / "out.job.json").status == "interrupted"


def test_inputs_without_an_end_are_written_but_not_resumed(sink):
    out = Outputs.open(sink, None, FORM, difference=difference)
    out.write([outcome(0)])
    out.close("interrupted")

    with pytest.raises(ConfigError, match="no known end"):
        Outputs.open(sink, None, FORM, difference=difference, resume=True)


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda path: path.mkdir(), "is a folder; expected a file"),
        (os.mkfifo, "is a device, pipe or socket"),
    ],
)
def test_an_output_that_is_no_file_is_refused(sink, tmp_path, prepare, message):
    prepare(tmp_path / "out.jsonl")

    with pytest.raises(ConfigError, match=message):
        opened(sink)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(ConfigError, match=r"cannot write '.*file/out\.jsonl': "):
        opened(JsonlSink(str(tmp_path / "file" / "out.jsonl")))


def test_a_read_only_output_is_named(sink, tmp_path):
    (tmp_path / "out.jsonl").touch(mode=0o444)
    if os.access(tmp_path / "out.jsonl", os.W_OK):
        pytest.skip("root may write everywhere")

    with pytest.raises(ConfigError, match=r"out\.jsonl': permission denied"):
        opened(sink)


@contextmanager
def small_files():
    """Let no file grow beyond 4,000 bytes: writes become partial, then fail, as on a full disk.

    No fixture: the runner writes its dots before fixtures end, maybe into a longer file.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, previous)


def test_a_full_disk_is_named_and_leaves_an_exact_prefix(sink, tmp_path):
    with small_files():
        out = opened(sink, inputs=200)
        for _ in range(4):
            out.write(map(outcome, range(out.next, out.next + 20)))
        written = out.next

        with pytest.raises(GepipeError, match=r"cannot write '.*out\.jsonl': .*--resume"):
            out.write(map(outcome, range(written, 120)))
        out.close("interrupted")

        assert written == out.next
        assert indexes(tmp_path / "out.jsonl")[-1] == written - 1
        assert opened(sink, inputs=200, resume=True).first == written


def test_the_job_file_takes_the_usual_permissions(sink, tmp_path):
    run(sink, 0, 1, "interrupted")

    assert (tmp_path / "out.job.json").stat().st_mode == (tmp_path / "out.jsonl").stat().st_mode


def removed(path):
    path.unlink()


def replaced(path):
    path.with_name("other").write_bytes(path.read_bytes())
    path.with_name("other").replace(path)


def moved(path):
    path.rename(path.with_name("elsewhere"))


def emptied(path):
    path.write_bytes(b"")


TAMPERING = [removed, replaced, moved, emptied]


@pytest.mark.parametrize("tamper", TAMPERING)
@pytest.mark.parametrize("name", ["out.jsonl", "out.failures.jsonl"])
def test_files_that_somebody_takes_away_fail_the_job_and_resume_recovers(
    sink, tmp_path, name, tamper
):
    run(sink, 0, 10, "complete")
    whole = (tmp_path / "out.jsonl").read_bytes(), (tmp_path / "out.failures.jsonl").read_bytes()
    out = opened(sink)
    out.write(map(outcome, range(10)))
    tamper(tmp_path / name)

    with pytest.raises(GepipeError, match=f"{name}' was changed or removed while the run wrote it"):
        out.close("complete")

    assert Job.load(tmp_path / "out.job.json").status != "complete"
    out = opened(sink, resume=True)
    out.write(map(outcome, range(out.first, 10)))
    out.close("complete")
    assert whole == (
        (tmp_path / "out.jsonl").read_bytes(),
        (tmp_path / "out.failures.jsonl").read_bytes(),
    )


@pytest.mark.parametrize("tamper", [removed, replaced, emptied])
@pytest.mark.parametrize(
    ("name", "kind"), [("out.jsonl", JsonlSink), ("out.csv", CsvSink), ("out.npy", NpySink)]
)
def test_the_next_write_notices_that_the_output_is_taken_away(tmp_path, name, kind, tamper):
    sink = kind(str(tmp_path / name))
    payloads = {"out.npy": np.arange(3.0)}
    payload = sink.encoder(payloads.get(name, {"x": 1}))
    out = opened(sink)
    out.write([Record(0, "0.jpg", payload)])
    tamper(tmp_path / name)

    with pytest.raises(GepipeError, match=f"{name}' was changed or removed"):
        out.write([Record(1, "1.jpg", payload)])


@pytest.mark.parametrize("tamper", TAMPERING)
def test_a_parquet_journal_that_is_taken_away_fails_the_job(tmp_path, tamper):
    pytest.importorskip("pyarrow")
    from gepipe.io.parquet import ParquetSink

    out = opened(ParquetSink(str(tmp_path / "out.parquet")), inputs=1)
    out.write([Record(0, "0.jpg", RESULT)])
    tamper(tmp_path / "out.parquet.journal")

    with pytest.raises(GepipeError, match=r"journal' was changed or removed"):
        out.close("complete")
    assert not (tmp_path / "out.parquet").exists()


def test_another_current_folder_changes_nothing(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path)
    out = opened(JsonlSink("a/out.jsonl"))
    out.write(map(outcome, range(10)))
    monkeypatch.chdir(tmp_path / "a")

    assert out._results._file.close() is None
    assert out._failures.close() is None


def test_the_first_error_is_told_and_not_what_follows_from_it(sink, tmp_path):
    def write_and_fail():
        with opened(sink) as out:
            out.write(map(outcome, range(5)))
            out.job_path = tmp_path / "gone" / "out.job.json"
            raise GepipeError("the disk is full")

    with pytest.raises(GepipeError, match=r"^the disk is full$"):
        write_and_fail()


def test_of_two_files_that_do_not_close_the_results_are_told(sink, tmp_path):
    out = opened(sink)
    out.write(map(outcome, range(10)))
    (tmp_path / "out.jsonl").unlink()
    (tmp_path / "out.failures.jsonl").unlink()

    with pytest.raises(GepipeError, match=r"out\.jsonl"):
        out.close("complete")


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (["span"], ["a", "b"]),
        (["span"], None),
        (["span"], [0]),
        (["span"], [0, None]),
        (["span"], [0, -1]),
        (["sizes"], ["x", 1]),
        (["sizes"], 7),
        (["inputs", "count"], "x"),
        (["inputs", "count"], None),
        (["inputs", "digest"], 7),
        (["inputs", "hashes"], None),
        (["inputs"], [1, 2]),
        (["pipeline"], "x"),
        (["output"], None),
        (["gepipe"], 3),
    ],
)
@pytest.mark.parametrize("status", ["complete", "interrupted"])
def test_wrong_values_in_a_job_file_are_named(sink, tmp_path, keys, value, status):
    run(sink, 0, 10 if status == "complete" else 5, status)
    path = tmp_path / "out.job.json"
    data = json.loads(path.read_text())
    part = data
    for key in keys[:-1]:
        part = part[key]
    part[keys[-1]] = value
    path.write_text(json.dumps(data))

    with pytest.raises(ConfigError, match=r"out\.job\.json' is not a job file of gepipe: "):
        opened(sink, resume=True)


@pytest.mark.parametrize("text", ["", "[]", "7", "{}", "[" * 100_000, "\xff"])
def test_a_job_file_that_is_something_else_is_named(sink, tmp_path, text):
    run(sink, 0, 5, "interrupted")
    (tmp_path / "out.job.json").write_text(text, encoding="latin-1")

    with pytest.raises(ConfigError, match=r"out\.job\.json' is not a job file of gepipe: "):
        opened(sink, resume=True)


@pytest.mark.parametrize("change", [(b'"source"', b'"sourcf"'), (b'"source": "', b'"source": x')])
@pytest.mark.parametrize("name", ["out.jsonl", "out.failures.jsonl"])
def test_a_record_without_its_source_is_no_bug(sink, tmp_path, name, change):
    run(sink, 0, 7, "interrupted")
    path = tmp_path / name
    path.write_bytes(path.read_bytes().replace(*change))

    with pytest.raises(ConfigError, match=rf"{name}' holds a record . without its source"):
        opened(sink, inputs=9, resume=True)


def test_a_failures_file_edited_after_a_complete_run_is_named(sink, tmp_path):
    run(sink, 0, 10, "complete")
    path = tmp_path / "out.failures.jsonl"
    path.write_bytes(path.read_bytes()[:-2] + b"x\n")

    with pytest.raises(ConfigError, match=r"out\.failures\.jsonl': line 2: is no failure"):
        opened(sink, resume=True)
