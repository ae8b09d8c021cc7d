"""How strict the emulator is.

*Compatible* lets published programs run that real cards let get away with more than the manual
allows: each such liberty is noted once on stderr. *Strict* turns every one of them into an error.
What is undefined on hardware (a double free, a use after free, a race) is an error in both.
"""

from __future__ import annotations

from enum import Enum

from gepipe.errors import ConfigError


class Mode(Enum):
    """Strictness of the emulator."""

    COMPATIBLE = "compatible"
    STRICT = "strict"

    @classmethod
    def named(cls, name: str) -> Mode:
        """Return the mode of this name.

        Raises:
            ConfigError: There is none.
        """
        try:
            return cls(name)
        except ValueError:
            raise ConfigError(
                f"emulator mode {name!r}: expected `strict` or `compatible` (GEPIPE_ACL_MODE)"
            ) from None
