"""Pointers to Python objects, and Python objects over pointers."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from gepipe.emulator.errors import EmulatorError
from tests.contract.card import Card


def test_bytes_to_ptr_takes_bytes_only(card: Card) -> None:
    data = b"hello world"
    ptr = card.acl.util.bytes_to_ptr(data)
    assert ctypes.string_at(ptr, 5) == b"hello"
    assert card.acl.util.ptr_to_bytes(ptr, 11) == data
    for other in (bytearray(b"x"), memoryview(b"x"), np.zeros(1)):
        with pytest.raises(ValueError, match="needs an byte as argument"):
            card.acl.util.bytes_to_ptr(other)


@pytest.mark.filterwarnings("ignore::Warning")
def test_arrays_and_pointers(card: Card) -> None:
    array = np.arange(6, dtype=np.float32)
    assert card.acl.util.numpy_to_ptr(array) == array.ctypes.data
    ptr, same = card.acl.util.numpy_contiguous_to_ptr(array)
    assert ptr == same.ctypes.data
    view = card.acl.util.ptr_to_numpy(ptr, (2, 3), 11)
    assert view.tolist() == [[0, 1, 2], [3, 4, 5]]
    array[0] = 9
    assert view[0, 0] == 9
    with pytest.raises(ValueError, match="needs an ndarray"):
        card.acl.util.numpy_to_ptr(b"x")
    with pytest.raises(TypeError):
        card.acl.util.ptr_to_numpy(ptr, [2, 3], 11)


@pytest.mark.filterwarnings("ignore::Warning")
def test_reads_end_where_the_object_ends(emulated: Card) -> None:
    array = np.zeros(8, np.uint8)
    ptr = emulated.acl.util.numpy_to_ptr(array)
    with pytest.raises(EmulatorError, match="has only 8"):
        emulated.acl.util.ptr_to_bytes(ptr, 9)
    assert emulated.acl.util.ptr_to_bytes(ptr + 4, 4) == bytes(4)
    with pytest.raises(ValueError, match="no NumPy type number"):
        emulated.acl.util.ptr_to_numpy(ptr, (1,), 99)


def test_the_functions_for_arrays_warn(card: Card) -> None:
    with pytest.warns(Warning, match="deprecated"):
        card.acl.util.numpy_to_ptr(np.zeros(1))


@pytest.mark.filterwarnings("ignore::Warning")
def test_reading_device_memory_on_the_host_is_an_emulator_error(emulated: Card) -> None:
    ptr = emulated.device(64)
    for read in (
        lambda: emulated.acl.util.ptr_to_bytes(ptr, 4),
        lambda: emulated.acl.util.ptr_to_numpy(ptr, (4,), 2),
    ):
        with pytest.raises(EmulatorError, match="the host cannot read it"):
            read()


@pytest.mark.filterwarnings("ignore::Warning")
def test_an_array_that_is_not_contiguous_is_an_error_in_strict_mode(
    emulated: Card, lenient: Card
) -> None:
    array = np.zeros((4, 4))[:, ::2]
    with pytest.raises(EmulatorError, match="not contiguous"):
        emulated.acl.util.numpy_to_ptr(array)
    assert lenient.acl.util.numpy_to_ptr(array) == array.ctypes.data
