from __future__ import annotations

import subprocess
import sys

import dill
import numpy as np
import pytest

from gepipe.errors import ConfigError, ItemError
from gepipe.ops.decode import DecodeImage
from gepipe.ops.image import CenterCrop
from gepipe.ops.plan import plan_post, plan_pre
from gepipe.ops.resize import Resize
from gepipe.ops.results import TopK
from gepipe.ops.tensor import Cast, Normalize, ToTensor
from gepipe.ops.user import Python
from gepipe.tensors import TensorSpec


def run(ops, value, *, shape, dtype=np.float32, **options):
    program = dill.loads(dill.dumps(plan_pre(ops, **options)))
    program.setup()
    row = np.full(shape, 99, dtype)
    meta = {}
    program(value, meta, {"x": row})
    return row, meta


CHAIN = [DecodeImage(), Resize(size=32), Normalize(127, 128), ToTensor()]


def test_a_chain_ends_in_the_slots_row(files):
    row, meta = run(CHAIN, files.encode(files.picture(), "PNG"), shape=(3, 32, 32))

    expected = (Resize(size=32)(files.picture(), {}).astype(np.float32) - 127) / 128
    assert (row == expected.transpose(2, 0, 1)).all()
    assert (meta["height"], meta["width"]) == (48, 64)


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize(
    ("shape", "dtype", "hint"),
    [
        ((3, 33, 32), np.float32, "resize, center_crop or letterbox"),
        ((32, 32, 3), np.float32, "layout: nhwc"),
        ((3, 32, 32), np.float16, "cast: float16"),
    ],
)
def test_a_result_that_does_not_fit_names_the_models_input(files, fuse, shape, dtype, hint):
    with pytest.raises(ItemError, match="model's input 'x' takes") as caught:
        run(CHAIN, files.encode(files.picture(), "PNG"), shape=shape, dtype=dtype, fuse=fuse)

    assert caught.value.kind == "shape"
    assert "got float32 [3, 32, 32]" in str(caught.value)
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    "turn",
    [
        lambda a: a.transpose(2, 0, 1),
        lambda a: a[:, :, ::-1].transpose(2, 0, 1),
        lambda a: a[::-1, ::-1].transpose(2, 0, 1),
        lambda a: np.asfortranarray(a.transpose(2, 0, 1)),
        lambda a: np.broadcast_to(a[:, :, 0], (3, 16, 16)),
        lambda a: a.transpose(2, 0, 1).astype(">f4"),
    ],
)
def test_n14_arrays_of_any_strides_are_written_right(turn):
    image = np.random.default_rng(0).random((16, 16, 3), np.float32)

    row, _ = run([Python(turn)], image, shape=(3, 16, 16))

    assert (row == turn(image)).all()


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize(
    "turn", [lambda a: a[:, :, ::-1], lambda a: a[::-1], lambda a: a[:, ::2], np.asfortranarray]
)
def test_n14_images_of_any_strides_pass_the_fused_tail_right(files, turn, layout):
    image = files.picture(16, 16)
    expected = ToTensor(layout=layout)(Normalize(127, 128)(turn(image), {}), {})
    ops = [Python(turn), Normalize(127, 128), ToTensor(layout=layout)]

    row, _ = run(ops, image, shape=expected.shape)

    assert (row == expected).all()


def test_several_inputs_are_written_from_a_dict():
    program = plan_pre([Python(lambda _: {"ids": np.arange(3), "mask": np.ones(3, np.int64)})])
    program.setup()
    rows = {"ids": np.zeros(3, np.int64), "mask": np.zeros(3, np.int64)}

    program(b"some text", {}, rows)

    assert rows["ids"].tolist() == [0, 1, 2]
    assert rows["mask"].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"ids": np.arange(3)}, "not the model's input 'mask'"),
        ({"ids": np.arange(3), "mask": np.arange(3), "masc": np.arange(3)}, "did you mean 'mask'"),
        (np.arange(3), "return a dict"),
        ({"ids": np.arange(4), "mask": np.arange(3)}, "'ids' takes int64 \\[3\\]"),
    ],
)
def test_inputs_that_do_not_fit_are_named(value, words):
    program = plan_pre([Python(lambda _: value)])
    program.setup()

    with pytest.raises(ItemError, match=words):
        program(b"", {}, {"ids": np.zeros(3, np.int64), "mask": np.zeros(3, np.int64)})


def test_bytes_without_a_decoder_say_what_is_missing():
    with pytest.raises(ItemError, match="add decode_image"):
        run([], b"bytes", shape=(3,))


def test_no_operators_pass_the_sources_arrays_on():
    row, _ = run([], np.arange(4, dtype=np.float32), shape=(4,))

    assert row.tolist() == [0, 1, 2, 3]


def test_user_code_in_the_middle_sees_the_colour_order_it_asked_for(files):
    seen = []
    for color in ("rgb", "bgr"):
        op = Python(lambda image: seen.append(image.copy()) or image)
        program = plan_pre([DecodeImage(color=color), op, ToTensor(dtype="uint8")])
        program.setup()
        row = np.zeros((3, 48, 64), np.uint8)
        program(files.encode(files.picture(), "PNG"), {}, {"x": row})
        assert (row == seen[-1].transpose(2, 0, 1)).all()

    assert (seen[0] == files.picture()).all()
    assert (seen[1] == files.picture()[:, :, ::-1]).all()


def test_an_operator_of_the_wrong_stage_is_refused():
    with pytest.raises(ConfigError, match=r"top_k.*post stage"):
        plan_pre([TopK(3)])
    with pytest.raises(ConfigError, match=r"resize 3.*pre stage"):
        plan_post([Resize(size=3)])


def test_the_result_is_known_before_the_start():
    ops = [DecodeImage(), Resize(short_side=256), CenterCrop(224), Normalize(), ToTensor()]

    assert plan_pre(ops).output_specs() == TensorSpec("", "float32", (3, 224, 224))
    assert plan_pre([*ops, Python("m:f")]).output_specs() is None
    assert plan_pre([*ops, Python("m:f"), Cast("float16")]).output_specs() is None


def test_the_plan_says_what_is_fused():
    user = Python("m:f")

    (line,) = plan_pre(CHAIN).describe()
    middle = plan_pre([*CHAIN[:2], user, *CHAIN[2:]]).describe()
    single = plan_pre(CHAIN, fuse=False).describe()

    assert line.startswith("decode_image → resize 32 → normalize mean=127 std=128 → to_tensor")
    assert "fused" in line
    assert "1/2" in line
    assert middle[1] == "python m:f"
    assert len(middle) == 3
    assert len(single) == 4
    assert plan_post([]).describe() == ["identity"]


def test_post_without_operators_returns_the_outputs():
    program = dill.loads(dill.dumps(plan_post([])))
    program.setup()

    result = program({"y": np.arange(3)}, {})

    assert result["y"].tolist() == [0, 1, 2]


def test_post_programs_run_the_users_function_with_meta():
    program = plan_post([TopK(1), Python(lambda record, meta: {**record, "h": meta["height"]})])
    program.setup()

    result = program({"y": np.array([1.0, 3.0])}, {"height": 7})

    assert result == {"top_k": [{"class": 1, "score": 3.0}], "h": 7}


def test_planning_loads_no_heavy_library():
    code = (
        "import sys\n"
        "from gepipe import plugins\n"
        "for name in plugins.names('ops'): plugins.load('ops', name)\n"
        "import gepipe.ops.plan as p\n"
        "from gepipe.ops.resize import Resize\n"
        "p.plan_pre([Resize(size=3)]).describe()\n"
        "heavy = {'numpy', 'cv2', 'PIL', 'pydantic', 'onnxruntime', 'pyarrow'} & set(sys.modules)\n"
        "sys.exit(', '.join(heavy) or None)\n"
    )

    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
