"""What a job refuses before it opens anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from gepipe.errors import ConfigError
from gepipe.pipeline.job import Job, failures_left
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
    for output, said in (("", "--output"), ("x.txt", "ends in none of .csv, .jsonl")):
        with pytest.raises(ConfigError, match=said):
            Job(loads(YAML), output=output)


def test_a_share_of_an_unknown_number_says_what_helps():
    with pytest.raises(ConfigError, match=r"1.0% of the inputs, .* set max_failures to a number"):
        failures_left(loads(YAML), None)
