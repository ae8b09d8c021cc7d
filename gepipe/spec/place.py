"""Values of a pipeline file that know where they were written, and problems with them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, TypeAlias

from gepipe.errors import ConfigError

Scalar: TypeAlias = "str | int | float | bool | None"

#: More values than this, aliases followed, is a mistake or an attack.
MAX_VALUES: Final = 100_000


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where something was written: a line of the file, or an override.

    Attributes:
        override: The text after `--set`; empty for the file.
        line: Line of the file, from 1; for an override its position on the command line.
    """

    override: str = ""
    line: int = 1


@dataclass(slots=True, eq=False)
class Node:
    """One value of the tree.

    Attributes:
        value: A scalar, or the children by key or by index.
        place: Where the value begins.
        keys: Where each key of a mapping stands.
    """

    value: Scalar | dict[str, Node] | list[Node]
    place: Place
    keys: dict[str, Place] = field(default_factory=dict)

    def put(self, key: str, child: Node) -> None:
        """Set a key of a mapping, in place of what it held."""
        assert isinstance(self.value, dict)
        self.value[key] = child
        self.keys[key] = child.place

    def plain(self, origin: str) -> Any:
        """Return the values without their places.

        Args:
            origin: What to call the text in an error.

        Raises:
            ConfigError: Aliases blow the tree up beyond `MAX_VALUES`.
        """
        return _plain(self, [MAX_VALUES], origin)

    def unshare(self) -> None:
        """Give every alias a copy of its own below this node, so that each can be changed alone.

        The tree must be known to be no larger than `MAX_VALUES`.
        """
        if isinstance(self.value, dict):
            self.value = {key: _copy(child) for key, child in self.value.items()}
        elif isinstance(self.value, list):
            self.value = [_copy(child) for child in self.value]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, where, and with which key."""

    place: Place
    key: str
    text: str

    def line_of(self, origin: str) -> str:
        """Return `file:line: key: text`, or `--set key=value: text` for an override."""
        if self.place.override:
            return f"--set {self.place.override}: {self.text}"
        where = f"{origin}:{self.place.line}"
        return f"{where}: {self.key}: {self.text}" if self.key else f"{where}: {self.text}"


def refuse(problems: list[Problem], origin: str) -> NoReturn:
    """Raise one error that lists every problem, the file's first, in the order of its lines."""
    ordered = sorted(problems, key=lambda p: (bool(p.place.override), p.place.line))
    raise ConfigError("\n".join(dict.fromkeys(p.line_of(origin) for p in ordered)))


def _copy(node: Node) -> Node:
    copied = Node(node.value, node.place, dict(node.keys))
    copied.unshare()
    return copied


def _plain(node: Node, budget: list[int], origin: str) -> Any:
    budget[0] -= 1
    if budget[0] < 0:
        raise ConfigError(f"{origin}: aliases blow the file up to more than {MAX_VALUES} values")
    if isinstance(node.value, dict):
        return {key: _plain(child, budget, origin) for key, child in node.value.items()}
    if isinstance(node.value, list):
        return [_plain(child, budget, origin) for child in node.value]
    return node.value
