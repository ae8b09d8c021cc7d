# ruff: noqa: E501 - messages stand in one piece
"""The JSON schema accepts what the loader accepts, and tells editors what there is."""

from pathlib import Path

import jsonschema
import pytest

from gepipe.spec import tree
from gepipe.spec.load import load, loads
from gepipe.spec.schema import json_schema

BARE = "stages: [{name: preprocess}, {name: inference}, {name: postprocess}]\n"
READY = sorted(Path(__file__).parents[3].glob("pipelines/*.yaml"))


def accepts(text: str) -> bool:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema).is_valid(
        tree.parse(text, "f.yaml", []).plain("f.yaml")
    )


def pre(text: str) -> str:
    return f"stages: [{{name: preprocess, {text}}}, {{name: inference}}, {{name: postprocess}}]\n"


def infer(text: str) -> str:
    return f"stages: [{{name: preprocess}}, {{name: inference, {text}}}, {{name: postprocess}}]\n"


GOOD = [
    BARE,
    "pipeline: {" + BARE.strip() + "}\nx-a: 1\n",
    "x-a: 1\n" + BARE,
    "sink:\nsource:\nmax_wait:\n" + BARE,
    "stages: [{name: preprocess, threads: 4, batch_size: 8}, {name: inference, devices: [0,1], timeout: 50ms}, {name: postprocess, stream_count: 2}]",
    "stages: [{name: a, role: pre, threads: 2}, {name: b, role: infer}, {name: c, role: post}]",
    "stages: [{name: pre}, {name: infer, role: infer}, {name: post}]",
    "depth: 3\nmax_wait: 5ms\non_error: fail\nmax_failures: 1%\n" + BARE,
    "max_failures: 3\nmax_wait: 0\nname: x\n" + BARE,
    "source: a\nsink: o.csv\n" + BARE,
    "source: [a, b]\nsink: o.CSV\n" + BARE,
    "source: {images: a}\nsink: {csv: o}\n" + BARE,
    "source: {images: [a]}\nsink: {csv: {path: o}}\n" + BARE,
    "source: {images: {paths: a, recursive: false}}\n" + BARE,
    pre("threads: auto, batch_size: auto, timeout: 1.5s, ops: []"),
    pre("ops: [{blur: {radius: 1, size: [3, 5], mode: wrap, mask: m.png}}]"),
    pre("ops: [cut, {cut: 0.5}, {cut: }, {cut: {names: [a]}}, {words: a}, {words: [a, b]}]"),
    infer("backend: auto"),
    infer("backend: ge"),
    infer("backend: {onnxruntime: {a: 1}}, devices: 0, gears: 4"),
    infer("gears: [1, 4], precision: fp16, nan: keep, instances: 2, model: m.onnx, timeout: 1"),
]
BAD = [
    "{}",
    "[]",
    "pipeline: {}",
    "pipeline: {" + BARE.strip() + "}\ndepth: 2\n",
    "stages: []",
    "dept: 3\n" + BARE,
    "depth: 0\n" + BARE,
    "depth: '2'\n" + BARE,
    "max_wait: 1:30\n" + BARE,
    "on_error: off\n" + BARE,
    "max_failures: x\n" + BARE,
    "sink: o.txt\n" + BARE,
    "source: []\n" + BARE,
    "source: {image: a}\n" + BARE,
    "source: {images: a, npy: b}\n" + BARE,
    "stages: [{name: a}, {name: inference}, {name: postprocess}]",
    "stages: [{name: preprocess, role: post}, {name: inference}, {name: postprocess}]",
    "stages: [{name: pre, role: post}, {name: inference}, {name: post, role: pre}]",
    pre("thread: 4"),
    pre("threads: eight"),
    pre("stream_count: 2"),
    pre("ops: [blur]"),
    pre("ops: [{blur: 3}]"),
    pre("ops: [{blur: {radius: x}}]"),
    pre("ops: [{blur: {radius: 1, raduis: 1}}]"),
    pre("ops: [{blur: {radius: 1}, cut: 1}]"),
    pre("ops: [rank]"),
    pre("ops: cut"),
    infer("devices: []"),
    infer("nan: fial"),
    infer("backend: onxruntime"),
    infer("timeout: 0"),
]


@pytest.mark.parametrize("text", GOOD)
@pytest.mark.usefixtures("made_up")
def test_what_the_loader_accepts_the_schema_accepts(text) -> None:
    assert loads(text)
    assert accepts(text)


@pytest.mark.parametrize("text", BAD)
@pytest.mark.usefixtures("made_up")
def test_common_mistakes_are_refused_by_both(text) -> None:
    with pytest.raises(Exception, match=r"f\.yaml"):
        loads(text, "f.yaml")
    assert not accepts(text)


@pytest.mark.parametrize("file", READY, ids=lambda file: file.name)
def test_ready_pipelines_load_and_validate(file) -> None:
    assert load(file).stages
    assert accepts(file.read_text())


@pytest.mark.usefixtures("made_up")
def test_operators_are_described_by_their_docstrings() -> None:
    entries = json_schema()["$defs"]["pre_ops"]["items"]["anyOf"][1]["properties"]
    blur = entries["blur"]["anyOf"][0]

    assert blur["description"] == "Blur an image."
    assert blur["properties"]["radius"] == {
        "type": "number",
        "description": "Radius in pixels.",
    }
    assert "rank" not in entries
    assert "broken" not in entries
    assert entries["odd"] == {}


def test_every_key_is_described() -> None:
    definitions = json_schema()["$defs"]

    for section in ("pipeline", "pre", "infer", "post"):
        for name, key in definitions[section]["properties"].items():
            assert key["description"], f"{section}.{name}"
    assert definitions["pipeline"]["properties"]["depth"]["default"] == 2
    assert definitions["infer"]["properties"]["backend"]["default"] == "auto"


def test_options_of_an_engine_are_described():
    backend = json_schema()["$defs"]["backend"]

    options = backend["anyOf"][1]["properties"]["ge"]["properties"]
    assert set(options) == {"device", "profile", "mode", "shapes", "aipp"}
    assert "8-bit pixels" in options["aipp"]["description"]
