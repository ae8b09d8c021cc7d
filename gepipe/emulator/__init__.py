"""An emulated Ascend NPU: a module like `acl` for machines without a card.

It is never chosen silently. `install()` or `import gepipe.emulator.auto` with `GEPIPE_ACL=emulator`
put it in place, and `python -m gepipe.emulator PROGRAM.py` runs any pyACL program on it. It says so
on stderr. What it does follows the CANN manual and headers, and was not compared with hardware.
"""

from __future__ import annotations

from gepipe.emulator.errors import EmulatorError, OmError, OutOfScopeError, ProfileError
from gepipe.emulator.installation import install
from gepipe.emulator.modes import Mode
from gepipe.emulator.profile import Profile, load_profile

__all__ = [
    "EmulatorError",
    "Mode",
    "OmError",
    "OutOfScopeError",
    "Profile",
    "ProfileError",
    "install",
    "load_profile",
]
