"""What determines results, and how two pipelines differ in it."""

import json

import pytest

from gepipe.spec.dump import dump
from gepipe.spec.load import loads
from gepipe.spec.normal import difference, normal_form

TEXT = """\
stages:
  - {name: preprocess, batch_size: 8, ops: [{blur: {radius: 1, size: [3, 5]}}, cut]}
  - {name: inference, model: m.onnx}
  - {name: postprocess, ops: [rank]}
"""
pytestmark = pytest.mark.usefixtures("made_up")


def test_the_normal_form_holds_what_determines_results_with_defaults_filled_in() -> None:
    assert normal_form(loads(TEXT)) == {
        "version": 1,
        "stages": [
            {
                "name": "preprocess",
                "role": "pre",
                "batch_size": 8,
                "ops": [
                    {"blur": {"radius": 1.0, "size": [3, 5], "mode": "edge", "mask": None}},
                    {"cut": {"at": 0.5, "names": [], "code": ""}},
                ],
            },
            {
                "name": "inference",
                "role": "infer",
                "model": "m.onnx",
                "backend": "auto",
                "gears": [],
                "precision": "auto",
                "nan": "fail",
            },
            {"name": "postprocess", "role": "post", "ops": [{"rank": None}]},
        ],
    }


@pytest.mark.parametrize(
    "override",
    [
        "preprocess.threads=3",
        "preprocess.timeout=1s",
        "inference.devices=[3]",
        "inference.instances=2",
        "inference.timeout=1s",
        "postprocess.stream_count=3",
        "depth=5",
        "max_wait=1s",
        "max_failures=3",
        "on_error=fail",
        "name=other",
        "source=photos",
        "sink=other.jsonl",
        "preprocess.ops[1]={cut: 0.5}",
    ],
)
def test_what_changes_only_the_speed_or_the_place_keeps_the_normal_form(override) -> None:
    assert normal_form(loads(TEXT, overrides=[override])) == normal_form(loads(TEXT))


@pytest.mark.parametrize(
    ("override", "change"),
    [
        ("preprocess.batch_size=4", "stages.preprocess.batch_size: 8 → 4"),
        ("preprocess.ops.blur.radius=2", "stages.preprocess.ops[0].blur.radius: 1.0 → 2.0"),
        ("preprocess.ops.blur.mode=wrap", "stages.preprocess.ops[0].blur.mode: edge → wrap"),
        ("preprocess.ops=[cut]", "stages.preprocess.ops: [blur, cut] → [cut]"),
        ("inference.model=n.onnx", "stages.inference.model: m.onnx → n.onnx"),
        ("inference.model=", "stages.inference.model: m.onnx → null"),
        ("inference.backend=onnxruntime", "stages.inference.backend: auto → onnxruntime"),
        ("inference.gears=[1, 4]", "stages.inference.gears: [] → [1, 4]"),
        ("inference.nan=keep", "stages.inference.nan: fail → keep"),
        ("postprocess.ops=", "stages.postprocess.ops: [rank] → []"),
    ],
)
def test_what_changes_the_results_is_named(override, change) -> None:
    old, new = loads(TEXT), loads(TEXT, overrides=[override])

    stored = json.loads(json.dumps(normal_form(old)))

    assert difference(stored, normal_form(new)) == [change]


def test_keys_that_one_side_lacks_are_named_too() -> None:
    assert difference({"a": 1, "b": 2}, {"b": 2, "c": "x"}) == [
        "a: 1 → (not set)",
        "c: (not set) → x",
    ]
    assert difference({"a": 1}, {"a": True}) == ["a: 1 → true"]


def test_a_dump_leaves_out_what_is_not_set() -> None:
    dumped = dump(loads(TEXT))["pipeline"]

    assert sorted(dumped) == ["depth", "name", "on_error", "stages"]
    assert json.loads(json.dumps(dumped)) == dumped
