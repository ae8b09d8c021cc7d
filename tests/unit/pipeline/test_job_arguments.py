"""What a job refuses before it opens anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from gepipe.errors import ConfigError
from gepipe.pipeline.allowance import failures_left
from gepipe.pipeline.job import Job
from gepipe.spec.load import loads

YAML = """
source: photos
sink: out.jsonl
max_failures: 1%
stages:
  - {name: preprocess, ops: [decode_image, {resize: [8, 8]}, {to_tensor: nchw}]}
  - {name: inference, model: tiny.onnx}
  - {name: postprocess, ops: [top_k]}
"""


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("limit", [-1, 0, 1.5, "3", True, [1]])
def test_a_limit_that_is_no_count_is_refused(limit):
    with pytest.raises(ConfigError, match="limit: expected a whole number of at least 1, got"):
        Job(loads(YAML), limit=limit)


@pytest.mark.parametrize("inputs", ["photos", b"photos", Path("photos"), 3, None])
def test_inputs_that_are_no_list_are_refused(inputs):
    with pytest.raises(ConfigError, match="inputs: expected a list of paths, got"):
        Job(loads(YAML), inputs=inputs)


@pytest.mark.parametrize("item", [1, b"a.jpg", None, ["a.jpg"]])
def test_an_input_that_is_no_path_is_refused(item):
    with pytest.raises(ConfigError, match=r"inputs\[1\]: expected a path, got"):
        Job(loads(YAML), inputs=["a.jpg", item])


@pytest.mark.parametrize("output", [1, b"x.jsonl", ["x.jsonl"]])
def test_an_output_that_is_no_path_is_refused(output):
    with pytest.raises(ConfigError, match="output: expected a path, got"):
        Job(loads(YAML), output=output)


def test_paths_may_be_path_objects():
    job = Job(loads(YAML), inputs=[Path("a.jpg")], output=Path("x.csv"))

    assert str(job.output) == "x.csv"


@pytest.mark.parametrize(
    ("sink", "output", "kind", "path"),
    [
        ("{annotated: {path: out/a.jsonl, quality: 50}}", "x.jsonl", "AnnotatedSink", "x.jsonl"),
        ("{annotated: out/a.jsonl}", "x.csv", "CsvSink", "x.csv"),
        ("{annotated: out/a.jsonl}", "new/", "AnnotatedSink", "new/a.jsonl"),
        ("{annotated: out/a.jsonl}", ".", "AnnotatedSink", "./a.jsonl"),
        ("{coco: out/a.json}", "x.json", "CocoSink", "x.json"),
        ("out/a.csv", "x.jsonl", "JsonlSink", "x.jsonl"),
        ("{jsonl: out/lines}", "others", "JsonlSink", "others"),
    ],
)
def test_an_output_of_the_same_ending_or_a_folder_keeps_the_sink(sink, output, kind, path):
    job = Job(loads(YAML.replace("out.jsonl", sink)), output=output)

    assert type(job._sink).__name__ == kind
    assert job._sink.path == path


def test_an_empty_output_and_an_unknown_ending_are_refused():
    film = r"'out/x.mp4' ends in none of .*; films lie .* beside lines, \{video: out/x.jsonl\}"
    for output, said in (
        ("", "--output"),
        ("x.txt", "ends in none of .csv, .jsonl.* for another file name$"),
        ("out/x", "ends in none of .*; a folder is written 'out/x/'$"),
        ("out/x.mp4", film),
    ):
        with pytest.raises(ConfigError, match=said):
            Job(loads(YAML), output=output)


def test_a_share_of_an_unknown_number_says_what_helps():
    with pytest.raises(ConfigError, match=r"1.0% of the items, .* to a number of items, or x$"):
        failures_left(loads(YAML), None, or_else=", or x")


@pytest.mark.parametrize(
    ("written", "inputs", "kind"),
    [
        ("photos", ["a.jpg"], "ImageFiles"),
        ("photos", ["a.mp4", "b.AVI"], "VideoFiles"),
        ("photos", ["rtsp://camera/1"], "VideoFiles"),
        ("photos", ["a.mp4", "b.jpg"], "ImageFiles"),
        ("{videos: clips}", ["a.mp4"], "VideoFiles"),
        ("{videos: clips}", ["clips2"], "VideoFiles"),
        ("{videos: clips}", ["a.jpg"], "ImageFiles"),
        ("clip.mp4", [], "VideoFiles"),
        ("[clip.mp4, rtsp://camera/1]", [], "VideoFiles"),
        ("[clip.mp4, a.jpg]", [], "ImageFiles"),
        ("null", ["a.mp4"], "VideoFiles"),
        ("null", ["a.png"], "ImageFiles"),
        ("{list: names.txt}", ["a.mp4"], "FileList"),
    ],
)
def test_pictures_and_videos_take_each_others_place(written, inputs, kind):
    job = Job(loads(YAML.replace("source: photos", f"source: {written}")), inputs=inputs)

    assert type(job._source).__name__ == kind
    if inputs and kind != "FileList":
        assert job._source.paths == tuple(inputs)


@pytest.mark.parametrize(
    ("written", "inputs", "kind"),
    [
        ("{text: notes}", ["a.csv"], "CsvRows"),
        ("{text: notes}", ["a.TSV", "b.csv"], "CsvRows"),
        ("{text: notes}", ["a.jsonl"], "JsonlRows"),
        ("{text: notes}", ["a.parquet"], "ParquetRows"),
        ("{text: notes}", ["a.csv", "b.txt"], "TextLines"),
        ("{text: notes}", ["-"], "TextLines"),
        ("{jsonl: {paths: a.jsonl, field: title}}", ["b.csv"], "JsonlRows"),
        ("null", ["a.csv"], "CsvRows"),
        ("null", ["a.txt"], "TextLines"),
    ],
)
def test_tables_take_the_place_of_plain_text(written, inputs, kind):
    tokens = "tokenize: {tokenizer: tokenizer.json}"
    text = YAML.replace("source: photos", f"source: {written}")
    text = text.replace("decode_image, {resize: [8, 8]}, {to_tensor: nchw}", f"{{{tokens}}}")

    source = Job(loads(text), inputs=inputs)._source

    assert type(source).__name__ == kind
    assert source.paths == tuple(inputs)


def test_options_of_the_videos_stay_for_others():
    text = YAML.replace("source: photos", "source: {videos: {paths: clips, every: 5, stop: 1m}}")

    source = Job(loads(text), inputs=["b.mp4"])._source

    assert (source.paths, source.every, source.stop) == (("b.mp4",), 5, 60.0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("every: 0", "every is 0; expected at least 1"),
        ("fps: 0", "fps is 0.0; expected more than 0"),
        ("start: soon", "start: expected a duration"),
        ("start: 5s, stop: 5s", "stop is 5.0 s; expected more than start"),
        ("timeout: 0", "timeout: expected a duration of more than 0"),
        ("memory: lots", "memory: expected a size"),
        ("ever: 5", "did you mean 'every'"),
    ],
)
def test_a_wrong_option_of_videos_is_told(options, says):
    text = YAML.replace("source: photos", f"source: {{videos: {{paths: clips, {options}}}}}")

    with pytest.raises(ConfigError) as caught:
        loads(text)

    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("written", "files", "kind"),
    [
        ("photos", ["sub/a.mp4"], "VideoFiles"),
        ("photos", ["a.mp4", "b.jpg"], "ImageFiles"),
        ("photos", [], "ImageFiles"),
        ("{videos: clips}", ["sub/a.jpg"], "ImageFiles"),
        ("{videos: clips}", ["a.mp4", "b.jpg"], "VideoFiles"),
        ("null", ["a.mp4"], "VideoFiles"),
    ],
)
def test_a_folder_is_of_the_kind_of_what_is_in_it(written, files, kind):
    Path("in/sub").mkdir(parents=True)
    for name in files:
        (Path("in") / name).touch()

    job = Job(loads(YAML.replace("source: photos", f"source: {written}")), inputs=["in"])

    assert type(job._source).__name__ == kind
