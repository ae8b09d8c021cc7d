"""What the emulator raises where real hardware would be undefined, crash, or corrupt data."""

from __future__ import annotations

from gepipe.errors import ConfigError, GepipeError


class EmulatorError(GepipeError):
    """A program broke a rule of pyACL whose consequence on hardware is undefined.

    pyACL itself never raises for a failure of ACL; it returns a code. So this error can only come
    from the emulator, and always means a bug of the program.
    """


class OutOfScopeError(EmulatorError, AttributeError):
    """The program asked for a part of pyACL that the emulator does not have, such as DVPP."""


class ProfileError(ConfigError):
    """A profile of the emulator is wrong. Lists every problem found."""


class OmError(GepipeError):
    """A file is not a model of the emulator.

    Attributes:
        code: What `acl.mdl.load_from_file` returns for it.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code
