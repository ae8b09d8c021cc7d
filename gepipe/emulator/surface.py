"""The module object that programs import as `acl`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from functools import partial, wraps
from time import thread_time
from types import ModuleType
from typing import Any, Final, NoReturn

from gepipe.emulator.api import CALLS, Call
from gepipe.emulator.errors import OutOfScopeError
from gepipe.emulator.gate import pass_gate
from gepipe.emulator.leaks import find_leaks
from gepipe.emulator.machine import Machine

#: Modules that declare functions of `acl`.
_PARTS: Final = (
    "eventtimes",
    "fills",
    "streams",
    "tensordesc",
    "aipp",
    "callback",
    "config",
    "event",
    "util",
    "various",
    "buffers",
    "context",
    "copies",
    "describe",
    "devices",
    "dims",
    "execute",
    "gears",
    "memory",
    "pinned",
    "model",
    "toplevel",
)
_OUT_OF_SCOPE: Final = ("media", "himpi", "op", "blas", "prof", "fv")
#: Functions of `acl.rt` that run single kernels.
_KERNELS: Final = ("binary_", "kernel_", "launch_kernel")
_NO_CONTEXT: Final = 107002


class AclModule(ModuleType):
    """`acl` or one of its parts."""

    def __getattr__(self, name: str) -> NoReturn:
        full = f"{self.__name__}.{name}"
        if name.startswith("__"):
            raise AttributeError(full)
        if name.startswith(_KERNELS):
            raise OutOfScopeError(_out_of_scope(full))
        if name.isupper() or name.startswith("ACL_"):
            raise AttributeError(
                f"{full}: acl has functions only, no constants; use the number from the CANN manual"
            )
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


class OutOfScopeModule(ModuleType):
    """A part of `acl` that the emulator does not have."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(f"{self.__name__}.{name}")
        raise OutOfScopeError(_out_of_scope(f"{self.__name__}.{name}"))


def _out_of_scope(name: str) -> str:
    return (
        f"{name} is out of scope: the emulator has acl, acl.rt, acl.mdl and acl.util; "
        "run this on a real card"
    )


def build(machine: Machine) -> ModuleType:
    """Return a module with the surface of `acl`, backed by a machine."""
    for part in _PARTS:
        importlib.import_module(f"gepipe.emulator.{part}")
    acl = AclModule("acl", "An emulated acl: see gepipe.emulator.")
    acl.__file__ = __file__
    for name in ("rt", "mdl", "util"):
        vars(acl)[name] = AclModule(f"acl.{name}")
    for name in _OUT_OF_SCOPE:
        vars(acl)[name] = OutOfScopeModule(f"acl.{name}")
    for call in CALLS.values():
        part, _, function = call.name.rpartition(".")
        owner = vars(acl)[part] if part else acl
        bound = _bound(machine, call)
        vars(owner)[function] = (
            _timed(machine, call.name, bound) if machine.statistics_folder else bound
        )
    vars(acl)["_machine"] = machine
    machine.report.leaks = partial(find_leaks, machine)
    return acl


def _timed(machine: Machine, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Count a function's calls and the CPU time of the calling thread in them."""
    spent = machine.calls.setdefault(name, [0, 0.0])

    @wraps(function)
    def timed(*args: Any, **keywords: Any) -> Any:
        began_s = thread_time()
        try:
            return function(*args, **keywords)
        finally:
            spent[0] += 1
            spent[1] += thread_time() - began_s

    return timed


def publish(acl: ModuleType) -> None:
    """Make a module what `import acl` finds."""
    sys.modules["acl"] = acl
    for name, part in list(vars(acl).items()):
        if isinstance(part, ModuleType):
            sys.modules[f"acl.{name}"] = part


def _bound(machine: Machine, call: Call) -> Callable[..., Any]:
    parse = None if call.formats == "*" else call.parser()
    implementation, thread = call.implementation, machine.thread
    name, needs_context = call.name, call.needs_context

    def function(*args: Any, **keywords: Any) -> Any:
        if keywords:
            raise TypeError(f"acl.{name}() takes no keyword arguments")
        values = parse(args) if parse is not None else ()
        thread.call = name
        if machine.trouble and (code := pass_gate(machine, call, list(values))):
            return call.failure(code)
        if not needs_context:
            return implementation(machine, *values)
        context = thread.context
        if context is None or not context.alive:
            code = machine.fail(_NO_CONTEXT, "this thread has no context; call set_context first")
            return call.failure(code)
        return implementation(machine, context, *values)

    function.__name__ = function.__qualname__ = name.rpartition(".")[2]
    function.__module__ = "acl"
    function.__doc__ = implementation.__doc__
    return function
