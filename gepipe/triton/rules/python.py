"""Models of the backend `python`: what can be seen of `model.py` without running it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gepipe.errors import reason_of
from gepipe.plugins import did_you_mean
from gepipe.regular import read_regular
from gepipe.triton.models import Model
from gepipe.triton.problem import Finding, error, warning
from gepipe.triton.rules.surroundings import Surroundings
from gepipe.triton.signature import tensors

_CLASS: Final = "TritonPythonModel"
_LARGEST: Final = 4 << 20
#: What `triton_python_backend_utils` has only after the model's module is imported.
_LATE: Final = (
    "InferenceRequest", "InferenceResponse", "Logger", "Metric", "MetricFamily", "Tensor",
    "TritonError", "get_input_tensor_by_name",
)  # fmt: skip


def check(model: Model, around: Surroundings) -> Iterator[Finding]:
    """Yield what is wrong with `model.py`, without which the server waits for ever."""
    del around
    if model.backend != "python":
        return
    name = model.root.text("default_model_filename") or "model.py"
    completes = False
    for version in model.served():
        file = f"{version}/{name}"
        if file not in model.files:
            text = f"there is no {name}, and the server would load for ever; expected it there"
            yield Finding("error", 0, "", text, file=str(version))
            completes = True  # nothing can be said
            continue
        source = _read(model, file)
        if isinstance(source, Finding):
            yield source
            completes = True
            continue
        yield from _module(model, file, source)
        completes |= _completes(source)
    yield from _undeclared(model, completes=completes)
    for side in ("input", "output"):
        for tensor in tensors(model, side):
            if tensor.dtype == "BF16":
                yield warning(
                    tensor.message.start,
                    f"{tensor.path}.data_type",
                    "is TYPE_BF16, which has no "
                    "NumPy type: as_numpy() fails; expected to_dlpack() in model.py, or "
                    "another type",
                )


def _undeclared(model: Model, *, completes: bool) -> Iterator[Finding]:
    if not model.served():
        return
    for side in ("input", "output"):
        if model.root.named(side):
            continue
        if completes:
            yield warning(
                0,
                side,
                "is left to auto_complete_config, which does not run where the server "
                "is started with --disable-auto-complete-config; expected it in words",
            )
        else:
            then = "every request fails" if side == "input" else "answers nothing"
            yield error(
                0,
                side,
                "is missing, and model.py has no auto_complete_config to fill it in: the model "
                f"loads and {then}; expected it in words",
            )


def _read(model: Model, file: str) -> ast.Module | Finding:
    try:
        return ast.parse(read_regular(model.files[file], _LARGEST))
    except OSError as failed:
        return Finding("error", 0, "", f"cannot be read: {reason_of(failed)}", file=file)
    except (SyntaxError, ValueError, RecursionError) as failed:
        line = getattr(failed, "lineno", None) or 0
        here = "{}.{}".format(*sys.version_info[:2])
        text = f"{getattr(failed, 'msg', failed)}; expected Python as version {here} reads it"
        return Finding("error", 0, "", text, file=file, line=line)


@dataclass(frozen=True, slots=True)
class _Class:
    """The class of a module: absent, imported from elsewhere, or defined with these methods."""

    exists: bool
    methods: frozenset[str] | None = None


def _class(module: ast.Module) -> _Class:
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef) and node.name == _CLASS:
            methods = {
                each.name
                for each in ast.walk(node)
                if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))
            } | {
                t.id
                for each in ast.walk(node)
                if isinstance(each, ast.Assign)
                for t in each.targets
                if isinstance(t, ast.Name)
            }
            return _Class(True, None if node.bases or node.keywords else frozenset(methods))
        if isinstance(node, (ast.Import, ast.ImportFrom)) and any(
            alias.name == "*" or (alias.asname or alias.name) == _CLASS for alias in node.names
        ):
            return _Class(True)
        if isinstance(node, ast.Name) and node.id == _CLASS and isinstance(node.ctx, ast.Store):
            return _Class(True)
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and (node.func.id in ("exec", "globals", "setattr"))
        ):
            return _Class(True)
    return _Class(False)


def _completes(module: ast.Module) -> bool:
    methods = _class(module).methods
    return methods is None or "auto_complete_config" in methods


def _module(model: Model, file: str, module: ast.Module) -> Iterator[Finding]:
    found = _class(module)
    if not found.exists:
        text = f"there is no class {_CLASS}; expected one with a method execute(self, requests)"
        yield Finding("error", 0, "", text, file=file, line=1)
    elif found.methods is not None and "execute" not in found.methods:
        text = f"{_CLASS} has no execute, so every request fails; expected execute(self, requests)"
        yield Finding("error", 0, "", text, file=file, line=1)
    names = {
        alias.asname or alias.name
        for node in ast.walk(module)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name == "triton_python_backend_utils"
    }
    for node in _run_at_import(module):
        if isinstance(node, ast.Attribute) and node.attr in _LATE and _is_name(node.value, names):
            text = (
                f"pb_utils.{node.attr} is used while the module is imported, when it does not "
                "exist yet; "
                "expected it inside a method"
            )
            yield Finding("error", 0, "", text, file=file, line=node.lineno)
    yield from _names(model, file, module, names)


def _run_at_import(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what runs when the module is imported: all but the bodies of functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Lambda) or (
            isinstance(node, ast.AnnAssign) and child is node.annotation
        ):
            continue
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for part in (
                *child.decorator_list,
                *child.args.defaults,
                *filter(None, child.args.kw_defaults),
            ):
                yield part
                yield from _run_at_import(part)
            continue
        yield child
        yield from _run_at_import(child)


def _is_name(node: ast.AST, names: set[str]) -> bool:
    return isinstance(node, ast.Name) and node.id in names


def _names(model: Model, file: str, module: ast.Module, utils: set[str]) -> Iterator[Finding]:
    """Yield names of tensors, written out in calls, that the configuration has not."""
    calls = [
        n
        for n in ast.walk(module)
        if isinstance(n, ast.Call)
        and isinstance(n.func, ast.Attribute)
        and _is_name(n.func.value, utils)
    ]
    attributes = {call.func.attr for call in calls if isinstance(call.func, ast.Attribute)}
    if "InferenceRequest" in attributes:
        return  # tensors of other models
    inputs, outputs = ({t.name for t in tensors(model, side)} for side in ("input", "output"))
    for call in calls:
        assert isinstance(call.func, ast.Attribute)
        number = {"get_input_tensor_by_name": 1, "Tensor": 0}.get(call.func.attr)
        if number is None or len(call.args) <= number:
            continue
        known, said = (inputs, "input") if number else (outputs, "output")
        argument = call.args[number]
        if (
            not (isinstance(argument, ast.Constant) and isinstance(argument.value, str))
            or not known
        ):
            continue
        if argument.value not in known:
            then = "so it is None here" if number else "so clients never get it"
            text = (
                f"config.pbtxt has no {said} {argument.value!r}, {then}; "
                f"{did_you_mean(argument.value, sorted(known))}"
            )
            yield Finding("warning", 0, "", text, file=file, line=call.lineno)
