"""The operator that calls the user's own function."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Literal

from gepipe.errors import ConfigError
from gepipe.ops.op import Meta, Op


@dataclass(frozen=True)
class Python(Op):
    """Call a Python function of your own.

    In pre it is given what the operator before returned (an image, an array, the file's bytes) and
    returns an array, or a dict of name to array for a model with several inputs. In post it is
    given the dict of name to array of the model's outputs, or what the operator before returned,
    and returns a record: anything JSON can hold. If it has a second parameter, that is `meta`: a
    dict of facts about the item, such as the original's height and width.

    Attributes:
        function: my_module:function, or ./ops.py:function for a file.
        args: Further arguments, passed by name.
    """

    stage: ClassVar[Literal["pre", "post", "both"]] = "both"
    shorthand: ClassVar[str | None] = "function"
    function: str | Callable[..., Any]
    args: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.function, str):
            module, _, name = self.function.rpartition(":")
            if not module or not name.isidentifier():
                raise ValueError(
                    f"expected my_module:function or ./file.py:function, but got {self.function!r}"
                )

    @property
    def label(self) -> str:
        """The function as people write it."""
        if isinstance(self.function, str):
            return self.function
        return getattr(self.function, "__qualname__", repr(self.function))

    def __call__(self, value: Any, meta: Meta) -> Any:
        """Return what the function returns."""
        function, takes_meta = self._loaded
        return function(value, meta, **self.args) if takes_meta else function(value, **self.args)

    def setup(self) -> None:
        """Import the function.

        Raises:
            ConfigError: It does not import, or cannot be called with the arguments; the message
                names the operator and the file.
        """
        function, takes_meta = self._loaded
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):  # written in C without a signature
            return
        try:
            signature.bind(*[None] * (1 + takes_meta), **self.args)
        except TypeError as error:
            given = ["value", *["meta"] * takes_meta, *(f"{name}=…" for name in self.args)]
            raise ConfigError(
                f"python: {self.label}: {error}; it would be called as "
                f"{getattr(function, '__name__', 'f')}({', '.join(given)})"
            ) from None

    def __getstate__(self) -> dict[str, Any]:
        return {"function": self.function, "args": self.args}  # without what setup() imported

    @cached_property
    def _loaded(self) -> tuple[Callable[..., Any], bool]:
        function = self.function if callable(self.function) else _load(self.function)
        return function, _takes_meta(function, self.args)


def _load(reference: str) -> Callable[..., Any]:
    where, _, name = reference.rpartition(":")
    try:
        is_file = where.endswith(".py") or "/" in where
        module = _load_file(Path(where)) if is_file else _load_module(where)
    except Exception as error:
        raise ConfigError(
            f"python: {reference}: {where} does not import: {type(error).__name__}: {error}"
        ) from error
    function = getattr(module, name, None)
    if function is None:
        from gepipe.plugins import did_you_mean

        known = [key for key, item in vars(module).items() if inspect.isfunction(item)]
        raise ConfigError(
            f"python: {reference}: {where} has no function {name!r}; {did_you_mean(name, known)}"
        )
    if not callable(function):
        raise ConfigError(f"python: {reference}: {name!r} is not a function")
    loaded: Callable[..., Any] = function
    return loaded


def _load_module(name: str) -> Any:
    _importable(os.getcwd())  # noqa: PTH109 - an entry of sys.path is text
    return importlib.import_module(name)


def _load_file(path: Path) -> Any:
    path = path.resolve()
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    # A name of its own: two files called ops.py must not take each other's place.
    name = f"gepipe_user_{path.stem}_{sha256(os.fsencode(path)).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError("not a Python file (.py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs, as dataclasses and pickle look there
    try:
        _importable(str(path.parent))
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _importable(folder: str) -> None:
    """Let imports find modules in a folder, behind all others; the function may import later."""
    if folder not in sys.path:
        sys.path.append(folder)


def _takes_meta(function: Callable[..., Any], args: Mapping[str, Any]) -> bool:
    """Whether the function has a second positional parameter, or one called meta."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # written in C without a signature
        return False
    places = [
        parameter
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        and parameter.name not in args
    ]
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return True
    return len(places) > 1 and (
        places[1].default is inspect.Parameter.empty or places[1].name == "meta"
    )
