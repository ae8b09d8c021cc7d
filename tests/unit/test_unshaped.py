from __future__ import annotations

import numpy as np
import pytest

from gepipe.errors import ItemError, TensorMismatchError
from gepipe.tensors import TensorSpec
from gepipe.unshaped import UnshapedBuffer

ROW = TensorSpec("x", "float32", (3, -1, -1))


def buffer(batch=2, nbytes=3 * 8 * 8 * 4):
    memory = np.full(batch * nbytes, 77, np.uint8)
    return memory, UnshapedBuffer(memory, ROW, batch)


@pytest.mark.parametrize("shape", [(3, 8, 8), (3, 4, 16), (3, 1, 1), (3, 5, 7)])
def test_rows_lie_at_the_front_of_the_memory_one_behind_the_other(shape) -> None:
    memory, place = buffer()
    wanted = np.arange(2 * np.prod(shape), dtype=np.float32).reshape(2, *shape)

    place.open(shape)[...] = wanted

    assert place.row == shape
    assert memory[: wanted.nbytes].tobytes() == wanted.tobytes()
    assert (memory[wanted.nbytes :] == 77).all()


def test_a_part_of_the_rows_lies_where_the_whole_has_them() -> None:
    memory, place = buffer(batch=4)

    place.part(1, 3).open((3, 2, 2))[...] = 5
    place.part(3, 4).one((3, 2, 2))[...] = 6

    rows = memory.view(np.float32)[: 4 * 12].reshape(4, 12)
    assert rows[1:, 0].tolist() == [5, 5, 6]
    assert (memory[: 12 * 4] == 77).all()


def test_what_there_is_no_memory_for_is_set_aside() -> None:
    _, place = buffer()

    with pytest.raises(
        ItemError, match=r"'x' would be float32 \[3, 8, 9\], 864 bytes; the batch has room for 768;"
    ) as caught:
        place.open((3, 8, 9))

    assert caught.value.kind == "too_large"
    assert place.row is None


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 8), (3, 8, 8, 1), ()])
def test_a_shape_that_the_tensor_never_has_is_refused(shape) -> None:
    _, place = buffer()

    assert not place.takes(shape)
    with pytest.raises(TensorMismatchError, match="cannot have rows of shape"):
        place.open(shape)
