"""The parts of a text in protobuf's text format, each of which knows where it stands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from gepipe.triton.edit import Edit

_TOKEN: Final = re.compile(
    r"""(?P<space>(?:\s|\#[^\n]*)+)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<number>\.?\d(?:[eE][+-](?=\d)|[\w.])*)
    |(?P<string>"(?:\\[^\n]|[^"\\\n])*"|'(?:\\[^\n]|[^'\\\n])*')
    |(?P<broken>["'][^\n]*)
    |(?P<symbol>.)""",
    re.ASCII | re.DOTALL | re.VERBOSE,
)
_ESCAPE: Final = re.compile(
    r"\\(?:(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U(00[0-9a-fA-F]{6}))|([0-7]{1,3})|(.))",
    re.DOTALL,
)
_ESCAPED: Final = {"n": "\n", "r": "\r", "t": "\t", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_INTEGER: Final = re.compile(r"-?(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)")


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of text; all of them joined are the text."""

    kind: Literal["space", "name", "number", "string", "broken", "symbol", "end"]
    text: str
    start: int

    @property
    def end(self) -> int:
        """Offset behind its last character."""
        return self.start + len(self.text)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value that is no message: the source text, and where it stands."""

    kind: Literal["string", "name", "number"]
    source: str
    start: int
    end: int
    strings: tuple[str, ...] = ()  # of a string: its parts, which the format joins

    @property
    def text(self) -> str:
        """A string without quotes and escapes; anything else as it is written."""
        if self.kind != "string":
            return self.source
        return "".join(_ESCAPE.sub(_unescaped, part[1:-1]) for part in self.strings)

    @property
    def integer(self) -> int | None:
        """Its value if it is a whole number as the format has them."""
        if self.kind != "number" or not _INTEGER.fullmatch(self.source):
            return None
        digits = self.source.lstrip("-")
        if digits[:2] in ("0x", "0X"):
            value = int(digits, 16)
        else:
            value = int(digits, 8 if digits.startswith("0") else 10)
        return -value if self.source.startswith("-") else value


@dataclass(slots=True)
class Message:
    """Fields between braces, or all of a file."""

    start: int
    end: int = 0
    fields: list[Field] = field(default_factory=list)

    def named(self, name: str) -> list[Field]:
        """Return the fields of a name, in order."""
        return [each for each in self.fields if each.name == name]

    def scalars(self, name: str) -> list[Scalar]:
        """Return all values of a field that are no messages."""
        return [v for each in self.named(name) for v in each.values if isinstance(v, Scalar)]

    def messages(self, name: str) -> list[Message]:
        """Return all values of a field that are messages."""
        return [v for each in self.named(name) for v in each.values if isinstance(v, Message)]

    def scalar(self, name: str) -> Scalar | None:
        """Return the value of a field that stands once."""
        found = self.scalars(name)
        return found[-1] if found else None

    def message(self, name: str) -> Message | None:
        """Return the message of a field that stands once."""
        found = self.messages(name)
        return found[-1] if found else None

    def text(self, name: str) -> str:
        """Return the text of a field, empty where there is none."""
        found = self.scalar(name)
        return found.text if found else ""

    def integer(self, name: str) -> int:
        """Return the whole number of a field, 0 where there is none."""
        found = self.scalar(name)
        return (found.integer or 0) if found else 0


@dataclass(slots=True)
class Field:
    """A name with its values, of which a list may give several or none."""

    name: str
    start: int
    name_end: int
    values: list[Scalar | Message] = field(default_factory=list)
    is_list: bool = False
    end: int = 0
    separator_end: int = 0  # behind the comma or semicolon that may follow


@dataclass(frozen=True, slots=True)
class Fault:
    """Something the format does not allow, and the one way to put it right if there is one."""

    offset: int
    text: str
    edit: Edit | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """A text that was read."""

    text: str
    tokens: tuple[Token, ...]
    root: Message
    faults: tuple[Fault, ...]

    def write(self) -> str:
        """Return the text again, from its tokens."""
        return "".join(token.text for token in self.tokens)


def tokens(text: str) -> Iterator[Token]:
    """Cut a text into tokens."""
    for found in _TOKEN.finditer(text):
        yield Token(found.lastgroup, found.group(), found.start())  # type: ignore[arg-type]


def _unescaped(found: re.Match[str]) -> str:
    if found[5] is not None:
        return _ESCAPED.get(found[5], found[5])
    if found[4]:
        return chr(int(found[4], 8) & 0xFF)
    return chr(int(found[1] or found[2] or found[3], 16))


def wrong_escape(string: str) -> str:
    """Return the first escape of a string that the format has not; empty for none."""
    for found in _ESCAPE.finditer(string):
        if found[5] is not None and found[5] not in "abfnrtv\\?'\"":
            return found.group()
    return ""
