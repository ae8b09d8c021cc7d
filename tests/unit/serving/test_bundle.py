"""A bundle needs nothing outside its folder, and finds nothing outside it either."""

from __future__ import annotations

from pathlib import Path

import pytest

from gepipe.errors import ExportError
from gepipe.ops.user import Python
from gepipe.serving.bundle import Bundle, load_bundle, make_bundle
from gepipe.spec.load import load, loads

YAML = """
pipeline:
  name: tiny
  source: photos
  stages:
    - {{name: preprocess, ops: [{pre}]}}
    - {{name: inference, model: {model}}}
    - {{name: postprocess, ops: [{post}]}}
  sink: out.jsonl
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for folder in ("a", "b", "elsewhere"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "labels.txt").write_text(f"{folder}\n")
    (tmp_path / "a" / "ops.py").write_text(
        "import os\nimport helper\nfrom parts.deep import f\n\ndef clean(value):\n    return f\n"
    )
    (tmp_path / "a" / "helper.py").write_text("import second\n")
    (tmp_path / "a" / "second.py").write_text("import helper\n")
    (tmp_path / "a" / "unused.py").write_text("")
    (tmp_path / "a" / "parts").mkdir()
    (tmp_path / "a" / "parts" / "__init__.py").write_text("")
    (tmp_path / "a" / "parts" / "deep.py").write_text("def f(): ...\n")
    (tmp_path / "model.onnx").write_bytes(b"model")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def bundle(pre: str = "decode_image", post: str = "top_k", model: str = "model.onnx") -> Bundle:
    return make_bundle(
        loads(YAML.format(pre=pre, post=post, model=model)), {"inference": "model.onnx"}
    )


def unpack(made: Bundle, folder: Path) -> Path:
    for name, content in made.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.read_bytes())
    return folder


def test_files_of_the_same_name_keep_apart() -> None:
    made = bundle(post="{top_k: {labels: a/labels.txt}}, {top_k: {labels: b/labels.txt}}")

    assert made.files["resources/labels.txt"] == Path("a/labels.txt")
    assert made.files["resources2/labels.txt"] == Path("b/labels.txt")


def test_names_are_ascii_since_the_servers_processes_open_no_other(place: Path) -> None:
    labels = place / "a" / "标签.txt"
    labels.write_text("cat\n")

    made = bundle(post="{top_k: {labels: a/标签.txt}}")

    assert sorted(made.files) == ["pipeline.yaml", "resources/file-48534742.txt"]
    folder = unpack(made, place / "bundle")
    assert load_bundle(folder).post.ops[0].labels.read_text() == "cat\n"


def test_user_code_brings_the_modules_beside_it_that_it_imports() -> None:
    made = bundle(pre="{python: './a/ops.py:clean'}")

    assert sorted(made.files) == [
        "pipeline.yaml",
        "resources/helper.py",
        "resources/ops.py",
        "resources/parts/__init__.py",
        "resources/parts/deep.py",
        "resources/second.py",
    ]
    assert made.modules == ()


def test_modules_are_named_and_not_copied() -> None:
    made = bundle(pre="{python: 'my_package.my_module:clean'}")

    assert made.modules == ("my_package",)
    assert list(made.files) == ["pipeline.yaml"]


def test_what_is_loaded_leads_into_the_folder_and_nowhere_else(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = bundle("{python: './a/ops.py:clean'}", "{top_k: {labels: a/labels.txt}}")
    folder = unpack(made, place / "bundle")
    # The server's folder holds files of the very names that the bundle uses.
    trap = place / "elsewhere" / "resources"
    trap.mkdir()
    for name in ("labels.txt", "ops.py"):
        (trap / name).write_text("wrong")
    (place / "elsewhere" / "model.onnx").write_text("wrong")
    for here in (place / "elsewhere", place, folder):
        monkeypatch.chdir(here)

        spec = load_bundle(folder)

        assert spec.infer.model == folder / "model.onnx"
        assert spec.post.ops[0].labels == folder / "resources" / "labels.txt"
        assert spec.pre.ops[0].function == f"{folder}/resources/ops.py:clean"
        assert (spec.source, spec.sink) == (None, None)


def test_a_relative_folder_is_no_matter(place: Path) -> None:
    unpack(bundle(post="{top_k: {labels: a/labels.txt}}"), place / "bundle")

    assert load_bundle(Path("bundle")).post.ops[0].labels == place / "bundle/resources/labels.txt"


def test_loading_gives_the_pipeline_that_was_bundled(place: Path) -> None:
    path = place / "p.yaml"
    path.write_text(YAML.format(pre="decode_image", post="top_k", model="model.onnx"))
    spec = load(path)

    again = load_bundle(unpack(make_bundle(spec, {"inference": "model.onnx"}), place / "bundle"))

    assert again.pre == spec.pre
    assert again.post == spec.post


def test_nothing_of_this_machine_is_in_the_files(place: Path) -> None:
    pre, post = (
        f"{{python: '{place}/a/ops.py:clean'}}",
        f"{{top_k: {{labels: {place}/a/labels.txt}}}}",
    )

    made = bundle(pre, post)

    text = made.files["pipeline.yaml"]
    assert isinstance(text, bytes)
    assert str(place).encode() not in text
    assert made == bundle(pre, post)


def test_a_missing_file_is_told() -> None:
    with pytest.raises(ExportError, match=r"c/labels.txt: no such file; the pipeline names it"):
        bundle(post="{top_k: {labels: c/labels.txt}}")


def test_a_function_of_this_process_cannot_travel() -> None:
    spec = loads(YAML.format(pre="decode_image", post="top_k", model="model.onnx"))
    post = spec.post.model_copy(update={"ops": (Python(lambda value: value),)})
    stages = (spec.pre, spec.infer, post)

    with pytest.raises(ExportError, match=r"postprocess: .*is a function of this process"):
        make_bundle(spec.model_copy(update={"stages": stages}))


def test_broken_user_code_is_told(place: Path) -> None:
    (place / "a" / "ops.py").write_text("def f(:\n")

    with pytest.raises(ExportError, match=r"a/ops.py: is no Python file"):
        bundle(pre="{python: './a/ops.py:clean'}")
