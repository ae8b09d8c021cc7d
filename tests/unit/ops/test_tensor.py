from __future__ import annotations

import numpy as np
import pytest

from gepipe.errors import ConfigError, ItemError
from gepipe.ops.tensor import Cast, Normalize, ToTensor
from gepipe.tensors import TensorSpec


def test_normalise_subtracts_and_divides_in_float32(files):
    image = files.picture()

    result = Normalize(mean=127, std=128)(image, {})

    assert result.dtype == np.float32
    assert (result == (image.astype(np.float32) - 127) / 128).all()


def test_normalise_takes_one_value_a_channel_in_the_scaled_unit(files):
    image = files.picture()

    result = Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), scale="1/255")(
        image, {}
    )

    assert result[3, 4, 1] == pytest.approx((image[3, 4, 1] / 255 - 0.456) / 0.224, abs=1e-6)


def test_a_wrong_number_of_channels_is_an_item_error(files):
    with pytest.raises(ItemError, match=r"3 values.*1 channels"):
        Normalize(mean=(1, 2, 3))(files.picture()[:, :, :1], {})


@pytest.mark.parametrize(
    "options",
    [
        {"mean": (1, 2)} | {"std": (1, 2, 3)},
        {"std": 0},
        {"std": (1, 0)},
        {"scale": "x"},
        {"scale": 0},
    ],
)
def test_normalise_refuses_what_cannot_work(options):
    with pytest.raises(ValueError, match=r"mean|std|scale"):
        Normalize(**options)


def test_layouts(files):
    image = files.picture()

    planar = ToTensor()(image, {})

    assert planar.shape == (3, 48, 64)
    assert (planar[1] == image[:, :, 1]).all()
    assert ToTensor(layout="nhwc", dtype="uint8")(image, {}).shape == (48, 64, 3)
    assert ToTensor()(image[:, :, 0], {}).shape == (1, 48, 64)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("uint8", [0, 0, 2, 2, 255, 255, 0]),
        ("int8", [-128, 0, 2, 2, 127, 127, 0]),
        ("int32", [-1000, 0, 2, 2, 300, 2**31 - 1, 0]),
        ("int64", [-1000, 0, 2, 2, 300, 2**63 - 1, 0]),
        ("uint64", [0, 0, 2, 2, 300, 2**64 - 1, 0]),
    ],
)
def test_integers_are_rounded_and_saturate(dtype, expected):
    values = np.array([-1000, -0.4, 1.5, 2.5, 300, np.inf, np.nan], np.float32)

    result = Cast(dtype)(values, {})

    assert result.dtype == dtype
    assert result.tolist() == expected


def test_integers_saturate_from_wider_integers():
    assert Cast("uint8")(np.array([-1, 256, 7]), {}).tolist() == [0, 255, 7]
    assert Cast("int64")(np.array([2**64 - 1], np.uint64), {}).tolist() == [2**63 - 1]


def test_half_precision_overflows_to_infinity_without_a_warning():
    assert Cast("float16")(np.array([70000.0, 1.0]), {}).tolist() == [np.inf, 1.0]


def test_cast_converts_every_array_of_a_dict():
    result = Cast("int32")({"a": np.zeros(2), "b": np.ones(3)}, {})

    assert {name: array.dtype.name for name, array in result.items()} == {
        "a": "int32",
        "b": "int32",
    }


def test_shapes_are_known_before_the_start():
    image = TensorSpec("", "uint8", (224, 225, 3))

    assert Normalize().output_spec(image) == TensorSpec("", "float32", (224, 225, 3))
    assert ToTensor().output_spec(image) == TensorSpec("", "float32", (3, 224, 225))
    assert ToTensor().output_spec(None) == TensorSpec("", "float32", (-1, -1, -1))
    assert Cast("float16").output_spec(image) == TensorSpec("", "float16", (224, 225, 3))


@pytest.mark.parametrize("name", ["mean", "std"])
def test_a_wrong_number_of_channels_is_known_before_the_first_item(name):
    op = Normalize(**{name: (1.0, 2.0)})

    with pytest.raises(ConfigError, match=f"{name} has 2 values.* has 3; give one value a channel"):
        op.output_spec(TensorSpec("", "uint8", (-1, -1, 3)))
    assert op.output_spec(TensorSpec("", "uint8", (4, 4, -1))) is not None
    assert op.output_spec(None) is None
