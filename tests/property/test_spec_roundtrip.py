"""A pipeline that is written out and read again is the same pipeline."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from hypothesis import given
from hypothesis import strategies as st

from gepipe.errors import ConfigError
from gepipe.ops.image import CenterCrop
from gepipe.ops.resize import Resize
from gepipe.ops.results import Softmax, Threshold, TopK
from gepipe.spec import Backend, FailureLimit, InferStage, PipelineSpec, PostStage, PreStage, loads
from gepipe.spec.dump import dump, dumps
from gepipe.spec.normal import difference, normal_form
from gepipe.spec.parts import sink_of, source_of

counts = st.just("auto") | st.integers(1, 10**6)
seconds = st.floats(1e-6, 1e6, allow_nan=False)
names = st.from_regex(r"stage_[A-Za-z0-9_-]{0,8}", fullmatch=True)
words = (
    st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=20)
    | st.from_regex(r"[-+]?[0-9.eEox_:]{1,6}", fullmatch=True)
    | st.sampled_from(["on", "no", "true", "null", "~", "0E0", "1:30", "<<", "=", ".inf", "# a"])
).filter(lambda text: text != "-")
paths = words.filter(lambda text: "/" not in text and text not in (".", "..", "~")).map(Path)
sides = st.integers(1, 4096)
pre_ops = st.one_of(
    st.builds(Resize, short_side=sides, interpolation=st.sampled_from(["linear", "area"])),
    st.builds(Resize, size=st.tuples(sides, sides)),
    st.builds(CenterCrop, size=sides | st.tuples(sides, sides)),
)
post_ops = st.one_of(
    st.builds(Softmax, axis=st.integers(-3, 3)),
    st.builds(Threshold, min_score=st.floats(0, 1, allow_nan=False)),
    st.builds(TopK, k=st.integers(1, 100), labels=st.none() | paths),
)
limits = st.builds(FailureLimit, count=st.integers(0, 10**9)) | st.builds(
    FailureLimit, percent=st.floats(0.01, 100).filter(lambda p: "e" not in repr(p))
)
numbers = st.lists(st.integers(1, 512), unique=True, min_size=1, max_size=4).map(sorted).map(tuple)
options = st.dictionaries(words, st.integers() | st.booleans() | words, max_size=3)


@st.composite
def specs(draw: st.DrawFn) -> PipelineSpec:
    first, second, third = draw(st.lists(names, min_size=3, max_size=3, unique=True))
    return PipelineSpec(
        name=draw(words),
        source=draw(st.none() | st.lists(words, min_size=1, max_size=3).map(source_of)),
        stages=(
            PreStage(
                name=first,
                threads=draw(counts),
                batch_size=draw(counts),
                ops=tuple(draw(st.lists(pre_ops, max_size=3))),
                timeout=draw(seconds),
            ),
            InferStage(
                name=second,
                model=draw(st.none() | paths),
                backend=Backend(draw(st.sampled_from(["auto", "onnxruntime"])), draw(options)),
                devices=draw(st.just("auto") | numbers),
                instances=draw(counts),
                timeout=draw(st.none() | seconds),
                gears=draw(st.just(()) | numbers),
                precision=draw(st.sampled_from(["auto", "fp32", "fp16"])),
                nan=draw(st.sampled_from(["fail", "keep", "warn"])),
            ),
            PostStage(
                name=third,
                stream_count=draw(counts),
                ops=tuple(draw(st.lists(post_ops, max_size=3))),
                timeout=draw(seconds),
            ),
        ),
        sink=draw(st.none() | words.map(lambda w: sink_of({"jsonl": w}))),
        depth=draw(st.integers(1, 99)),
        max_wait=draw(st.none() | seconds),
        on_error=draw(st.sampled_from(["skip", "fail"])),
        max_failures=draw(st.none() | limits),
    )


@given(specs())
def test_a_dump_loads_to_an_equal_pipeline(spec: PipelineSpec) -> None:
    again = loads(dumps(spec))

    assert again == spec
    assert dump(again) == dump(spec)
    assert normal_form(again) == normal_form(spec)


@given(specs(), specs())
def test_normal_forms_differ_exactly_where_a_difference_can_be_named(one, two) -> None:
    stored = json.loads(json.dumps(normal_form(one)))

    other = json.loads(json.dumps(normal_form(two)))

    assert bool(difference(stored, normal_form(two))) == (json.dumps(stored) != json.dumps(other))
    assert difference(stored, normal_form(one)) == []


def mistakes(text: str) -> list[str]:
    try:
        loads(text)
    except ConfigError as error:
        return str(error).splitlines()
    return []


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda b: b.decode("latin-1")))
def test_no_text_ends_in_anything_but_a_pipeline_or_a_config_error(text: str) -> None:
    lines = mistakes(text)

    assert not lines or lines[0].startswith("pipeline.yaml:")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "role", "ops", "resize", "size", "devices", "backend", "x"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)
KEYS = [*PipelineSpec.model_fields, "pipeline"]


@given(st.dictionaries(st.sampled_from(KEYS), json_values, max_size=4))
def test_no_structure_ends_in_anything_but_a_pipeline_or_a_config_error(document) -> None:
    assert all(
        line.startswith("pipeline.yaml:") for line in mistakes(yaml.dump(document, sort_keys=False))
    )
