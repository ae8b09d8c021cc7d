"""Protobuf's text format, read so that every part knows where it stands.

Follows the C++ parser of the server, which is stricter than the one of Python. What it refuses
becomes a fault, and reading goes on, so that one look finds everything. Where only one correction
is possible, the fault has it.
"""

from __future__ import annotations

from typing import Final, Literal

from gepipe.triton.edit import Edit
from gepipe.triton.textnodes import (
    Document,
    Fault,
    Field,
    Message,
    Scalar,
    Token,
    tokens,
    wrong_escape,
)

#: A message deeper than this is refused; Triton's own never nest more than 8 deep.
_DEEPEST: Final = 64
_CLOSES: Final = {"{": "}", "<": ">"}


def parse(text: str) -> Document:
    """Read a text; never fails."""
    cut = tuple(tokens(text))
    reading = _Reading([t for t in cut if t.kind != "space"], len(text))
    root = reading.read_root()
    return Document(text, cut, root, tuple(reading.faults))


class _Reading:
    def __init__(self, tokens: list[Token], length: int) -> None:
        self.faults: list[Fault] = []
        self._tokens = [*tokens, Token("end", "", length)]
        self._at = 0

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _fault(self, token: Token, text: str, edit: Edit | None = None) -> None:
        self.faults.append(Fault(token.start, text, edit))

    def read_root(self) -> Message:
        root = Message(0)
        if self._next.text == "\ufeff":
            mark = self._take()
            self._fault(
                mark,
                "the file begins with a byte order mark; expected plain UTF-8",
                Edit(mark.start, mark.end, ""),
            )
        self._read_fields(root, None, 0)
        root.end = self._next.end
        return root

    def _read_fields(self, message: Message, opened: Token | None, depth: int) -> None:
        """Read up to the end of a message, and over its closing brace."""
        closing = _CLOSES[opened.text] if opened else ""
        while True:
            token = self._next
            if token.kind == "end" or (opened and token.text == "]"):
                if opened:
                    self._missing_brace(token, opened, closing)
                    message.end = self._tokens[self._at - 1].end
                return
            if opened and token.text == closing:
                message.end = self._take().end
                return
            if token.kind in ("name", "string"):
                message.fields.append(self._read_field(depth))
            elif token.text == "[":
                self._fault(token, "expected a field's name, got `[`")
                self._skip_list()
            else:
                self._take()
                what = repr(token.text) if not token.text.isprintable() else f"`{token.text}`"
                self._fault(token, f"expected a field's name, got {what}")

    def _missing_brace(self, token: Token, opened: Token, closing: str) -> None:
        if token.kind == "end":
            self.faults.append(
                Fault(opened.start, f"`{opened.text}` is never closed; expected `{closing}`")
            )
        else:
            self._fault(
                token, f"expected `{closing}` before `]`", Edit(token.start, token.start, closing)
            )

    def _read_field(self, depth: int) -> Field:
        name = self._take()
        text = name.text
        if name.kind == "string":
            text = name.text[1:-1]
            self._fault(
                name,
                f"the name of a field stands in quotes; expected {text}",
                Edit(name.start, name.end, text) if text.isidentifier() else None,
            )
        found = Field(text, name.start, name.end)
        has_colon = self._next.text in (":", "=")
        if has_colon:
            colon = self._take()
            if colon.text == "=":
                self._fault(colon, "expected `:`, got `=`", Edit(colon.start, colon.end, ":"))
        token = self._next
        if token.text == "[":
            self._read_list(found, depth)
        elif (value := self._read_value(depth)) is None:
            got = f"`{token.text}`" if token.text else "the end of the file"
            self._fault(token, f"{text}: expected a value, got {got}")
        else:
            found.values.append(value)
        if not has_colon and any(isinstance(value, Scalar) for value in found.values):
            edit = Edit(found.name_end, found.name_end, ":")
            self._fault(token, f"{text}: expected `:`, got {token.text}", edit)
        found.end = found.separator_end = self._tokens[self._at - 1].end
        if self._next.text in (",", ";"):
            found.separator_end = self._take().end
        return found

    def _read_value(self, depth: int) -> Scalar | Message | None:
        token = self._next
        if token.text in ("{", "<"):
            opened = self._take()
            message = Message(opened.start)
            if depth >= _DEEPEST:
                self._fault(opened, f"messages nest more than {_DEEPEST} deep")
                self._at = len(self._tokens) - 1
                message.end = self._tokens[self._at - 1].end
                return message
            self._read_fields(message, opened, depth + 1)
            return message
        if token.kind == "string":
            return self._read_strings()
        if token.kind == "broken":
            return self._read_broken()
        sign = self._take().text if token.text == "-" and self._is_signed() else ""
        if self._next.kind not in ("number", "name"):
            return None
        last = self._take()
        kind: Literal["number", "name"] = "number" if sign or last.kind == "number" else "name"
        return Scalar(kind, sign + last.text, token.start, last.end)

    def _is_signed(self) -> bool:
        return self._tokens[self._at + 1].kind in ("number", "name")

    def _read_broken(self) -> Scalar:
        token = self._take()
        quote = token.text[0]
        self._fault(token, f"this string has no end; expected {quote} on the same line")
        return Scalar("string", token.text, token.start, token.end, (token.text + quote,))

    def _read_strings(self) -> Scalar:
        first = last = self._take()
        parts = [first]
        while self._next.kind == "string" and self._tokens[self._at + 1].text != ":":
            last = self._take()
            parts.append(last)
        for part in parts:
            if wrong := wrong_escape(part.text):
                self._fault(
                    part, f"the string has the escape {wrong}; expected \\\\ for a backslash"
                )
        return Scalar(
            "string",
            " ".join(part.text for part in parts),
            first.start,
            last.end,
            tuple(part.text for part in parts),
        )

    def _read_list(self, found: Field, depth: int) -> None:
        opened = self._take()
        found.is_list = True
        while self._next.text != "]":
            token = self._next
            value = self._read_value(depth)
            if value is None:
                self._fault(
                    token,
                    f"{found.name}: expected a value or `]`, got "
                    + (f"`{token.text}`" if token.text else "the end of the file"),
                )
                if token.kind == "end" or token.text in ("}", ">"):
                    return  # left to whoever opened what this closes
                if token.text == "[":
                    self._skip_list()
                else:
                    self._take()
                continue
            found.values.append(value)
            if self._next.text == ",":
                comma = self._take()
                if self._next.text == "]":
                    self._fault(
                        comma,
                        f"{found.name}: comma before `]`; expected no comma there",
                        Edit(comma.start, comma.end, ""),
                    )
            elif self._next.text != "]" and not self._no_comma(found, opened):
                return
        self._take()

    def _no_comma(self, found: Field, opened: Token) -> bool:
        """Note what is missing between two values; return whether the list goes on."""
        token, before = self._next, self._tokens[self._at - 1]
        if token.kind in ("string", "number") or token.text in ("{", "<"):
            self._fault(
                token,
                f"{found.name}: expected `,` between the parts of a list",
                Edit(before.end, before.end, ","),
            )
            return True
        then = self._tokens[min(self._at + 1, len(self._tokens) - 1)].text
        sure = token.kind == "end" or (token.kind == "name" and then in (":", "{", "[", "="))
        self._fault(
            opened,
            f"{found.name}: `[` is never closed; expected `]` before "
            + (f"`{token.text}`" if token.text else "the end of the file"),
            Edit(before.end, before.end, " ]") if sure else None,
        )
        return False

    def _skip_list(self) -> None:
        depth = 0
        while self._next.kind != "end":
            token = self._take()
            depth += (token.text == "[") - (token.text == "]")
            if not depth:
                return
