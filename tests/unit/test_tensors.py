from __future__ import annotations

import numpy as np
import pytest

from gepipe.tensors import DTYPES, DYNAMIC, TensorSpec


@pytest.mark.parametrize("name", sorted(DTYPES))
def test_sizes_are_those_of_numpy(name) -> None:
    assert np.dtype(name).itemsize == DTYPES[name].itemsize
    assert np.dtype(name).name == name


def test_onnx_codes_are_those_of_onnx() -> None:
    onnx = pytest.importorskip("onnx")
    for name, dtype in DTYPES.items():
        assert onnx.helper.np_dtype_to_tensor_dtype(np.dtype(name)) == dtype.onnx


def test_row_and_batch_are_inverse() -> None:
    row = TensorSpec("x", "float32", (3, 4))

    assert row.with_batch(8) == TensorSpec("x", "float32", (8, 3, 4))
    assert row.with_batch(8).row == row
    assert row.with_batch(8).nbytes == 8 * 12 * 4


@pytest.mark.parametrize(
    ("mine", "its", "fits"),
    [
        ((3, 4), (3, 4), True),
        ((-1, 4), (3, 4), True),
        ((3, 4), (3, -1), True),
        ((3, 4), (4, 3), False),
        ((3,), (3, 1), False),
        ((), (), True),
    ],
)
def test_open_extents_fit_anything(mine, its, fits) -> None:
    a, b = TensorSpec("a", "int8", mine), TensorSpec("b", "int8", its)

    assert a.accepts(b) is fits
    assert b.accepts(a) is fits
    assert not a.accepts(TensorSpec("b", "uint8", its))


def test_text_shows_open_extents() -> None:
    assert str(TensorSpec("x", "int8", (-1, 3))) == "x: int8 [?, 3]"
    assert str(TensorSpec("", "int8", ())) == "tensor: int8 []"
    assert not TensorSpec("x", "int8", (-1,)).is_static


def test_open_extents_are_filled_in_from_what_is_made():
    row = TensorSpec("x", "float32", (3, DYNAMIC, DYNAMIC))

    filled = row.filled(TensorSpec("", "float32", (DYNAMIC, 736, DYNAMIC)))

    assert filled == TensorSpec("x", "float32", (3, 736, DYNAMIC))
