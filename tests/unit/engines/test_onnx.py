from __future__ import annotations

import subprocess

import numpy as np
import pytest

from gepipe.engines.engine import EngineOptions
from gepipe.engines.onnx import OnnxEngine
from gepipe.engines.texts import pack, packed, unpack
from gepipe.errors import ConfigError, ItemError, ModelLoadError, TensorMismatchError
from tests.support import doubling_model, log_model, onnx_model, python, script_environment


def opened(path, **options) -> OnnxEngine:
    return OnnxEngine.open(path, EngineOptions(**options))


def run(engine, count, capacity=None, *, fill=7.0, **inputs):
    """Execute and return the outputs; rows beyond `count` are filled with a mark first."""
    capacity = capacity or count
    outputs = {
        spec.name: np.full((capacity, *spec.shape[1:]), fill, spec.dtype) for spec in engine.outputs
    }
    engine.collect(engine.submit(inputs, outputs, count))
    return outputs


def ramp(rows, dtype="float32"):
    return np.arange(rows * 4, dtype=dtype).reshape(rows, 4)


def test_ten_rows_of_a_model_for_four_are_padded_and_cut_back(tmp_path) -> None:
    engine = opened(doubling_model(tmp_path / "m.onnx", 4))
    x = ramp(10)

    y = run(engine, 10, 12, x=x)["y"]

    assert engine.gears == (4,)
    assert np.array_equal(y[:10], 2 * x + 1)
    assert (y[10:] == 7).all(), "padding shows"


def test_batch_of_eight_is_looped_over_a_model_for_one(tmp_path) -> None:
    engine = opened(doubling_model(tmp_path / "m.onnx", 1), batch_size=8)
    x = ramp(8)

    assert np.array_equal(run(engine, 8, x=x)["y"], 2 * x + 1)


def test_leftovers_of_a_former_batch_do_not_reach_the_padding(tmp_path) -> None:
    engine = opened(
        onnx_model(
            tmp_path / "m.onnx",
            [
                ("ReduceMax", ["x"], ["m"], {"axes": [0], "keepdims": 1}),
                ("Add", ["x", "m"], ["y"], {}),
            ],
            {"x": ("float32", [4, 2])},
            {"y": ("float32", [4, 2])},
        )
    )
    run(engine, 3, x=np.full((3, 2), 1000, np.float32))

    assert (run(engine, 1, x=np.ones((1, 2), np.float32))["y"] == 2).all()


def test_input_is_not_modified(tmp_path) -> None:
    engine = opened(doubling_model(tmp_path / "m.onnx", 4))
    x = ramp(3)
    before = x.copy()

    run(engine, 3, x=x)

    assert np.array_equal(x, before)


def test_extents_that_the_model_does_not_declare_are_probed(tmp_path) -> None:
    path = onnx_model(
        tmp_path / "m.onnx",
        [("Identity", ["x"], ["y"], {})],
        {"x": ("float32", ["n", 4])},
        {"y": ("float32", ["n", "k"])},
    )

    engine = opened(path)

    assert engine.outputs[0].shape == (-1, 4)
    assert np.array_equal(run(engine, 3, x=ramp(3))["y"], ramp(3))


@pytest.mark.parametrize("declared", [[5], ["k"], [3, 5]])
def test_output_without_a_batch_axis_is_refused_when_the_model_is_opened(
    tmp_path, declared
) -> None:
    if len(declared) == 1:
        nodes = [("ReduceSum", ["x", "zero"], ["y"], {"keepdims": 0})]
    else:
        nodes = [
            ("ReduceSum", ["x", "zero"], ["m"], {"keepdims": 1}),
            ("Concat", ["m", "m", "m"], ["y"], {"axis": 0}),
        ]
    path = onnx_model(
        tmp_path / "m.onnx",
        nodes,
        {"x": ("float32", ["n", 5])},
        {"y": ("float32", declared)},
        {"zero": np.array([0], np.int64)},
    )

    with pytest.raises(TensorMismatchError, match=r"m\.onnx: output 'y' .*batch"):
        opened(path)


def test_batch_that_only_the_output_declares_as_one_is_run_row_by_row(tmp_path) -> None:
    path = onnx_model(
        tmp_path / "m.onnx",
        [("Identity", ["x"], ["y"], {})],
        {"x": ("float32", ["n", 4])},
        {"y": ("float32", [1, 4])},
    )

    assert np.array_equal(run(opened(path), 3, x=ramp(3))["y"], ramp(3))


def test_reduction_over_the_batch_never_mixes_items(tmp_path) -> None:
    path = onnx_model(
        tmp_path / "m.onnx",
        [("ReduceMean", ["x"], ["y"], {"axes": [0], "keepdims": 1})],
        {"x": ("float32", ["n", 4])},
        {"y": ("float32", ["k", 4])},
    )

    try:
        engine = opened(path)
    except TensorMismatchError:
        return
    assert np.array_equal(run(engine, 3, x=ramp(3))["y"], ramp(3))


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x08\x08" * 40])
def test_file_that_is_no_model_is_named(tmp_path, content) -> None:
    path = tmp_path / "fake.onnx"
    path.write_bytes(content)

    with pytest.raises(ModelLoadError, match=r"fake\.onnx"):
        opened(path)


def test_missing_model_and_no_model_are_told_apart(tmp_path) -> None:
    with pytest.raises(ModelLoadError, match=r"gone\.onnx: no such"):
        opened(tmp_path / "gone.onnx")
    with pytest.raises(ModelLoadError, match="needs a model"):
        opened(None)


@pytest.mark.parametrize("dtype", ["string", "bfloat16"])
def test_tensor_of_a_type_that_numpy_has_not_is_refused_by_name(tmp_path, dtype) -> None:
    path = onnx_model(
        tmp_path / "m.onnx",
        [("Identity", ["x"], ["y"], {})],
        {"x": (dtype, ["n", 4])},
        {"y": (dtype, ["n", 4])},
    )

    with pytest.raises(ModelLoadError, match=f"'x' .*{dtype}"):
        opened(path)


# --- strings --------------------------------------------------------------------------------------


def strings(path, nodes, inputs, outputs, **options) -> OnnxEngine:
    return opened(onnx_model(path / "m.onnx", nodes, inputs, outputs), text_bytes=32, **options)


def run_strings(engine, count, capacity=None, **inputs):
    """Execute with strings given as lists, and return the outputs, those of strings likewise."""
    capacity = capacity or count
    ins = {
        spec.name: np.zeros((capacity, *packed(spec.row, 32).shape), packed(spec.row, 32).dtype)
        for spec in engine.inputs
    }
    for name, values in inputs.items():
        if ins[name].dtype == np.uint8:
            pack(name, np.array(values, object), ins[name][: len(values)])
        else:
            ins[name][: len(values)] = values
    rows = {spec.name: packed(spec.row, 32) for spec in engine.outputs}
    outs = {name: np.full((capacity, *row.shape), 7, row.dtype) for name, row in rows.items()}
    engine.collect(engine.submit(ins, outs, count))
    ranks = {spec.name: len(spec.shape) - 1 for spec in engine.outputs if spec.dtype == "string"}
    return {
        name: unpack(array[:count], ranks[name]).tolist() if name in ranks else array
        for name, array in outs.items()
    }


def test_strings_and_numbers_go_through_one_model(tmp_path) -> None:
    engine = strings(
        tmp_path,
        [
            ("Identity", ["word"], ["same"], {}),
            ("Cast", ["number"], ["written"], {"to": 8}),
            ("Cast", ["word"], ["read"], {"to": 1}),
        ],
        {"word": ("string", ["n", 2]), "number": ("float32", ["n"])},
        {"same": ("string", ["n", 2]), "written": ("string", ["n"]), "read": ("float32", ["n", 2])},
    )

    made = run_strings(
        engine, 3, 4, word=[["1", "22"], ["3.5", "4"], ["5", "6"]], number=[1.5, 2, -3]
    )

    assert made["same"] == [[b"1", b"22"], [b"3.5", b"4"], [b"5", b"6"]]
    assert made["written"] == [b"1.5", b"2", b"-3"]
    assert made["read"][:3].tolist() == [[1, 22], [3.5, 4], [5, 6]]
    assert (made["read"][3:] == 7).all(), "more rows than were given"


def test_padding_of_strings_is_what_the_model_takes(tmp_path) -> None:
    engine = strings(
        tmp_path,
        [("Cast", ["x"], ["y"], {"to": 1})],  # refuses a string of no digits
        {"x": ("string", [4, 1])},
        {"y": ("float32", [4, 1])},
        timeout_s=5.0,
    )

    assert run_strings(engine, 6, x=[[str(each)] for each in range(6)])["y"][:, 0].tolist() == [
        *range(6)
    ]


def test_strings_that_become_too_long_are_told(tmp_path) -> None:
    engine = strings(
        tmp_path,
        [("Concat", ["x", "x"], ["y"], {"axis": 1})],
        {"x": ("string", ["n", 1])},
        {"y": ("string", ["n", 2])},
    )

    assert run_strings(engine, 1, x=[["ä" * 6]]) == {"y": [["ä".encode() * 6] * 2]}
    with pytest.raises(ItemError, match=r"output 'y': row 0 takes 34 bytes.*at most 32") as caught:
        run_strings(engine, 1, x=[["x" * 13]])
    assert caught.value.kind == "too_large"


def test_strings_whose_shape_is_not_told_are_refused(tmp_path) -> None:
    nodes = [("Reshape", ["x", "shape"], ["y"], {})]
    inputs = {"x": ("string", ["n", 1]), "shape": ("int64", ["n"])}
    with pytest.raises(ModelLoadError, match="'y' is of strings, and its shape is not told"):
        strings(tmp_path, nodes, inputs, {"y": ("string", None)})


def test_several_inputs_and_outputs_of_several_types_go_by_name(tmp_path) -> None:
    path = onnx_model(
        tmp_path / "m.onnx",
        [
            ("Identity", ["half"], ["same"], {}),
            ("Identity", ["ids"], ["id"], {}),
            ("Not", ["flag"], ["off"], {}),
            ("Cast", ["half"], ["wide"], {"to": 1}),
            ("ReduceSum", ["wide", "axis"], ["total"], {"keepdims": 0}),
        ],
        {
            "half": ("float16", ["n", 3]),
            "ids": ("int64", ["n"]),
            "flag": ("bool", ["n", 1]),
        },
        {
            "same": ("float16", ["n", 3]),
            "id": ("int64", ["n"]),
            "off": ("bool", ["n", 1]),
            "total": ("float32", ["n"]),
        },
        {"axis": np.array([1], np.int64)},
    )
    engine = opened(path)
    half = np.array([[1, 2, 3], [4, 5, 60000]], np.float16)
    ids, flag = np.array([2**40, -5]), np.array([[True], [False]])

    out = run(engine, 2, ids=ids, half=half, flag=flag)

    assert [spec.row.shape for spec in engine.outputs] == [(3,), (), (1,), ()]
    assert np.array_equal(out["same"], half)
    assert np.array_equal(out["id"], ids)
    assert np.array_equal(out["off"], ~flag)
    assert np.array_equal(out["total"], half.astype(np.float32).sum(1))


def test_inputs_without_a_common_batch_are_refused(tmp_path) -> None:
    path = onnx_model(
        tmp_path / "m.onnx",
        [("Identity", ["a"], ["y"], {}), ("Identity", ["b"], ["z"], {})],
        {"a": ("float32", [2, 4]), "b": ("float32", [3, 4])},
        {"y": ("float32", [2, 4]), "z": ("float32", [3, 4])},
    )

    with pytest.raises(TensorMismatchError, match="share a batch"):
        opened(path)


def test_scalar_input_is_refused(tmp_path) -> None:
    path = onnx_model(
        tmp_path / "m.onnx",
        [("Identity", ["x"], ["y"], {})],
        {"x": ("float32", [])},
        {"y": ("float32", [])},
    )

    with pytest.raises(TensorMismatchError, match="batch"):
        opened(path)


def test_rows_together_and_one_by_one_agree(tmp_path) -> None:
    rng = np.random.default_rng(3)
    path = onnx_model(
        tmp_path / "m.onnx",
        [("MatMul", ["x", "w"], ["t"], {}), ("Softmax", ["t"], ["y"], {"axis": -1})],
        {"x": ("float32", ["n", 96])},
        {"y": ("float32", ["n", 64])},
        {"w": rng.standard_normal((96, 64)).astype(np.float32)},
    )
    engine = opened(path)
    x = rng.standard_normal((8, 96)).astype(np.float32)

    together = run(engine, 8, x=x)["y"]
    alone = np.concatenate([run(engine, 1, x=x[i : i + 1])["y"] for i in range(8)])

    # A matrix product of another height may add in another order: the last digit may differ.
    assert np.allclose(together, alone, rtol=1e-5, atol=1e-7)


def test_nan_is_passed_on(tmp_path) -> None:
    engine = opened(log_model(tmp_path / "m.onnx"))
    x = np.ones((3, 4), np.float32)
    x[1] = -1

    assert np.isnan(run(engine, 3, x=x)["y"]).any(1).tolist() == [False, True, False]


def test_closing_twice_is_harmless(tmp_path) -> None:
    engine = opened(doubling_model(tmp_path / "m.onnx"))

    engine.close()
    engine.close()

    assert engine._session is None


def test_nothing_is_reported_to_the_maker_of_the_engine(tmp_path) -> None:
    model = str(doubling_model(tmp_path / "m.onnx"))
    script = tmp_path / "script.py"
    script.write_text(
        "import os, pathlib\n"
        "from gepipe.engines.engine import EngineOptions\n"
        "from gepipe.engines.onnx import OnnxEngine\n"
        f"OnnxEngine.open(pathlib.Path({model!r}), EngineOptions())\n"
        "fds = [f'/proc/self/fd/{f}' for f in os.listdir('/proc/self/fd')]\n"
        "print([t for f in fds if os.path.exists(f) and 'onnxruntime' in (t := os.readlink(f))])\n"
    )
    environment = script_environment(HOME=str(tmp_path))
    del environment["ORT_DISABLE_TELEMETRY"]

    done = subprocess.run(
        python(script), env=environment, capture_output=True, text=True, check=True, timeout=120
    )

    assert done.stdout == "[]\n"
    assert not list(tmp_path.glob(".cache/*"))


def test_options_that_it_does_not_have_are_refused(tmp_path) -> None:
    with pytest.raises(ConfigError, match="unknown options aipp; it has none"):
        opened(doubling_model(tmp_path / "m.onnx"), extra={"aipp": True})
