# ruff: noqa: E501 - tables of texts
from __future__ import annotations

from pathlib import Path

import pytest

from gepipe.errors import ConfigError
from gepipe.triton.lint import Report, lint
from gepipe.triton.mending import mend
from gepipe.triton.problem import ModelFile
from tests.unit.triton.lint_table import GE, GE_ONE, GOOD, IN, ONE, PYTHON, QUEUE, A, X, Y
from tests.unit.triton.test_lint_table import write

NPU = """\
backend: "npu_ge"
max_batch_size: 4
input [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 4 ] } ]
instance_group [ { count: 2 kind: KIND_CPU } ]
dynamic_batching { preferred_batch_size: [ 2, 4 ] }
parameters [
  { key: "device_ids" value: { string_value: "0" } },
  { key: "session.ge.exec.precision_mode_v2" value: { string_value: "fp16" } }
]
"""


PYTHON_BACKEND = {
    "python/libtriton_python.so": "",
    "python/triton_python_backend_stub": "",
    "python/triton_python_backend_utils.py": "",
}


def found(folder: Path, config: str, files: dict[str, str], model: str = "m") -> list[str]:
    write(folder / model, {"config.pbtxt": config, **files})
    return [f"{p.level}: {p}".replace(f"{folder}/", "") for p in lint(folder).problems]


def mended(folder: Path, config: str, describe: object = None) -> str:
    write(folder / "m", {"config.pbtxt": config})
    mend(lint(folder, describe=describe))  # type: ignore[arg-type]
    return (folder / "m" / "config.pbtxt").read_text(encoding="utf-8")


def test_the_articles_dialect_becomes_what_the_server_takes(tmp_path: Path) -> None:
    article = """\
# ResNet-50 on two cards
name: "resnet50"
platform: "ge_backend"   # CANN
max_batch_size: 16
input [
  {
    name: "x"
    data_type: FP32      # normalised
    shape: [ 3, 224, 224 ],
  },
]
output [ { name: "y", data_type: "TYPE_FLOAT", dims: [ 1000 ] } ]
instance_group [ { count: 1, kind: KIND_NPU, device: 1 } ]
dynamic_batching { max_queue_delay_ms: 5, preferred_batch_size: [ 8, 32 ] }
backend_parameters {
  precision: "fp16"      # or origin
  threads: 2
}
"""
    write(tmp_path / "m", {"1/model": "IMOD"})

    assert (
        mended(tmp_path, article, lambda _: ModelFile("om", "this is an .om model"))
        == """\
# ResNet-50 on two cards
backend: "ge"   # CANN
max_batch_size: 16
input [
  {
    name: "x"
    data_type: TYPE_FP32      # normalised
    dims: [ 3, 224, 224 ],
  }
]
output [ { name: "y", data_type: TYPE_FP32, dims: [ 1000 ] } ]
instance_group [ { count: 1, kind: KIND_MODEL, } ]
dynamic_batching { max_queue_delay_microseconds: 5000, preferred_batch_size: [ 8, 16 ] }
parameters [
  { key: "precision" value: { string_value: "fp16" } },      # or origin
  { key: "threads" value: { string_value: "2" } }
]
parameters { key: "device_ids" value: { string_value: "1" } }
"""
    )
    assert (tmp_path / "m/1/model.om").read_text() == "IMOD"


def test_lines_are_those_of_the_file_before_it_is_fixed(tmp_path: Path) -> None:
    config = (
        'name: "other"\nplatform: "ge_backend"\n' + GE + "instance_group [ { kind: KIND_NPU } ]\n"
    )
    write(tmp_path / "m", {"config.pbtxt": config, "1/model.om": "IMOD"})

    lines = [(problem.line, problem.column) for problem in lint(tmp_path).problems]

    assert lines == [(1, 1), (2, 1), (7, 26)]


def test_fixing_keeps_mode_and_link_and_touches_nothing_else(tmp_path: Path) -> None:
    real = write(tmp_path / "shared", {"c": GOOD.replace("TYPE_FP32", "FP32")}) / "c"
    real.chmod(0o640)
    models = write(
        tmp_path / "models",
        {"m/1/model.py": PYTHON, "n/1/model.py": PYTHON, "n/config.pbtxt": GOOD},
    )
    (models / "m/config.pbtxt").symlink_to(real)
    before = (models / "n/config.pbtxt").stat().st_mtime_ns

    mend(lint(models))

    assert real.read_text() == GOOD
    assert real.stat().st_mode & 0o777 == 0o640
    assert (models / "m/config.pbtxt").is_symlink()
    assert (models / "n/config.pbtxt").stat().st_mtime_ns == before
    assert sorted(path.name for path in (models / "m").iterdir()) == ["1", "config.pbtxt"]


def test_bytes_that_are_no_text_stay(tmp_path: Path) -> None:
    folder = write(tmp_path, {"m/1/model.py": PYTHON}) / "m"
    (folder / "config.pbtxt").write_bytes(
        b"# caf\xe9\r\n" + GOOD.replace("TYPE_FP32", "FP32").encode()
    )

    mend(lint(tmp_path))

    assert (folder / "config.pbtxt").read_bytes() == b"# caf\xe9\r\n" + GOOD.encode()


@pytest.mark.parametrize(
    ("change", "files", "problem"),
    [
        (("", ""), {"1/model.om": ""}, "error: m: there is no .onnx or .pb in it"),
        (("", ""), {"1/a.onnx": "", "2/b.onnx": ""}, "error: m: 1/a.onnx, 2/b.onnx: npu_ge takes the first"),
        (("", ""), {"1/.keep": "", "model.onnx": ""}, "warning: m/model.onnx: lies outside the folders"),
        (("{ preferred_batch_size: [ 2, 4 ] }", "{ }"), {}, "warning: m/config.pbtxt:6: dynamic_batching: names no"),
        (('"x" data_type: TYPE_FP32', '"x" data_type: TYPE_FP64'), {}, "error: m/config.pbtxt:3: input[0].data_type: is FP64"),
        (("device_ids", "device"), {}, "warning: m/config.pbtxt:1: parameters: device_ids is missing"),
        (("session.ge.exec.precision_mode_v2", "session.x"), {}, "warning: m/config.pbtxt:1: parameters: session.ge.exec"),
        (("session.ge.exec.precision_mode_v2", "ge.aicoreNum"), {}, "warning: m/config.pbtxt:9: parameters: ge.aicoreNum is not read"),
        (('{ key: "device_ids"', '{ key: "static_model" value: { string_value: "1" } }, { key: "device_ids"'), {},
         "warning: m/config.pbtxt:8: parameters: static_model with max_batch_size 4 runs"),
        (('{ key: "device_ids"', '{ key: "device_exec_blocks" value: { string_value: "12" } }, { key: "device_ids"'), {},
         "warning: m/config.pbtxt:8: parameters: device_exec_blocks is 12"),
        (('{ key: "device_ids"', '{ key: "graph.ge.dynamicDims" value: { string_value: "1;2;4" } }, { key: "device_ids"'), {},
         "warning: m/config.pbtxt:8: parameters: graph.ge.dynamicDims has no gear for a batch of 3"),
        (("KIND_CPU", "KIND_GPU"), {}, "error: m/config.pbtxt:5: instance_group[0].kind: is KIND_GPU"),
    ],
)  # fmt: skip
def test_traps_of_npu_ge(
    tmp_path: Path, change: tuple[str, str], files: dict[str, str], problem: str
) -> None:
    assert found(tmp_path / "good", NPU, {"1/model.onnx": ""}) == []
    assert change[0] in NPU

    said = found(tmp_path / "bad", NPU.replace(*change), files or {"1/model.onnx": ""})

    assert any(each.startswith(problem) for each in said), said


def test_npu_ge_gets_a_preferred_size(tmp_path: Path) -> None:
    config = NPU.replace(
        "{ preferred_batch_size: [ 2, 4 ] }", "{ max_queue_delay_microseconds: 1 }"
    )
    write(tmp_path / "m", {"1/model.onnx": ""})

    assert mended(tmp_path, config) == NPU.replace(
        "{ preferred_batch_size: [ 2, 4 ] }",
        "{ preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 1 }",
    )


def describing(**sides: tuple[tuple[str, str, tuple[int | str, ...]], ...]) -> object:
    return lambda _: ModelFile(
        "om", "this is an .om model", sides.get("inputs"), sides.get("outputs")
    )


def ge(folder: Path, config: str, describe: object) -> Report:
    write(folder / "m", {"config.pbtxt": config + GE_ONE, "1/model.om": "IMOD"})
    return lint(folder, describe=describe)  # type: ignore[arg-type]


def test_the_batch_in_dims_is_taken_out_where_the_model_shows_it(tmp_path: Path) -> None:
    config = GE.replace("dims: [ 4 ]", "dims: [ -1, 4 ]")
    describe = describing(
        inputs=(("x", "float32", ("n", 4)),), outputs=(("y", "float32", (-1, 4)),)
    )

    report = ge(tmp_path, config, describe)
    assert [str(problem).split("config.pbtxt")[1] for problem in report.problems] == [
        (":3: input[0].dims: [-1, 4] is not what the model's 'x' has, ['n', 4]; expected [4], without the "
        "batch, which max_batch_size stands for"),
        (":4: output[0].dims: [-1, 4] is not what the model's 'y' has, [-1, 4]; expected [4], without the "
        "batch, which max_batch_size stands for"),
    ]  # fmt: skip
    mend(report)
    assert (tmp_path / "m/config.pbtxt").read_text() == GE + GE_ONE
    assert ge(tmp_path, GE, describe).problems == ()


def test_a_row_of_a_single_number_has_dims_of_one(tmp_path: Path) -> None:
    for shape in (("n",), (4,)):
        describe = describing(
            inputs=(("x", "float32", ("n", 4)),), outputs=(("y", "float32", shape),)
        )

        assert (
            ge(
                tmp_path,
                GE.replace(
                    '"y" data_type: TYPE_FP32 dims: [ 4 ]', '"y" data_type: TYPE_FP32 dims: [ 1 ]'
                ),
                describe,
            ).problems
            == ()
        )


def test_names_and_types_are_those_of_the_model(tmp_path: Path) -> None:
    describe = describing(inputs=(("image", "uint8", (1, 4)),), outputs=(("y", "float16", (1, 4)),))

    report = ge(tmp_path, GE, describe)

    assert [problem.text.partition(";")[0] for problem in report.problems] == [
        "the model has no input 'x'", "is FP32, but the model's 'y' is float16",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "row", "config", "found"),
    [
        ("uint8", (2, 3), "TYPE_STRING dims: [ 1 ]", []),
        ("int8", (6,), "TYPE_STRING dims: [ 1 ]", []),
        ("uint8", (6,), "TYPE_STRING dims: [ 6 ]", ["is [6] of STRING, but the model's 'x' is uint8"]),
        ("uint8", ("h", 3), "TYPE_STRING dims: [ 1 ]", ["whose rows have no fixed size"]),
        ("float32", (1,), "TYPE_STRING dims: [ 1 ]", ["is STRING, but the model's 'x' is float32"]),
        ("string", (2,), "TYPE_STRING dims: [ 2 ]", []),
        ("string", (), "TYPE_STRING dims: [ 1 ]", []),
        ("string", (2,), "TYPE_STRING dims: [ 1 ]", ["[1] is not what the model's 'x' has"]),
        ("string", (2,), "TYPE_FP32 dims: [ 2 ]", ["is string; expected TYPE_STRING"]),
    ],
)  # fmt: skip
def test_strings_and_bytes_are_what_the_backend_takes(tmp_path, dtype, row, config, found) -> None:
    text = GE.replace(X, f'input [ {{ name: "x" data_type: {config} }} ]\n')
    shape = (-1, *row)
    describe = describing(inputs=(("x", dtype, shape),), outputs=(("y", "float32", (-1, 4)),))

    problems = [str(problem) for problem in ge(tmp_path, text, describe).problems]

    assert len(problems) == len(found), problems
    assert all(text in problem for text, problem in zip(found, problems, strict=True)), problems


def test_an_onnx_where_om_belongs_is_named_as_people_search_for_it(tmp_path: Path) -> None:
    report = ge(tmp_path, GE, lambda _: ModelFile("onnx", "this is ONNX"))

    assert [str(problem) for problem in report.problems] == [
        (f"{tmp_path}/m/1/model.om: model file is not .om format: this is ONNX; expected .om; convert with "
        f"`gepipe model convert {tmp_path}/m/1/model.onnx`, or run it on the CPU with "
        'parameters { key: "engine" value: { string_value: "onnxruntime" } }')
    ]  # fmt: skip
    engine = 'parameters { key: "engine" value: { string_value: "onnxruntime" } }\n'
    assert ge(tmp_path, engine + GE, lambda _: ModelFile("onnx", "this is ONNX")).problems == ()
    assert len(ge(tmp_path, engine + GE, lambda _: ModelFile("om", "this is .om")).problems) == 1


def test_backends_that_the_server_has(tmp_path: Path) -> None:
    backends = write(
        tmp_path / "backends", {"mine/libtriton_mine.so": "", "ge/model.py": "", **PYTHON_BACKEND}
    )
    models = tmp_path / "models"
    write(models / "a", {"config.pbtxt": GOOD.replace('"python"', '"mine"'), "1/x": ""})
    write(models / "b", {"config.pbtxt": GOOD.replace('"python"', '"onnxruntime"'), "1/x": ""})
    write(
        models / "c", {"config.pbtxt": GOOD.replace('"python"', '"own"'), "1/libtriton_own.so": ""}
    )

    said = [str(problem) for problem in lint(models, backends=backends).problems]

    assert len(said) == 1
    assert said[0].startswith(
        f"{models}/b/config.pbtxt:1: backend: the server has no backend 'onnxruntime'"
    )
    assert said[0].endswith("expected one of ge, mine, python")


@pytest.mark.parametrize("missing", PYTHON_BACKEND)
@pytest.mark.parametrize(("config", "file"), [(GOOD, "1/model.py"), (GE + GE_ONE, "1/model.om")])
def test_a_server_that_cannot_start_python(
    tmp_path: Path, missing: str, config: str, file: str
) -> None:
    backends = write(tmp_path / "backends", PYTHON_BACKEND | {"ge/model.py": ""})
    models = write(tmp_path / "models", {"m/config.pbtxt": config, f"m/{file}": PYTHON})
    assert lint(models, backends=backends).problems == ()

    (backends / missing).unlink()

    if (missing, config) == ("python/libtriton_python.so", GOOD):
        expected = "the server has no backend 'python'"
    else:
        expected = f"{tmp_path}/backends/python has no {missing.removeprefix('python/')}"
    (problem,) = lint(models, backends=backends).problems
    assert problem.level == "error"
    assert expected in problem.text


@pytest.mark.parametrize(
    ("config", "outputs", "problem"),
    [
        (NPU, (("y", "float32", ("n", 4)),), ""),
        (NPU, (("y", "float32", ("n", -1)),), "m/1/model.onnx: an extent of the output 'y' varies and has no name"),
        (NPU.replace("output [", "# [").replace("] } ]\ninst", "] } ]\ninst"), (("y", "float16", ("n", 4)),),
         "output: is missing, and npu_ge does not complete 'y' of float16"),
    ],
)  # fmt: skip
def test_what_npu_ge_does_not_take_of_a_model(
    tmp_path: Path,
    config: str,
    outputs: tuple[tuple[str, str, tuple[int | str, ...]], ...],
    problem: str,
) -> None:
    write(tmp_path / "m", {"config.pbtxt": config, "1/model.onnx": ""})
    inputs = (("x", "float32", ("n", 4)),)

    report = lint(tmp_path, describe=lambda _: ModelFile("onnx", "this is ONNX", inputs, outputs))

    errors = [str(each) for each in report.problems if each.level == "error"]
    assert len(errors) == bool(problem)
    assert all(problem in each for each in errors)


DENSENET = """\
name: "densenet_onnx"
platform: "onnxruntime_onnx"
max_batch_size : 0
input [
  {
    name: "data_0"
    data_type: TYPE_FP32
    format: FORMAT_NCHW
    dims: [ 3, 224, 224 ]
    reshape { shape: [ 1, 3, 224, 224 ] }
  }
]
output [
  {
    name: "fc6_1"
    data_type: TYPE_FP32
    dims: [ 1000 ]
    reshape { shape: [ 1, 1000, 1, 1 ] }
    label_filename: "densenet_labels.txt"
  }
]
"""
SEQUENCE = """\
name: "simple_sequence"
backend: "custom"
max_batch_size: 8
sequence_batching {
  max_sequence_idle_microseconds: 5000000
  control_input [
    { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
    { name: "CORRID" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] }
  ]
}
input { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] }
instance_group [ { count: 2 kind: KIND_CPU } ]
"""
ADD_SUB = """\
name: "add_sub"
backend: "python"

input [
  { name: "INPUT0"
    data_type: TYPE_FP32
    dims: [ 4 ]
  }
]
input [
  { name: "INPUT1" data_type: TYPE_FP32 dims: [ 4 ] }
]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 4 ] } ]

instance_group [{ kind: KIND_CPU }]
"""
COMPLETING = (
    PYTHON + "\n    @staticmethod\n    def auto_complete_config(config):\n        return config\n"
)


@pytest.mark.parametrize(
    ("name", "files", "warnings"),
    [
        ("densenet_onnx", {"config.pbtxt": DENSENET, "densenet_labels.txt": "", "1/model.onnx": ""}, 2),
        ("simple_sequence", {"config.pbtxt": SEQUENCE, "1/libtriton_custom.so": ""}, 0),
        ("add_sub", {"config.pbtxt": ADD_SUB, "1/model.py": PYTHON}, 1),
        ("no_config", {"1/model.py": COMPLETING}, 4),
        ("renamed", {"config.pbtxt": GOOD + 'default_model_filename: "own.py"\n', "1/own.py": PYTHON}, 0),
        ("imported", {"config.pbtxt": GOOD, "1/model.py": "from x import Y as TritonPythonModel\n"}, 0),
        ("derived", {"config.pbtxt": GOOD, "1/model.py": "import b\nclass TritonPythonModel(b.Y):\n    pass\n"}, 0),
        ("annotated", {"config.pbtxt": GOOD, "1/model.py": "from __future__ import annotations\n" + PYTHON
                       + "\n\ndef f(t: pb_utils.Tensor = None):\n    return pb_utils.Tensor\n"}, 0),
        ("versions", {"config.pbtxt": GOOD + "version_policy { all { } }\n", "1/model.py": PYTHON,
                      "3/model.py": PYTHON, "notes/x": "", "1/old/x": ""}, 0),
        ("warm", {"config.pbtxt": GOOD + 'model_warmup { name: "w" batch_size: 1 inputs { key: "x" value '
                  "{ data_type: TYPE_FP32 dims: 4 random_data: true } } }\n", "1/model.py": PYTHON}, 0),
        ("numbers", {"config.pbtxt": GOOD.replace("TYPE_FP32", "11").replace("KIND_CPU", "2"),
                     "1/model.py": PYTHON}, 0),
        ("crlf", {"config.pbtxt": GOOD.replace("\n", "\r\n"), "1/model.py": PYTHON}, 0),
        ("bytes", {"config.pbtxt": f'backend: "python"\nmax_batch_size: 1\n{IN}{A}{ONE}{QUEUE}',
                   "1/model.py": PYTHON}, 0),
        ("flat", {"config.pbtxt": f'backend: "python"\nmax_batch_size: 0\n{X}{Y}{ONE}'.replace("4", "-1, 3, 8, 8"),
                  "1/model.py": PYTHON}, 0),
        ("decoupled", {"config.pbtxt": GOOD + "model_transaction_policy { decoupled: True }\n",
                       "1/model.py": PYTHON, "config.pbtxt.orig": "x", "client.py": "x"}, 0),
    ],
)  # fmt: skip
def test_sound_models_raise_no_alarm(
    tmp_path: Path, name: str, files: dict[str, str], warnings: int
) -> None:
    write(tmp_path / name, files)

    problems = lint(tmp_path).problems

    assert [str(problem) for problem in problems if problem.level == "error"] == []
    assert len(problems) == warnings, problems


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "there is no model in it; expected a folder with a folder for each model"),
        ({"config.pbtxt": GOOD, "1/model.py": ""}, "this is the folder of one model; expected a model repository"),
    ],
)  # fmt: skip
def test_what_is_no_repository(tmp_path: Path, files: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        lint(write(tmp_path, files))


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file or directory; expected a model repository"):
        lint(tmp_path / "none")


def test_a_configuration_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "m" / "config.pbtxt").mkdir(parents=True)
    (tmp_path / "n" / "1").mkdir(parents=True)
    (tmp_path / "n" / "config.pbtxt").write_bytes(b"#" * (5 << 20))

    said = [str(problem) for problem in lint(tmp_path).problems]

    assert (
        f"{tmp_path}/n/config.pbtxt: cannot be read: larger than 4,194,304 bytes; expected a text file"
        in said
    )


def test_a_space_in_the_path(tmp_path: Path) -> None:
    (said,) = found(tmp_path / "my models", GOOD, {"1/model.py": PYTHON})
    (worse,) = found(tmp_path / "models", GOOD, {"1/model.py": PYTHON}, "my model")

    assert said.startswith("warning: m: there is a space in its path")
    assert worse.startswith("error: my model: the server breaks off on the space in its name")


def test_a_text_in_which_each_repair_brings_up_the_next_is_left_alone(tmp_path: Path) -> None:
    broken = GOOD.replace("dims: [ 4 ] } ]\noutput", "dims: [ 4 ] }TYPE_FP32 ]\noutput").replace(
        "dims: [ 4 ] } ]\ninstance_group [", 'dims: [ "4 ] } ]\ninstance_group [ name: "other"'
    )
    write(
        tmp_path / "sound", {"config.pbtxt": GOOD.replace("KIND_CPU", "KIND_NPU"), "1/model.py": ""}
    )
    write(tmp_path / "m", {"config.pbtxt": broken, "1/model.py": ""})

    report = lint(tmp_path)
    mend(report)

    assert [each for each in report.remaining if each.path.parent.name == "m"]
    assert (tmp_path / "m/config.pbtxt").read_text() == broken
    assert "KIND_NPU" not in (tmp_path / "sound/config.pbtxt").read_text()
    assert lint(tmp_path).remaining == report.remaining
