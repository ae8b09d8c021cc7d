from __future__ import annotations

import dill
import numpy as np
import pytest

from gepipe.errors import ConfigError
from gepipe.ops.user import Python


@pytest.fixture
def module(tmp_path, monkeypatch):
    def write(text, name="ops.py"):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    return write


def test_a_function_of_a_file_is_called(module):
    module("def double(x):\n    return x * 2\n")

    assert Python("./ops.py:double")(np.array([3]), {}).tolist() == [6]
    assert Python("ops.py:double")(4, {}) == 8


def test_a_function_of_a_module_in_the_current_folder_is_called(module):
    module("def double(x):\n    return x * 2\n", "gepipe_test_user_module.py")

    assert Python("gepipe_test_user_module:double")(4, {}) == 8


def test_a_file_may_import_its_neighbours(module):
    module("FACTOR = 5\n", "gepipe_test_neighbour.py")
    module("from gepipe_test_neighbour import FACTOR\ndef f(x):\n    return x * FACTOR\n")

    assert Python("./ops.py:f")(2, {}) == 10


def test_two_files_of_the_same_name_do_not_take_each_others_place(module, tmp_path):
    module("def f(x):\n    return 'here'\n")
    (tmp_path / "sub").mkdir()
    module("def f(x):\n    return 'there'\n", "sub/ops.py")

    assert [Python(f"./{name}:f")(0, {}) for name in ("ops.py", "sub/ops.py")] == ["here", "there"]


def test_arguments_are_passed_by_name(module):
    module("def f(x, factor=1):\n    return x * factor\n")

    assert Python("./ops.py:f", {"factor": 3})(2, {}) == 6


def two(value, meta):
    return value, meta["height"]


def with_default(value, factor=10):
    return value * factor


def optional_meta(_, meta=None):
    return meta


def anything(*values):
    return len(values)


@pytest.mark.parametrize(
    ("function", "expected"),
    [(two, (2, 7)), (with_default, 20), (optional_meta, {"height": 7}), (anything, 2), (abs, 2)],
)
def test_meta_is_passed_to_functions_that_take_it(function, expected):
    assert Python(function)(2, {"height": 7}) == expected


def test_p9_lambdas_and_nested_functions_reach_the_worker():
    factor = 3

    def nested(value):
        return value * factor

    for function in (lambda value: value * factor, nested):
        op = Python(function)
        op.setup()
        assert dill.loads(dill.dumps(op))(2, {}) == 6


def test_an_imported_function_is_not_sent_to_the_worker_but_its_name(module):
    module("def f(x):\n    return x\n")
    op = Python("./ops.py:f")
    op.setup()

    assert dill.loads(dill.dumps(op)) == Python("./ops.py:f")
    assert op.__getstate__() == {"function": "./ops.py:f", "args": {}}


@pytest.mark.parametrize(
    ("text", "reference", "words"),
    [
        (None, "./ops.py:f", "no file"),
        ("import no_such_module_xyz\n", "./ops.py:f", "No module named 'no_such_module_xyz'"),
        ("def f(:\n", "./ops.py:f", "SyntaxError"),
        ("def resize_it(x): pass\n", "./ops.py:resize_ti", "did you mean 'resize_it'"),
        ("f = 3\n", "./ops.py:f", "not a function"),
        (None, "no_such_module_xyz:f", "No module named"),
    ],
)
def test_what_does_not_import_is_named_with_operator_and_file(module, text, reference, words):
    if text is not None:
        module(text)

    with pytest.raises(ConfigError) as caught:
        Python(reference).setup()

    assert words in str(caught.value)
    assert f"python: {reference}" in str(caught.value)


@pytest.mark.parametrize("reference", ["ops.py", ":f", "ops.py:", "ops.py:a b", ""])
def test_a_reference_has_two_parts(reference):
    with pytest.raises(ValueError, match="my_module:function"):
        Python(reference)


class Scaled:
    def __init__(self, value, factor):
        self.value = value * factor


@pytest.mark.parametrize(
    ("function", "args", "words"),
    [
        (
            with_default,
            {"foo": 1},
            r"unexpected keyword argument 'foo'.*with_default\(value, foo=…",
        ),
        (two, {"value": 1}, "multiple values"),
        (Scaled, {"facter": 2}, "facter"),
        (lambda: 0, {}, "too many positional"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_before_the_first_item(function, args, words):
    with pytest.raises(ConfigError, match=words):
        Python(function, args).setup()


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (two, {}),
        (with_default, {"factor": 2}),
        (Scaled, {"factor": 2}),
        (np.asarray, {}),
        (max, {}),
    ],
)
def test_arguments_that_fit_pass(function, args):
    Python(function, args).setup()
