"""Putting the emulator in the place of `acl`."""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING

from gepipe.emulator.modes import Mode
from gepipe.emulator.profile import Profile, load_profile
from gepipe.errors import ConfigError

if TYPE_CHECKING:
    from gepipe.emulator.machine import Machine

#: Environment variables: which `acl` to use, and the emulator's profile and mode.
CHOICE, PROFILE, MODE = "GEPIPE_ACL", "GEPIPE_ACL_PROFILE", "GEPIPE_ACL_MODE"
#: A folder in which each process leaves a file of how busy its cards were when ACL is finalised.
STATISTICS = "GEPIPE_ACL_STATISTICS"


def is_chosen() -> bool:
    """Whether the environment asks for the emulator.

    Raises:
        ConfigError: It asks for something unknown.
    """
    choice = os.environ.get(CHOICE, "")
    if choice not in ("", "npu", "emulator"):
        raise ConfigError(f"{CHOICE}={choice!r}: expected `emulator` or `npu`")
    return choice == "emulator"


def create(
    profile: Profile | str | None = None, mode: Mode | str | None = None, *, quiet: bool = False
) -> ModuleType:
    """Return an emulated `acl` without putting it anywhere.

    Args:
        profile: A profile, its path or its name; by default what `GEPIPE_ACL_PROFILE` says.
        mode: Strict or compatible; by default what `GEPIPE_ACL_MODE` says, else compatible.
        quiet: Print nothing.

    Raises:
        ConfigError: The profile or mode is wrong.
    """
    from gepipe.emulator.machine import Machine
    from gepipe.emulator.report import Report
    from gepipe.emulator.surface import build

    if profile is None:
        profile = os.environ.get(PROFILE, "default")
    if isinstance(profile, str):
        profile = load_profile(profile)
    if mode is None:
        mode = os.environ.get(MODE, Mode.COMPATIBLE.value)
    if isinstance(mode, str):
        mode = Mode.named(mode)
    machine = Machine(profile, mode, Report(quiet=quiet))
    machine.statistics_folder = os.environ.get(STATISTICS, "")
    return build(machine)


def install(
    profile: Profile | str | None = None, mode: Mode | str | None = None, *, quiet: bool = False
) -> ModuleType:
    """Make `import acl` find the emulator, say so on stderr, and return it.

    Does nothing but return it when it is installed already. See `create` for the arguments.

    Raises:
        ConfigError: The profile or mode is wrong, or a real `acl` is imported already.
    """
    from gepipe.emulator.report import LastWords
    from gepipe.emulator.surface import publish
    from gepipe.emulator.trespass import Guard

    present = sys.modules.get("acl")
    if present is not None:
        if hasattr(present, "_machine"):
            return present
        raise ConfigError("acl is imported already, and it is not the emulator")
    acl = create(profile, mode, quiet=quiet)
    publish(acl)
    machine = machine_of(acl)
    used = machine.profile
    machine.report.say(
        f"emulating {len(machine.devices)} x {used.soc}, profile {used.name!r}, "
        f"{machine.mode.value} mode; nothing runs on an NPU"
    )
    LastWords(machine.report).keep()
    machine.guard = Guard(machine)
    return acl


def machine_of(acl: ModuleType) -> Machine:
    """Return the machine behind an emulated `acl`: its report, profile and devices."""
    machine: Machine = vars(acl)["_machine"]
    return machine
