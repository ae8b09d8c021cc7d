from __future__ import annotations

import pickle

import pytest

from gepipe import errors
from gepipe.errors import GepipeError, ItemError

CODES = {
    "GepipeError": 1,
    "ConfigError": 2,
    "PluginError": 2,
    "StageError": 3,
    "ItemError": 3,
    "WorkerError": 4,
    "WorkerStartError": 4,
    "BackendError": 5,
    "ModelLoadError": 5,
    "TensorMismatchError": 5,
    "ExportError": 6,
    "Interrupted": 130,
    "ClosedError": 1,
    "InternalError": 70,
}
CLASSES = {
    name: value
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, GepipeError)
}


@pytest.mark.parametrize("name", sorted(CODES))
def test_each_error_has_the_exit_code_of_the_contract(name) -> None:
    assert CLASSES[name].exit_code == CODES[name]


def test_module_docstring_draws_the_whole_tree() -> None:
    assert all(name in (errors.__doc__ or "") for name in CLASSES)


def test_errors_are_also_what_python_calls_them() -> None:
    assert issubclass(errors.PluginError, LookupError)
    assert issubclass(errors.TensorMismatchError, ValueError)


def test_item_error_survives_a_pickle() -> None:
    error = pickle.loads(pickle.dumps(ItemError("empty", "no bytes")))

    assert (error.kind, str(error)) == ("empty", "no bytes")
