"""Takes fields out of a configuration and adds lines to it, with comments left where they are."""

from __future__ import annotations

from gepipe.triton.edit import Edit
from gepipe.triton.textnodes import Field, Message


def removal(text: str, field: Field) -> Edit:
    """Return the edit that takes a field away; its whole line if nothing else stands there."""
    start, end = field.start, field.separator_end
    line = text.rfind("\n", 0, start) + 1
    stop = text.find("\n", end)
    stop = len(text) if stop < 0 else stop
    before, after = text[line:start], text[end:stop]
    if not before.strip() and not after.strip():
        return Edit(line, min(stop + 1, len(text)), "")
    while end < stop and text[end] in " \t":  # the space behind it goes with it
        end += 1
    if end == stop or not after.strip():
        while start > line and text[start - 1] in " \t":
            start -= 1
    return Edit(start, end, "")


def appended(text: str, root: Message, line: str) -> Edit:
    """Return the edit that puts a line behind the last field, and behind the comment there."""
    last = max((field.separator_end for field in root.fields), default=0)
    rest = text[last:].partition("\n")[0]
    if not rest.strip() or rest.lstrip().startswith("#"):
        last += len(rest)
    return Edit(last, last, f"\n{line}" if last else f"{line}\n")
