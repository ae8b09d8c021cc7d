"""A chain of several models: which one is accepted, and how it falls into legs."""

from __future__ import annotations

import pytest

from gepipe.errors import ConfigError
from gepipe.spec.load import loads
from gepipe.spec.normal import difference, normal_form

CHAIN = """\
stages:
  - name: preprocess
    ops: [decode_image, {resize: {size: [8, 8]}}, to_tensor]
  - name: detector
    role: infer
    model: a.onnx
  - name: cut
    role: mid
    threads: 3
    stream_count: 2
    batch_size: 4
    timeout: 7s
    ops:
      - yolo
      - crop
      - resize: {size: [4, 4]}
      - to_tensor
  - name: classifier
    role: infer
    model: b.onnx
  - name: postprocess
    ops: [{top_k: 2}, gather, {python: "json:dumps"}]
"""


def names(ops):
    return [type(op).__name__ for op in ops]


def test_a_chain_falls_into_legs_that_keep_the_names() -> None:
    spec = loads(CHAIN)
    first, second = spec.legs
    assert [stage.name for stage in first.stages] == ["preprocess", "detector", "cut"]
    assert [stage.name for stage in second.stages] == ["cut", "classifier", "postprocess"]
    assert [stage.role for leg in spec.legs for stage in leg.stages] == ["pre", "infer", "post"] * 2
    assert names(first.post.ops) == ["Yolo"]
    assert names(second.pre.ops) == ["Crop", "Resize", "ToTensor"]
    assert names(second.post.ops) == ["TopK"]
    assert names(spec.joining) == ["Gather", "Python"]
    assert (first.post.stream_count, first.post.timeout) == (2, 7.0)
    assert (second.pre.threads, second.pre.batch_size, second.pre.timeout) == (3, 4, 7.0)
    assert [type(op).__name__ for op in spec.splitters] == ["Crop"]


@pytest.mark.parametrize(("op", "before"), [("track", "yolo"), ("page_text", "gather")])
def test_what_reads_a_record_does_not_come_first(op, before) -> None:
    stages = "{name: preprocess}, {name: inference}, {name: postprocess, ops: [OP]}"
    with pytest.raises(ConfigError, match=rf"ops\[0\]\.{op}: {op} reads .* such as {before}"):
        loads(f"stages: [{stages.replace('OP', op)}]")


def test_a_pipeline_of_one_model_is_its_only_leg() -> None:
    text = "stages: [{name: preprocess}, {name: inference}, {name: postprocess}]"
    spec = loads(text)
    assert spec.legs == (spec,)
    assert spec.joining == spec.mids == ()


def test_three_models_make_three_legs() -> None:
    more = """\
  - name: mid
    ops: [{top_k: 1}, whole, to_tensor]
  - name: reader
    role: infer
"""
    text = CHAIN.replace("  - name: postprocess", more + "  - name: postprocess")
    spec = loads(text)
    assert [leg.infer.name for leg in spec.legs] == ["detector", "classifier", "reader"]
    assert [leg.pre.name for leg in spec.legs] == ["preprocess", "cut", "mid"]
    assert names(spec.legs[1].post.ops) == ["TopK"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("      - crop\n", ""), "pipeline.yaml:13: stages.cut.ops: a mid stage needs an operator"),
        (
            ("      - yolo\n", "      - yolo\n      - crop\n"),
            "pipeline.yaml:16: stages.cut.ops[2].crop: a mid stage splits an item once",
        ),
        (
            ("      - yolo\n", "      - to_tensor\n"),
            ".yaml:14: stages.cut.ops[0].to_tensor: an operator for pre stages stands before crop",
        ),
        (
            ("      - resize: {size: [4, 4]}\n", "      - top_k: 3\n"),
            ".yaml:16: stages.cut.ops[2].top_k: an operator for post stages stands behind crop",
        ),
        (
            ("      - yolo\n", "      - gather\n"),
            "pipeline.yaml:14: stages.cut.ops[0]: parts are gathered in the post stage",
        ),
        (
            ("      - yolo\n", ""),
            "pipeline.yaml:14: stages.cut.ops[0].crop: crop reads what an operator before it made",
        ),
        (("    role: mid\n", "    role: pre\n"), "pipeline.yaml:10: stages.cut.stream_count"),
        (
            ("gather, {python", "gather, gather, {python"),
            "pipeline.yaml:22: stages.postprocess.ops[2]: gathers what is gathered already",
        ),
    ],
)
def test_a_chain_that_cannot_be_run_is_refused_where_it_stands(change, message) -> None:
    old, new = change
    assert old in CHAIN
    with pytest.raises(ConfigError) as caught:
        loads(CHAIN.replace(old, new))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "roles", ["pre infer mid post", "pre mid infer post", "pre infer infer post"]
)
def test_the_order_of_roles(roles) -> None:
    stages = ", ".join(
        f"{{name: s{i}, role: {role}" + (", ops: [whole]}" if role == "mid" else "}")
        for i, role in enumerate(roles.split())
    )
    with pytest.raises(ConfigError, match=r"mid, infer for each further model before post, got"):
        loads(f"stages: [{stages}]")


def test_what_keeps_a_state_gets_items_and_no_parts() -> None:
    ops = "[{top_k: 2}, gather, {python"
    with pytest.raises(ConfigError, match=r"yaml:22: .*track: keeps a state from item to item"):
        loads(CHAIN.replace(ops, "[{top_k: 2}, track, gather, {python"))
    loads(CHAIN.replace(ops, "[{top_k: 2}, gather, track, {python"))
    loads(CHAIN.replace("      - yolo\n", "      - yolo\n      - track\n"))


def test_gather_needs_parts() -> None:
    text = "stages:\n - name: pre\n - name: infer\n - name: post\n   ops:\n    - gather\n"
    with pytest.raises(ConfigError, match=r"pipeline.yaml:6: .*nothing is split here"):
        loads(text)


def test_each_stage_of_a_chain_is_set_by_its_name() -> None:
    spec = loads(
        CHAIN, overrides=["cut.batch_size=9", "classifier.nan=keep", "cut.ops.yolo.iou=0.3"]
    )
    assert spec.legs[1].pre.batch_size == 9
    assert spec.legs[1].infer.nan == "keep"
    assert spec.legs[0].post.ops[0].iou == 0.3


def test_the_normal_form_tells_mid_stages_apart() -> None:
    old, new = (
        normal_form(loads(text))
        for text in (CHAIN, CHAIN.replace("batch_size: 4", "batch_size: 5"))
    )
    assert difference(old, new) == ["stages.cut.batch_size: 4 → 5"]
    slower = normal_form(loads(CHAIN.replace("threads: 3", "threads: 1")))
    assert difference(old, slower) == []


def test_a_profile_settles_every_leg() -> None:
    spec = loads(CHAIN + "profile: {batch_size: 16, precision: fp16}\n")
    stages = {stage["name"]: stage for stage in normal_form(spec)["stages"]}
    assert stages["preprocess"]["batch_size"] == 16
    assert stages["cut"]["batch_size"] == 4
    assert [stages[name]["precision"] for name in ("detector", "classifier")] == ["fp16", "fp16"]
