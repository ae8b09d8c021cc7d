"""A run writes over nothing that it reads."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from gepipe.errors import ConfigError
from gepipe.pipeline.check import Findings, _check_sink
from gepipe.pipeline.job import Job
from gepipe.spec.load import load

YAML = """
source: photos
stages:
  - name: preprocess
    ops:
      - {python: "ops.py:same"}
      - decode_image
      - {resize: [8, 8]}
      - {to_tensor: nchw}
  - {name: inference, model: tiny.onnx}
  - {name: postprocess, ops: [{top_k: {labels: labels.txt}}]}
"""
READ = ["tiny.onnx", "pipeline.yaml", "ops.py", "labels.txt", "photos/a.jpg", "photos/b.jpg"]


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    for name in READ:
        (tmp_path / name).write_text("precious")
    (tmp_path / "pipeline.yaml").write_text(YAML)
    return tmp_path


def sink_errors(spec):
    """Return what `gepipe check` says of the sink, without its workers."""
    found = Findings()
    _check_sink(spec, (), found)
    return found.errors


def refused(sink):
    path = os.fspath(sink)
    spec = load("pipeline.yaml", [f"sink={{jsonl: '{path}'}}"])
    content = {name: Path(name).read_bytes() for name in READ}
    with pytest.raises(ConfigError, match=r"^sink: '.*' is (the |a file|an input)"):
        Job(spec).run()
    assert any(error.endswith("; write to another file") for error in sink_errors(spec))
    assert content == {name: Path(name).read_bytes() for name in READ}


@pytest.mark.parametrize("name", READ)
def test_an_output_that_is_read_is_refused(name):
    refused(name)


@pytest.mark.parametrize("name", READ)
def test_links_are_seen_through(place, name):
    (place / "out.jsonl").symlink_to(place / name)
    refused("out.jsonl")
    (place / "out.jsonl").unlink()
    os.link(place / name, place / "out.jsonl")
    refused("out.jsonl")


@pytest.mark.parametrize("neighbour", ["out.failures.jsonl", "out.job.json"])
@pytest.mark.parametrize("name", READ)
def test_the_files_beside_the_output_count_too(place, name, neighbour):
    (place / neighbour).symlink_to(name)
    refused("out.jsonl")


def test_a_list_that_is_the_failures_file_of_its_own_output_is_refused(place):
    shutil.move("photos/a.jpg", "a.jpg")
    (place / "out.failures.jsonl").write_text("a.jpg\n")
    spec = load("pipeline.yaml", ["source={list: out.failures.jsonl}", "sink=out.jsonl"])

    with pytest.raises(ConfigError, match="is what the inputs are read from; write to another"):
        Job(spec).run()


def test_an_output_that_is_an_input_of_a_later_run_is_refused(place):
    (place / "photos" / "out.jsonl").write_text("")
    (place / "photos" / "out.job.json").write_text(
        '{"gepipe": "0", "output": "out.jsonl", "status": "complete", "inputs": null, '
        '"span": [0, null], "sizes": null, "pipeline": {}}'
    )
    spec = load("pipeline.yaml", ["source=photos/*", "sink=photos/out.jsonl"])

    with pytest.raises(ConfigError, match=r"is an input, 'photos/out\.job"):
        Job(spec).run()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: path.symlink_to(path), "cannot be written: too many levels of symbolic"),
        (lambda path: path.symlink_to("no/such/folder/x"), "which does not exist"),
        (os.mkfifo, "is a device, pipe or socket"),
    ],
)
def test_a_check_finds_an_output_that_cannot_be_opened(place, make, says):
    make(place / "out.jsonl")

    errors = sink_errors(load("pipeline.yaml", ["sink=out.jsonl"]))

    assert any(error.startswith("sink: 'out.jsonl'") and says in error for error in errors), errors


@pytest.mark.parametrize(
    ("source", "sink"),
    [
        ("{jsonl: a.jsonl}", "a.jsonl"),
        ("{jsonl: texts}", "texts/b.jsonl"),
        ("{text: ['texts/*.txt', a.jsonl]}", "a.jsonl"),
        ("{csv: {paths: [a.jsonl, texts/b.jsonl], header: false, field: 0}}", "texts/b.jsonl"),
    ],
)
def test_a_file_of_texts_is_never_written_over(place, source, sink):
    (place / "texts").mkdir()
    for name in ("a.jsonl", "texts/b.jsonl", "texts/c.txt"):
        (place / name).write_text('{"text": "precious"}\n')
    spec = load("pipeline.yaml", [f"source={source}", f"sink={{jsonl: '{sink}'}}"])

    assert any("is what the inputs are read from" in error for error in sink_errors(spec))
    with pytest.raises(ConfigError, match="is what the inputs are read from"):
        Job(spec).run()
    assert (place / sink).read_text() == '{"text": "precious"}\n'


def test_films_of_pictures_are_refused():
    spec = load("pipeline.yaml", ["sink={video: out.jsonl}"])

    with pytest.raises(ConfigError, match="video makes films of videos, and the source images"):
        Job(spec).run()
    assert any("makes films of videos" in error for error in sink_errors(spec))
    assert not Path("out.jsonl").exists()


@pytest.mark.parametrize("name", ["clips/a.jsonl.mp4", "clips/b.mp4"])
def test_a_video_is_not_written_over(place, name):
    (place / "clips").mkdir()
    Path(name).write_text("precious")
    spec = load("pipeline.yaml", ["source={videos: clips}", f"sink={{jsonl: '{name}'}}"])

    with pytest.raises(ConfigError, match="is an input"):
        Job(spec).run()

    assert Path(name).read_text() == "precious"


def test_a_folder_of_films_holds_no_video_that_is_read(place):
    (place / "clips").mkdir()
    (place / "clips/000-a.mp4").write_text("precious")
    sink = "sink={video: {path: out.jsonl, folder: clips}}"
    spec = load("pipeline.yaml", ["source={videos: clips}", sink])

    with pytest.raises(ConfigError, match="holds an input"):
        Job(spec).run()


@pytest.mark.parametrize("sink", ["annotated", "contact_sheet"])
def test_a_folder_of_what_is_drawn_holds_no_picture_that_is_read(place, sink):
    spec = load("pipeline.yaml", [f"sink={{{sink}: {{path: out.jsonl, folder: photos}}}}"])

    with pytest.raises(ConfigError, match="holds an input"):
        Job(spec).run()

    assert (place / "photos/a.jpg").read_text() == "precious"
