"""Importing this module installs the emulator if `GEPIPE_ACL=emulator`, and does nothing otherwise.

One line for programs that are imported by others: `import gepipe.emulator.auto`.
"""

from __future__ import annotations

from gepipe.emulator.installation import install, is_chosen

if is_chosen():
    install()
