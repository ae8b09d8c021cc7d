# ruff: noqa: E501 - messages stand in one piece
"""Where paths in a pipeline file lead."""

from pathlib import Path

import pytest

from gepipe.spec.load import load
from gepipe.spec.paths import resolve, resolve_text

BARE = "stages: [{name: preprocess}, {name: inference}, {name: postprocess}]\n"


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Make `here/` the current directory and return `here/` and `conf/`, the file's folder."""
    here, conf = tmp_path / "here", tmp_path / "conf"
    for folder in (here, conf):
        (folder / "photos").mkdir(parents=True)
    monkeypatch.chdir(here)
    return here, conf


def test_the_current_directory_comes_first(folders) -> None:
    here, conf = folders
    (here / "m.onnx").touch()
    (conf / "m.onnx").touch()

    assert resolve("m.onnx", conf) == Path("m.onnx")


def test_the_folder_of_the_file_comes_second(folders) -> None:
    _, conf = folders
    (conf / "m.onnx").touch()

    assert resolve("m.onnx", conf) == conf / "m.onnx"


def test_what_is_found_nowhere_stays_as_written(folders) -> None:
    _, conf = folders

    assert resolve("m.onnx", conf) == Path("m.onnx")
    assert resolve("m.onnx", None) == Path("m.onnx")


def test_an_absolute_path_stays_and_a_tilde_is_the_home_folder(folders, monkeypatch) -> None:
    _, conf = folders
    monkeypatch.setenv("HOME", "/home/me")

    assert resolve("/m.onnx", conf) == Path("/m.onnx")
    assert resolve("~/m.onnx", conf) == Path("/home/me/m.onnx")
    assert resolve("~nobody-of-that-name/m.onnx", conf) == Path("~nobody-of-that-name/m.onnx")


@pytest.mark.parametrize("text", ["x" * 300, "a\0b", "**x", "a/**b/[", "[", "x" * 300 + "/*.jpg"])
def test_a_path_that_cannot_be_is_for_others_to_refuse(folders, text) -> None:
    assert resolve_text(text, folders[1]) == text


def test_a_glob_is_looked_for_by_the_folder_that_it_searches(folders) -> None:
    here, conf = folders
    (conf / "more").mkdir()
    (conf / "a.jpg").touch()

    assert resolve_text("photos/*.jpg", conf) == "photos/*.jpg"
    assert resolve_text("more/**/*.jpg", conf) == str(conf / "more/**/*.jpg")
    assert resolve_text("*.jpg", conf) == str(conf / "*.jpg")
    (here / "b.jpg").touch()
    assert resolve_text("*.jpg", conf) == "*.jpg"


@pytest.mark.parametrize("text", ["-", "", "s3://bucket/key", "rtsp://camera"])
def test_what_is_no_path_is_left_alone(folders, text) -> None:
    assert resolve_text(text, folders[1]) == text


@pytest.mark.usefixtures("made_up")
def test_every_input_path_of_a_file_is_resolved_and_the_output_is_not(folders) -> None:
    _, conf = folders
    (conf / "pictures").mkdir()
    for name in ("m.onnx", "mask.png", "ops.py"):
        (conf / name).touch()
    file = conf / "p.yaml"
    file.write_text(
        "source: pictures\nsink: pictures/r.jsonl\nstages:\n  - name: preprocess\n    ops:\n"
        "      - blur: {radius: 1, mask: mask.png}\n      - cut: {code: './ops.py:f'}\n"
        "      - cut: {code: 'ops:f'}\n"
        "  - {name: inference, model: m.onnx}\n  - name: postprocess\n"
    )

    spec = load(file)

    assert spec.infer.model == conf / "m.onnx"
    assert spec.pre.ops[0].mask == conf / "mask.png"
    assert spec.pre.ops[1].code == f"{conf}/ops.py:f"
    assert spec.pre.ops[2].code == "ops:f"
    assert spec.source.paths == (str(conf / "pictures"),)
    assert str(spec.sink.path) == "pictures/r.jsonl"


def test_an_override_is_resolved_like_the_file(folders) -> None:
    _, conf = folders
    (conf / "m.onnx").touch()
    file = conf / "p.yaml"
    file.write_text(BARE)

    assert load(file, ["inference.model=m.onnx"]).infer.model == conf / "m.onnx"


def test_a_missing_model_is_no_error_of_the_file(folders) -> None:
    file = folders[1] / "p.yaml"
    file.write_text("stages: [{name: preprocess}, {name: inference, model: gone.onnx}, {name: postprocess}]")  # fmt: skip

    assert load(file).infer.model == Path("gone.onnx")
