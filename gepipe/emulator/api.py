"""Declaring the functions of `acl`: names, argument formats, return forms.

pyACL's functions take positional arguments only and parse them with CPython's format characters.
The ones used, with what pyACL makes of them:

    k  unsigned long: pointers, handles, sizes. A real int; no overflow check, -1 is 2**64 - 1.
    I  unsigned int: model ids and flags, masked; `__index__` is enough.
    i  int: enums and device ids, range-checked; `__index__` is enough.
    K  unsigned long long: batch, height, width. A real int, masked.
    s  text without NUL that is valid UTF-8.
    f  float.   O  any object.   L  a list.   D  a dict.   F  a callable.   |  optional from here
    *  arguments are ignored

Return forms: `r` the code, `v` an int, `d` a dict, `l` a list, `n` None; the code comes last.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

_MASK64: Final = 2**64 - 1
_MASK32: Final = 2**32 - 1

Converter = Callable[[Any], Any]
Implementation = Callable[..., Any]


class _Unfit(Exception):  # noqa: N818 - control flow
    """An argument does not parse; the text, if any, replaces the usual one."""


def _unsigned_long(value: Any) -> int:
    if not isinstance(value, int):
        raise _Unfit
    return value & _MASK64


def _unsigned_int(value: Any) -> int:
    try:
        return operator.index(value) & _MASK32
    except TypeError:
        raise _Unfit from None


def _ranged_int(value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise _Unfit from None
    if not -(2**31) <= number < 2**31:
        raise _Unfit
    return number


def _text(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise _Unfit
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _Unfit from None
    return value


def _float(value: Any) -> float:
    if isinstance(value, (str, bytes, bytearray)):
        raise _Unfit
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise _Unfit from None


def _instance(kind: type, article: str) -> Converter:
    def convert(value: Any) -> Any:
        if not isinstance(value, kind):
            raise _Unfit(f"argument {{n}} is not {article}")
        return value

    return convert


def _callable(value: Any) -> Any:
    if not callable(value):
        raise _Unfit("parameter must be callable")
    return value


def _any(value: Any) -> Any:
    return value


_CONVERTERS: Final[dict[str, Converter]] = {
    "k": _unsigned_long,
    "I": _unsigned_int,
    "i": _ranged_int,
    "K": _unsigned_long,
    "s": _text,
    "f": _float,
    "O": _any,
    "L": _instance(list, "list"),
    "D": _instance(dict, "dict"),
    "F": _callable,
}
_EMPTY: Final[dict[str, Callable[[], Any]]] = {"v": int, "d": dict, "l": list, "n": lambda: None}


@dataclass(frozen=True, slots=True)
class Call:
    """One function of `acl`.

    Attributes:
        name: Its name without `acl.`.
        formats: Its arguments' formats.
        returns: Its return form.
        needs_context: Whether the thread must have a context, which is then the first argument.
        implementation: Takes the machine, the context if needed, and the converted arguments.
    """

    name: str
    formats: str
    returns: str
    needs_context: bool
    implementation: Implementation

    def failure(self, code: int) -> Any:
        """Return what the function returns when it fails with `code`."""
        parts = [code if form == "r" else _EMPTY[form]() for form in self.returns]
        return parts[0] if len(parts) == 1 else tuple(parts)

    def parser(self) -> Callable[[tuple[Any, ...]], list[Any]]:
        """Return a function that converts arguments or raises pyACL's TypeError."""
        required, _, optional = self.formats.partition("|")
        converters = [_CONVERTERS[form] for form in required + optional]
        least, most = len(required), len(converters)
        bang = "!" if self.name.startswith("mdl.") else ""
        text = f"acl.{self.name} args parse failed{bang}"

        def parse(args: tuple[Any, ...]) -> list[Any]:
            if not least <= len(args) <= most:
                count = f"function takes exactly {most} arguments ({len(args)} given)"
                raise TypeError(count if self.name == "util.start_thread" else text)
            number = 0
            try:
                converted = []
                for convert, value in zip(converters, args):  # noqa: B905 - optional ones may lack
                    number += 1
                    converted.append(convert(value))
            except _Unfit as unfit:
                special = str(unfit).format(n=number)
                raise TypeError(special or text) from None
            return converted

        return parse


#: Every function of `acl` that the emulator has, by name; filled by the modules that define them.
CALLS: Final[dict[str, Call]] = {}


def acl_call(
    name: str, formats: str = "", returns: str = "r", *, context: bool = False
) -> Callable[[Implementation], Implementation]:
    """Declare the decorated function as `acl.<name>`."""

    def register(implementation: Implementation) -> Implementation:
        CALLS[name] = Call(name, formats, returns, context, implementation)
        return implementation

    return register
