# ruff: noqa: E501 - messages stand in one piece
"""Loading a pipeline file: what it means, and every message about what is wrong with it."""

from pathlib import Path

import pytest

from gepipe.errors import ConfigError
from gepipe.spec import Backend, FailureLimit, InferStage, PipelineSpec, PostStage, PreStage
from gepipe.spec.load import load, loads

SHORT = (
    "stages: [{name: preprocess, threads: 4, batch_size: 8}, "
    "{name: inference, devices: [0,1], timeout: 50ms}, {name: postprocess, stream_count: 2}]\n"
)
BARE = "stages: [{name: preprocess}, {name: inference}, {name: postprocess}]\n"


def refusal(text: str, *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loads(text, "f.yaml", overrides)
    return str(caught.value).splitlines()


def pre(text: str) -> str:
    """Return a pipeline with more in its pre stage, on line 3."""
    return (
        "stages:\n  - name: preprocess\n    " + text + "\n  - name: inference\n"
        "  - name: postprocess\n"
    )


def infer(text: str) -> str:
    """Return a pipeline with more in its infer stage, on line 4."""
    return (
        "stages:\n  - name: preprocess\n  - name: inference\n    "
        + text
        + "\n  - name: postprocess\n"
    )


def op(text: str) -> str:
    """Return a pipeline with one operator in its pre stage, on line 4."""
    return pre(f"ops:\n      - {text}")


def test_the_short_snippet_of_ge_users_loads() -> None:
    spec = loads(SHORT)

    assert spec == PipelineSpec(
        stages=(
            PreStage(name="preprocess", threads=4, batch_size=8),
            InferStage(name="inference", devices=(0, 1), timeout=0.05),
            PostStage(name="postprocess", stream_count=2),
        )
    )
    assert (spec.source, spec.sink, spec.infer.model, spec.pre.ops) == (None, None, None, ())


def test_defaults_are_those_of_the_reference() -> None:
    spec = loads(BARE)

    assert (spec.name, spec.depth, spec.max_wait) == ("pipeline", 2, None)
    assert (spec.on_error, spec.max_failures, spec.origin) == ("skip", None, None)
    assert (spec.pre.threads, spec.pre.batch_size, spec.pre.timeout) == ("auto", "auto", 60.0)
    assert (spec.infer.backend, spec.infer.devices) == (Backend("auto"), "auto")
    assert (spec.infer.instances, spec.infer.timeout, spec.infer.gears) == ("auto", None, ())
    assert (spec.infer.precision, spec.infer.nan) == ("auto", "fail")
    assert (spec.post.stream_count, spec.post.timeout) == ("auto", 60.0)


def test_the_key_pipeline_may_be_left_out() -> None:
    indented = "".join(f"  {line}\n" for line in BARE.splitlines())

    assert loads(f"pipeline:\n{indented}") == loads(BARE)


def test_stages_may_have_other_names_with_a_role() -> None:
    spec = loads("stages: [{name: a, role: pre}, {name: b, role: infer}, {name: c-1, role: post}]")

    assert [stage.role for stage in spec.stages] == ["pre", "infer", "post"]
    assert spec.stage("b") is spec.infer
    with pytest.raises(KeyError):
        spec.stage("d")


def test_values_with_units_and_short_forms_are_understood() -> None:
    spec = loads(
        "depth: 3\nmax_wait: 5ms\non_error: fail\nmax_failures: 1%\n"
        + infer("devices: 1\n    gears: [8, 1, 4]\n    backend: {onnxruntime: {graph: all}}")
    )

    assert (spec.depth, spec.max_wait, spec.on_error) == (3, 0.005, "fail")
    assert spec.max_failures == FailureLimit(percent=1.0)
    assert (spec.infer.devices, spec.infer.gears) == ((1,), (1, 4, 8))
    assert spec.infer.backend == Backend("onnxruntime", {"graph": "all"})


def test_a_key_without_a_value_counts_as_left_out() -> None:
    assert loads("sink:\ndepth:\n" + pre("ops:")) == loads(BARE)


def test_keys_that_begin_with_x_hold_anchors() -> None:
    text = (
        "x-all: &all {timeout: 5s}\npipeline:\n  x-more: 1\n  stages:\n"
        "    - {<<: *all, name: preprocess}\n    - {name: inference}\n    - {name: postprocess}\n"
    )

    assert loads(text).pre.timeout == 5.0


def test_a_specification_is_frozen() -> None:
    spec = loads(BARE)

    with pytest.raises(ValueError, match="frozen"):
        spec.depth = 3


@pytest.mark.usefixtures("made_up")
def test_operators_become_instances_of_their_classes() -> None:
    spec = loads(
        "stages:\n  - name: preprocess\n    ops:\n"
        "      - blur: {radius: 1, size: [3, 5], mask: m.png}\n"
        "      - cut: 0.25\n      - cut\n      - cut:\n      - words: one\n      - words: [a, b]\n"
        "  - name: inference\n  - name: postprocess\n    ops: [rank, {cut: {names: [x]}}]\n"
    )
    blur, quarter, half, empty, one, two = spec.pre.ops
    rank, named = spec.post.ops

    assert (blur.radius, blur.size, blur.mode, blur.mask) == (1.0, (3, 5), "edge", Path("m.png"))
    assert (quarter.at, half.at, empty.at) == (0.25, 0.5, 0.5)
    assert (one.words, two.words) == (("one",), ("a", "b"))
    assert (type(rank).__name__, named.names) == ("Rank", ("x",))


@pytest.mark.parametrize("text", ["photos", "[photos]", "{images: photos}", "{images: {paths: [photos]}}"])  # fmt: skip
def test_a_source_is_a_path_a_list_or_named(text) -> None:
    assert loads(f"source: {text}\n" + BARE).source.paths == ("photos",)


@pytest.mark.parametrize("text", ["o/r.jsonl", "o/r.JSONL", "{jsonl: o/r.jsonl}", "{jsonl: {path: o/r.jsonl}}"])  # fmt: skip
def test_a_sink_is_a_path_with_a_known_ending_or_named(text) -> None:
    sink = loads(f"sink: {text}\n" + BARE).sink

    assert (type(sink).__name__, str(sink.path).lower()) == ("JsonlSink", "o/r.jsonl")


@pytest.mark.usefixtures("made_up")
def test_all_problems_are_told_at_once_in_the_order_of_their_lines() -> None:
    text = """\
pipeline:
  naem: x
  depth: 0
  stages:
    - name: preprocess
      bacth_size: 8
      threads: eight
      ops:
        - blur: {radius: 1, sise: 3}
        - blurr: {radius: 1}
    - name: inference
      timeout: 1:30
      nan: fial
    - name: postprocess
      stream_count: 2.0
      ops:
        - blur: {radius: 1}
  depth: 3
  on_error: off
"""

    assert refusal(text, "preproces.threads=1", "postprocess.timeout=0") == [
        "f.yaml:2: naem: unknown key 'naem'; did you mean 'name'?",
        "f.yaml:3: depth: expected a whole number of at least 1, got 0",
        "f.yaml:6: stages.preprocess.bacth_size: unknown key 'bacth_size'; did you mean 'batch_size'?",
        "f.yaml:7: stages.preprocess.threads: expected a whole number of at least 1, or auto, got 'eight'",
        "f.yaml:9: stages.preprocess.ops[0].blur.sise: unknown key 'sise'; did you mean 'size'?",
        "f.yaml:10: stages.preprocess.ops[1].blurr: unknown operator 'blurr'; did you mean 'blur'?",
        "f.yaml:12: stages.inference.timeout: expected a duration such as 50ms, 1.5s, 2m or 1h (a plain number is seconds), got '1:30'",
        "f.yaml:13: stages.inference.nan: expected one of fail, keep, warn, got 'fial'; did you mean 'fail'?",
        "f.yaml:15: stages.postprocess.stream_count: expected a whole number of at least 1, or auto, got 2.0",
        "f.yaml:17: stages.postprocess.ops[0].blur: 'blur' is an operator for pre stages; this is a post stage",
        "f.yaml:18: depth: the key is written twice, first on line 3",
        "f.yaml:19: on_error: expected one of skip, fail, got 'off'",
        "--set preproces.threads=1: unknown stage or key 'preproces'; did you mean 'preprocess'?",
        "--set postprocess.timeout=0: expected a duration of more than 0; leave the key out for the default",
    ]


KNOWN = "known: depth, max_failures, max_wait, name, on_error, profile, sink, source, stages"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a\n", "f.yaml:1: expected a mapping with the key stages, got a list"),
        ("stages\n", "f.yaml:1: expected a mapping with the key stages, got 'stages'"),
        ("pipeline:\n", "f.yaml:1: expected a mapping with the key stages, got nothing"),
        ("{}", "f.yaml:1: stages: missing key"),
        ("pipeline:\n  depth: 2\n", "f.yaml:2: stages: missing key"),
        ("stages:\n", "f.yaml:1: stages: has no value"),
        ("stages: 3\n", "f.yaml:1: stages: expected a list of stages, each with - name: …, got 3"),
        ("name: 5\n" + BARE, "f.yaml:1: name: expected text, got 5"),
        ("name: ''\n" + BARE, "f.yaml:1: name: expected text of 1 or more characters, got ''"),
        ("origin: x\n" + BARE, f"f.yaml:1: origin: unknown key 'origin'; {KNOWN}"),
        ("depth: '2'\n" + BARE, "f.yaml:1: depth: expected a whole number of at least 1, got '2'"),
        ("depth: true\n" + BARE, "f.yaml:1: depth: expected a whole number of at least 1, got true"),
        ("max_failures: 101%\n" + BARE, "f.yaml:1: max_failures: expected a number of items such as 100, or a share of them such as 1%, got '101%'"),
        ("max_wait: yes\n" + BARE, "f.yaml:1: max_wait: expected a duration such as 50ms, 1.5s, 2m or 1h (a plain number is seconds), got 'yes'"),
        (pre("devices: 0"), "f.yaml:3: stages.preprocess.devices: 'devices' is a key of infer stages; this is a pre stage"),
        (pre("stream_count: 2"), "f.yaml:3: stages.preprocess.stream_count: 'stream_count' is a key of mid and post stages; this is a pre stage"),
        (pre("role: post"), "f.yaml:3: stages.preprocess.role: the name 'preprocess' means the role pre, got 'post'"),
        (pre("ops: {}"), "f.yaml:3: stages.preprocess.ops: expected a list of operators, each after a -, got a mapping"),
        (infer("model: 3"), "f.yaml:4: stages.inference.model: expected a path, got 3"),
        (infer("model: ''"), "f.yaml:4: stages.inference.model: expected a path, got ''"),
        (infer("devices: []"), "f.yaml:4: stages.inference.devices: expected device numbers such as [0, 1], or auto, got an empty list"),
        (infer("devices: [0, -1]"), "f.yaml:4: stages.inference.devices: expected device numbers such as [0, 1], or auto, got -1 among them"),
        (infer("devices: all"), "f.yaml:4: stages.inference.devices: expected device numbers such as [0, 1], or auto, got 'all'"),
        (infer("devices: [0, 0]"), "f.yaml:4: stages.inference.devices: 0 is listed twice"),
        (infer("gears: [1, 0]"), "f.yaml:4: stages.inference.gears: expected batch sizes such as [1, 4, 8], got 0 among them"),
        (infer("backend: onxruntime"), "f.yaml:4: stages.inference.backend: unknown engine 'onxruntime'; did you mean 'onnxruntime'?"),
        (infer("backend: {onnxruntime: 3}"), "f.yaml:4: stages.inference.backend.onnxruntime: expected a mapping of options, got 3"),
        (infer("backend: [a]"), "f.yaml:4: stages.inference.backend: expected the name of an engine or a mapping of its name, got a list"),
        (infer("precision: fp8"), "f.yaml:4: stages.inference.precision: expected one of auto, fp32, fp16, got 'fp8'"),
        ("source: 3\n" + BARE, "f.yaml:1: source: expected a path, a list of paths, or a mapping such as {images: photos/}, got 3"),
        ("source: [a, 3]\n" + BARE, "f.yaml:1: source: expected a path, a list of paths, or a mapping such as {images: photos/}, got a list"),
        ("source: {image: a}\n" + BARE, "f.yaml:1: source.image: unknown source 'image'; did you mean 'images'?"),
        ("source: {images: a, npy: b}\n" + BARE, "f.yaml:1: source: expected one source, got 2: images, npy; indent its parameters below its name"),
        ("sink: 4\n" + BARE, "f.yaml:1: sink: expected a path such as out/results.jsonl, or a mapping such as {jsonl: out/results.jsonl}, got 4"),
        ("sink: o.txt\n" + BARE, "f.yaml:1: sink: 'o.txt' ends in none of .csv, .jsonl, .npy, .parquet; write one of them, or {name: path} for another file name"),
        ("sink: {josnl: b}\n" + BARE, "f.yaml:1: sink.josnl: unknown sink 'josnl'; did you mean 'jsonl'?"),
        ("sink: {jsonl: {}}\n" + BARE, "f.yaml:1: sink.jsonl.path: missing key"),
        (op("{}"), "f.yaml:4: stages.preprocess.ops[0]: expected the name of an operator or a mapping of its name, got a mapping"),
        (op("3"), "f.yaml:4: stages.preprocess.ops[0]: expected the name of an operator or a mapping of its name, got 3"),
        (op("{cut: 1, blur: 2}"), "f.yaml:4: stages.preprocess.ops[0]: expected one operator, got 2: cut, blur; indent its parameters below its name"),
        (op("blur"), "f.yaml:4: stages.preprocess.ops[0].blur.radius: missing key"),
        (op("blur: 3"), "f.yaml:4: stages.preprocess.ops[0].blur: expected a mapping of parameters such as {blur: {radius: …}}, got 3"),
        (op("blur: {radius: '1'}"), "f.yaml:4: stages.preprocess.ops[0].blur.radius: expected a number, got '1'"),
        (op("blur: {radius: -1}"), "f.yaml:4: stages.preprocess.ops[0].blur: radius is -1.0; expected more than 0"),
        (op("blur: {radius: 1, size: x}"), "f.yaml:4: stages.preprocess.ops[0].blur.size: expected a list or an integer, got 'x'"),
        (op("blur: {radius: 1, size: [3, true]}"), "f.yaml:4: stages.preprocess.ops[0].blur.size[1]: expected an integer, got true"),
        (op("blur: {radius: 1, size: [3]}"), "f.yaml:4: stages.preprocess.ops[0].blur.size: expected 2 values, got 1"),
        (op("blur: {radius: 1, size: [3, 4, 5]}"), "f.yaml:4: stages.preprocess.ops[0].blur.size: expected at most 2 values, got 3"),
        (op("blur: {radius: 1, mode: egde}"), "f.yaml:4: stages.preprocess.ops[0].blur.mode: expected one of edge, wrap, got 'egde'; did you mean 'edge'?"),
        (op("cut: high"), "f.yaml:4: stages.preprocess.ops[0].cut: expected a number, got 'high'"),
        (op("rank"), "f.yaml:4: stages.preprocess.ops[0].rank: 'rank' is an operator for post stages; this is a pre stage"),
        (op("broken"), "f.yaml:4: stages.preprocess.ops[0].broken: ops: 'broken' (spec_test_plugins_that_are_not_there:Broken) does not import: No module named 'spec_test_plugins_that_are_not_there'"),
        ("pipeline: {stages: []}\nstages: []\n", "f.yaml:2: stages: stands beside 'pipeline'; expected below it"),
        ("x: !!python/name:os.system\n" + BARE, "f.yaml:1: the tag !!python/name:os.system is refused: a pipeline file holds plain data"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("made_up")
def test_each_mistake_has_a_message_in_plain_words(text, message) -> None:
    assert message in refusal(text)


@pytest.mark.usefixtures("made_up")
def test_a_class_that_cannot_be_validated_is_blamed() -> None:
    (line,) = refusal(op("odd"))

    assert line.startswith(
        "f.yaml:4: stages.preprocess.ops[0].odd: 'odd' does not declare its parameters as a "
        "dataclass can: "
    )


@pytest.mark.parametrize(
    ("stages", "messages"),
    [
        ("[]", ["stages: expected stages with the roles pre, infer, post in this order, and mid, infer for each further model before post, got none"]),
        ("[{name: inference}, {name: preprocess}, {name: postprocess}]", ["stages: expected stages with the roles pre, infer, post in this order, and mid, infer for each further model before post, got infer, pre, post"]),
        ("[{name: a, role: pre}, {name: a, role: infer}, {name: c, role: post}]", ["stages.a.name: two stages are called 'a'"]),
        ("[{name: a}, {}, 3, {name: x, role: prep}]", ["stages.a.name: the name 'a' does not say what the stage does; add role: pre, infer, mid or post", "stages[1].name: missing key", "stages[2]: expected a mapping with the key name, got 3", "stages.x.role: expected one of pre, infer, mid, post, got 'prep'"]),
        ("[{name: a b, role: pre}, {name: depth, role: infer}, {name: 7, role: post}]", ["stages.a b.name: expected a name of letters, digits, _ and -, got 'a b'", "stages.depth.name: a stage cannot be called 'depth': that is a key of the pipeline", "stages[2].name: expected text, got 7"]),
    ],
)  # fmt: skip
def test_stages_are_named_and_stand_in_the_order_of_the_data(stages, messages) -> None:
    assert refusal(f"stages: {stages}") == [f"f.yaml:1: {message}" for message in messages]


@pytest.mark.usefixtures("made_up")
def test_a_problem_of_a_block_stands_on_the_line_of_its_key() -> None:
    text = pre("ops:\n      - blurr:\n          radius: 1\n      - blur:\n          size: 3")

    assert refusal(text) == [
        "f.yaml:4: stages.preprocess.ops[0].blurr: unknown operator 'blurr'; did you mean 'blur'?",
        "f.yaml:6: stages.preprocess.ops[1].blur.radius: missing key",
    ]


def test_a_file_is_read_with_its_origin(tmp_path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(SHORT)

    assert load(file).origin == file
    assert load(str(file), ["depth=5"]).depth == 5


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "{}: there is no such file"),
        (b"a: 1\nb: \xff\n", "{}:2: byte 0xff is not UTF-8; save the file in UTF-8"),
        (b"", "{}:1: the file is empty; expected a mapping with the key stages"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, content, message) -> None:
    file = tmp_path / "p.yaml"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(ConfigError) as caught:
        load(file)

    assert str(caught.value) == message.format(file)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", ["detect-video", "detect-video.yaml"])
def test_a_ready_pipeline_that_is_no_file_yet_is_hinted_at(tmp_path, name) -> None:
    with pytest.raises(ConfigError, match=r"no such file; `gepipe init detect-video` writes"):
        load(tmp_path / name)


def test_a_folder_is_no_pipeline_file(tmp_path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path)

    assert str(caught.value) == f"{tmp_path}: is a folder; expected a pipeline file (YAML)"


@pytest.mark.parametrize("number", [".nan", ".inf", "-.inf"])
@pytest.mark.parametrize(
    ("ops", "key"),
    [
        ("{normalize: {scale: NUMBER}}", "normalize.scale"),
        ("{normalize: {mean: [0.5, NUMBER, 1], std: [1, 1, 1]}}", r"normalize.mean\[1\]"),
        ("{normalize: {std: NUMBER}}", "normalize.std"),
    ],
)
def test_a_number_that_is_not_finite_is_refused(tmp_path, ops, key, number):
    path = tmp_path / "x.yaml"
    path.write_text(
        "stages:\n"
        f"  - {{name: preprocess, ops: [{ops.replace('NUMBER', number)}]}}\n"
        "  - {name: inference, model: m.onnx}\n"
        "  - {name: postprocess, ops: [identity]}\n"
    )

    with pytest.raises(ConfigError, match=rf"{key}: expected a finite number, got"):
        load(path)


@pytest.mark.parametrize(("size", "got"), [("[5]", 1), ("[]", 0)])
def test_a_list_that_is_too_short_says_how_many_are_wanted(tmp_path, size, got):
    path = tmp_path / "x.yaml"
    path.write_text(
        "stages:\n"
        f"  - {{name: preprocess, ops: [{{resize: {{size: {size}}}}}]}}\n"
        "  - {name: inference, model: m.onnx}\n"
        "  - {name: postprocess, ops: [identity]}\n"
    )

    with pytest.raises(ConfigError, match=f"expected 2 values, got {got}") as caught:
        load(path)

    assert str(caught.value).count("expected") == 1
