"""ONNX models of open height and width: executed at each batch's own size, in bounded memory."""

from __future__ import annotations

import subprocess

import numpy as np
import onnxruntime
import pytest

from gepipe.engines.engine import EngineOptions
from gepipe.engines.onnx import OnnxEngine
from gepipe.errors import BackendError, ItemError, TensorMismatchError
from gepipe.tensors import TensorSpec, Variants
from gepipe.unshaped import UnshapedBuffer
from tests.support import onnx_model, python, script_environment

#: Pictures as the stage before makes them, up to 64x96 or 96x64.
MADE = TensorSpec("", "float32", (3, -1, -1))
VARIANTS = Variants(
    (TensorSpec("", "float32", (3, 64, 96)), TensorSpec("", "float32", (3, 96, 64)))
)
SIZES = [(64, 96), (8, 8), (33, 47), (96, 64), (8, 8), (64, 96), (1, 96)]


@pytest.fixture
def model(tmp_path):
    """Return a function that writes a convolution to half the size, and its mean."""

    def write(batch="n"):
        weights = np.random.default_rng(1).standard_normal((2, 3, 3, 3)).astype("float32")
        return onnx_model(
            tmp_path / f"{batch}.onnx",
            [
                ("Conv", ["x", "w"], ["map"], {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
                ("GlobalAveragePool", ["map"], ["mean"], {}),
            ],
            {"x": ("float32", [batch, 3, "h", "w"])},
            {"map": ("float32", [batch, 2, "h2", "w2"]), "mean": ("float32", [batch, 2, 1, 1])},
            {"w": weights},
        )

    return write


def opened(path, **options) -> OnnxEngine:
    return OnnxEngine.open(path, EngineOptions(made=MADE, variants=VARIANTS, **options))


def buffers(engine, batch):
    return {
        spec.name: UnshapedBuffer(np.full(batch * nbytes, 77, np.uint8), spec.row, batch)
        for spec, nbytes in zip(engine.outputs, engine.largest, strict=True)
    }


def run(engine, **inputs):
    """Execute, and return outputs at the shapes that the engine settles."""
    rows = len(next(iter(inputs.values())))
    places = buffers(engine, rows)
    engine.collect(engine.submit(inputs, places, rows))
    return {name: place.open(place.row) for name, place in places.items()}


def pictures(count, height, width, seed=0):
    return np.random.default_rng(seed).standard_normal((count, 3, height, width), np.float32)


def test_each_batch_is_executed_at_its_own_size(model) -> None:
    engine = opened(model())
    reference = onnxruntime.InferenceSession(model())

    assert engine.largest == (2 * 32 * 48 * 4, 2 * 4)
    for number, size in enumerate(SIZES):
        x = pictures(3, *size, seed=number)
        for name, wanted in zip(("map", "mean"), reference.run(None, {"x": x}), strict=True):
            assert np.array_equal(run(engine, x=x)[name], wanted)


def test_rows_by_themselves_and_in_a_batch_agree(model) -> None:
    engine = opened(model())
    x = pictures(6, 40, 56)

    together = run(engine, x=x)

    for name, array in together.items():
        alone = np.concatenate([run(engine, x=x[row : row + 1])[name] for row in range(6)])
        np.testing.assert_allclose(array, alone, rtol=1e-5, atol=1e-6)


def test_a_fixed_batch_is_padded_and_split_at_each_size_too(model) -> None:
    engine = opened(model(4))
    reference = onnxruntime.InferenceSession(model())

    for size in SIZES:
        x = pictures(9, *size)
        (wanted, _) = reference.run(None, {"x": x})
        np.testing.assert_allclose(run(engine, x=x)["map"], wanted, rtol=1e-5, atol=1e-5)


def test_half_of_a_batch_lands_where_the_whole_would_put_it(model) -> None:
    engine = opened(model())
    x = pictures(4, 32, 32)
    whole, halves = buffers(engine, 4), buffers(engine, 4)

    engine.submit({"x": x}, whole, 4)
    for first in (0, 2):
        parts = {name: room.part(first, first + 2) for name, room in halves.items()}
        engine.submit({"x": x[first : first + 2]}, parts, 2)

    for name, room in whole.items():
        made = room.open(room.row)
        np.testing.assert_allclose(made, halves[name].open(room.row), rtol=1e-5, atol=1e-6)


def test_what_is_larger_than_the_largest_is_set_aside(model) -> None:
    engine = opened(model())

    for _ in range(2):  # also once the shape of its outputs is known
        with pytest.raises(
            ItemError, match="has room for 12,288; make its items smaller"
        ) as caught:
            run(engine, x=pictures(1, 96, 96))
        assert caught.value.kind == "too_large"
    assert run(engine, x=pictures(1, 8, 8))["map"].shape == (1, 2, 4, 4)


def test_outputs_whose_shape_depends_on_the_values_are_right_each_time(tmp_path) -> None:
    path = onnx_model(
        tmp_path / "m.onnx",
        [
            ("ReduceMax", ["x"], ["most"], {"keepdims": 0}),
            ("Cast", ["most"], ["count"], {"to": 7}),
            ("Reshape", ["count", "one"], ["end"], {}),
            ("Slice", ["x", "zero", "end", "axis"], ["y"], {}),
        ],
        {"x": ("float32", ["n", "w"])},
        {"y": ("float32", ["n", "k"])},
        {"one": np.array([1]), "zero": np.array([0]), "axis": np.array([1])},
    )
    largest = Variants((TensorSpec("", "float32", (6,)),))
    engine = OnnxEngine.open(
        path, EngineOptions(made=TensorSpec("", "float32", (-1,)), variants=largest)
    )
    engine.largest = (24,)  # on zeros, nothing is left of the row

    for most in (3, 3, 5, 2, 2):
        x = np.full((2, 6), most, np.float32)
        assert run(engine, x=x)["y"].shape == (2, most)


def test_a_size_that_the_model_does_not_take_says_what_may_be_missing(tmp_path) -> None:
    path = onnx_model(
        tmp_path / "m.onnx",
        [("Reshape", ["x", "shape"], ["y"], {})],
        {"x": ("float32", ["n", "w"])},
        {"y": ("float32", ["n", "half", 2])},
        {"shape": np.array([0, -1, 2])},
    )
    options = EngineOptions(
        made=TensorSpec("", "float32", (-1,)),
        variants=Variants((TensorSpec("", "float32", (8,)),)),
    )
    engine = OnnxEngine.open(path, options)

    assert run(engine, x=np.ones((2, 6), np.float32))["y"].shape == (2, 3, 2)
    with pytest.raises(BackendError, match=r"(?s)for \[2, 5\] failed: .*set multiple_of in resize"):
        run(engine, x=np.ones((2, 5), np.float32))


def test_an_output_without_the_batch_in_front_is_refused(tmp_path) -> None:
    path = onnx_model(
        tmp_path / "m.onnx",
        [("Transpose", ["x"], ["y"], {"perm": [1, 0]})],
        {"x": ("float32", ["n", "w"])},
        {"y": ("float32", ["a", "b"])},
    )
    options = EngineOptions(
        made=TensorSpec("", "float32", (-1,)),
        variants=Variants((TensorSpec("", "float32", (8,)),)),
    )

    with pytest.raises(TensorMismatchError, match="expected the batch as its first axis"):
        OnnxEngine.open(path, options)


def test_memory_stays_bounded_over_five_hundred_sizes(tmp_path) -> None:
    weights = np.random.default_rng(1).standard_normal((24, 3, 3, 3)).astype("float32")
    deeper = np.random.default_rng(1).standard_normal((24, 24, 3, 3)).astype("float32")
    path = onnx_model(
        tmp_path / "m.onnx",
        [
            ("Conv", ["x", "w"], ["a"], {"pads": [1, 1, 1, 1]}),
            ("Conv", ["a", "v"], ["b"], {"pads": [1, 1, 1, 1]}),
            ("Conv", ["b", "v"], ["c"], {"pads": [1, 1, 1, 1]}),
            ("Concat", ["a", "c"], ["y"], {"axis": 1}),
        ],
        {"x": ("float32", ["n", 3, "h", "w"])},
        {"y": ("float32", ["n", 48, "h", "w"])},
        {"w": weights, "v": deeper},
    )
    script = tmp_path / "script.py"
    script.write_text(
        "import pathlib, random\n"
        "import numpy as np\n"
        "from gepipe.engines.engine import EngineOptions\n"
        "from gepipe.engines.onnx import OnnxEngine\n"
        "from gepipe.unshaped import UnshapedBuffer\n"
        "from gepipe.runtime import tuning\n"
        "from gepipe.tensors import TensorSpec, Variants\n"
        "def rss():\n"
        "    return int(open('/proc/self/statm').read().split()[1]) * 4096\n"
        "tuning.keep_freed_memory()\n"
        "made = TensorSpec('', 'float32', (3, -1, -1))\n"
        "largest = TensorSpec('', 'float32', (3, 256, 256))\n"
        f"model = pathlib.Path({str(path)!r})\n"
        "options = EngineOptions(made=made, variants=Variants((largest,)))\n"
        "engine = OnnxEngine.open(model, options)\n"
        "memory = np.zeros(engine.largest[0], np.uint8)\n"
        "x = np.zeros(largest.nbytes // 4, np.float32)\n"
        "chance = random.Random(1)\n"
        "for number in range(500):\n"
        "    h, w = chance.randrange(8, 257), chance.randrange(8, 257)\n"
        "    row = x[: 3 * h * w].reshape(1, 3, h, w)\n"
        "    buffer = UnshapedBuffer(memory, engine.outputs[0].row, 1)\n"
        "    engine.submit({'x': row}, {'y': buffer}, 1)\n"
        "    if number == 99:\n"  # by then, the largest of each kind has been there
        "        early = rss()\n"
        "print(rss() - early)\n"
    )

    done = subprocess.run(
        python(script), env=script_environment(), capture_output=True, text=True, check=True,
        timeout=120,
    )  # fmt: skip

    assert int(done.stdout) < 12 << 20  # 30 kB a shape; one takes 6 MB a tensor
