# ruff: noqa: E501 - messages stand in one piece
"""`--set`: changes before validation."""

import pytest

from gepipe.errors import ConfigError
from gepipe.spec.load import loads

TEXT = """\
source: photos
stages:
  - name: preprocess
    ops:
      - blur: {radius: 1}
      - cut: 0.5
      - cut
      - words: a
  - name: inference
  - name: postprocess
    ops:
      - rank
sink: o.jsonl
"""
pytestmark = pytest.mark.usefixtures("made_up")


def after(*overrides: str):
    return loads(TEXT, "f.yaml", overrides)


def refusal(*overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        after(*overrides)
    return str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("override", "read", "value"),
    [
        ("preprocess.batch_size=16", lambda s: s.pre.batch_size, 16),
        ("stages.preprocess.batch_size=16", lambda s: s.pre.batch_size, 16),
        ("inference.model=x.onnx", lambda s: str(s.infer.model), "x.onnx"),
        ("inference.devices=[0, 1]", lambda s: s.infer.devices, (0, 1)),
        ("inference.timeout=50ms", lambda s: s.infer.timeout, 0.05),
        ("inference.timeout=", lambda s: s.infer.timeout, None),
        ("inference.backend.onnxruntime.a=3", lambda s: s.infer.backend.options, {"a": 3}),
        ("pipeline.depth=3", lambda s: s.depth, 3),
        ("depth=3", lambda s: s.depth, 3),
        ("depth = 3", lambda s: s.depth, 3),
        ("name=a=b", lambda s: s.name, "a=b"),
        ("preprocess.ops.blur.radius=2", lambda s: s.pre.ops[0].radius, 2.0),
        ("preprocess.ops[0].blur.radius=2", lambda s: s.pre.ops[0].radius, 2.0),
        ("preprocess.ops[1].cut=0.7", lambda s: s.pre.ops[1].at, 0.7),
        ("preprocess.ops[1].cut.names=[x]", lambda s: (s.pre.ops[1].at, s.pre.ops[1].names), (0.5, ("x",))),
        ("preprocess.ops[2].cut.at=0.7", lambda s: s.pre.ops[2].at, 0.7),
        ("preprocess.ops.words=[b, c]", lambda s: s.pre.ops[3].words, ("b", "c")),
        ("preprocess.ops[3]={words: z}", lambda s: s.pre.ops[3].words, ("z",)),
        ("preprocess.ops=[cut]", lambda s: len(s.pre.ops), 1),
        ("postprocess.ops=", lambda s: s.post.ops, ()),
        ("source=[a, b]", lambda s: s.source.paths, ("a", "b")),
        ("source.images.recursive=false", lambda s: (s.source.paths, s.source.recursive), (("photos",), False)),
        ("sink={csv: o.txt}", lambda s: type(s.sink).__name__, "CsvSink"),
    ],
)  # fmt: skip
def test_an_override_changes_one_value(override, read, value) -> None:
    assert read(after(override)) == value


def test_a_later_override_wins() -> None:
    assert after("depth=3", "depth=4").depth == 4


def test_an_override_of_an_alias_leaves_the_anchor_alone() -> None:
    text = (
        "stages:\n  - &a {name: a, role: pre, ops: [&c {cut: {at: 0.1}}, *c]}\n"
        "  - {name: b, role: infer}\n  - {name: c, role: post}\n"
    )

    spec = loads(text, "f.yaml", ["a.ops[1].cut.at=0.9"])

    assert [op.at for op in spec.pre.ops] == [0.1, 0.9]


def test_an_override_may_repair_what_the_file_has_wrong() -> None:
    wrong = TEXT.replace("radius: 1", "radius: x")

    assert loads(wrong, "f.yaml", ["preprocess.ops.blur.radius=2"]).pre.ops[0].radius == 2.0


KEYS = "depth, max_failures, max_wait, name, on_error, profile, sink, source, stages"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("x", "expected key=value, such as preprocess.batch_size=16"),
        ("=3", "expected key=value, such as preprocess.batch_size=16"),
        ("preproces.threads=1", "unknown stage or key 'preproces'; did you mean 'preprocess'?"),
        ("dept=1", "unknown stage or key 'dept'; did you mean 'depth'?"),
        ("zzz=1", f"unknown stage or key 'zzz'; stages: preprocess, inference, postprocess; keys: {KEYS}"),
        ("stages.inferense.nan=keep", "unknown stage or key 'inferense'; did you mean 'inference'?"),
        ("preprocess=3", "names a stage; expected one of its keys after it"),
        ("preprocess.treads=3", "unknown key 'treads'; did you mean 'threads'?"),
        ("preprocess.threads=eight", "expected a whole number of at least 1, or auto, got 'eight'"),
        ("preprocess.ops.blurr.radius=3", "there is no operator 'blurr' here; did you mean 'blur'?"),
        ("preprocess.ops.cut=0.1", "2 operators are called 'cut'; choose by index: [1], [2]"),
        ("preprocess.ops[9].cut=1", "[9] is beyond the end: the list holds 4, counted from 0"),
        ("preprocess.ops[9]=cut", "[9] is beyond the end: the list holds 4, counted from 0"),
        ("preprocess.ops[0].blur.raduis=3", "unknown key 'raduis'; did you mean 'radius'?"),
        ("preprocess.ops[x].a=1", "'ops[x]' is not a key; expected keys with dots between, and [1] for an index"),
        ("preprocess..a=1", "'' is not a key; expected keys with dots between, and [1] for an index"),
        ("name[1]=3", "'name' is not a list here"),
        ("preprocess.name.x=3", "'name' holds a value here, not a mapping"),
        ("preprocess.threads=[1", "not valid YAML: "),
        ("preprocess.threads=a: b: c", "not valid YAML: mapping values are not allowed in this context"),
        ("preprocess.threads=!!python/x 3", "the tag !!python/x is refused: a pipeline file holds plain data"),
        ("sink.jsonl.path=x", "'sink' holds a value here, not a mapping"),
        ("sink={jsonl: }", "missing key 'path' beside it"),
        ("preprocess.ops[0]={blur: {size: 3}}", "missing key 'radius' beside it"),
    ],
)  # fmt: skip
def test_a_wrong_override_is_told_as_it_was_given(override, message) -> None:
    (line,) = refusal(override)

    assert line.startswith(f"--set {override}: {message}")


def test_an_argument_that_is_not_utf8_is_told_where_it_can_go() -> None:
    assert refusal("sink=caf\udce9.jsonl") == [
        "--set sink=caf\udce9.jsonl: holds bytes that are not UTF-8; give such a path with --input or --output"
    ]
