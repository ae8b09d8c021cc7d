"""Which `acl` is used, and its life in this process: initialised once, finalised by its owner.

The emulator takes the place of `acl` only where it is asked for: by `GEPIPE_ACL=emulator`, or by
the engine's option `device: emulator`. There is no way from a missing card to the emulator.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Final

from gepipe import plugins
from gepipe.engines.ge.runtime import ALREADY_INITIALISED, Acl
from gepipe.errors import BackendError, ConfigError, DeviceError, DeviceStateError

#: What may be tried again: the device is busy, in reset, or its driver is starting.
BUSY: Final = frozenset((500000, 507033))
#: The environment variable that asks for the emulator.
_CHOICE: Final = "GEPIPE_ACL"
_PAUSES_S: Final = (0.1, 0.2, 0.4, 0.8, 1.6)


@dataclass
class Library:
    """`acl` as this process uses it.

    Attributes:
        acl: Its checked functions.
        emulated: Whether it is the emulator.
        owned: Whether it was initialised here, so that it is ours to finalise.
        asked: Whether the emulator was asked for, its profile and its mode.
        pid: The process that initialised it; any other was forked from it.
        users: Engines that are open.
    """

    acl: Acl
    emulated: bool
    owned: bool
    asked: tuple[bool, str | None, str | None] = (False, None, None)
    pid: int = field(default_factory=os.getpid)
    users: int = 0

    def check_process(self) -> None:
        """Refuse to work in a process that was forked after ACL was initialised.

        Raises:
            DeviceStateError: This is such a process. The CANN manual forbids it: calls fail or
                hang.
        """
        if os.getpid() != self.pid:
            raise DeviceStateError(
                f"this process was forked from process {self.pid}, which had initialised ACL; the "
                'CANN manual forbids that: use the start method "spawn"',
                fatal=True,
            )

    @property
    def machine(self) -> Any:
        """What the emulator keeps behind its functions."""
        return emulator().machine_of(self.acl.module)

    def note(self) -> str:
        """Say what runs here, for the user."""
        if not self.emulated:
            return ""
        machine = self.machine
        return (
            f"EMULATED NPU: {len(machine.devices)} x {machine.profile.soc}, profile "
            f"{machine.profile.name!r}, {machine.mode.value} mode; nothing runs on a card"
        )


_open: Library | None = None
_lock = threading.Lock()


def acquire(device: str = "auto", profile: str | None = None, mode: str | None = None) -> Library:
    """Return `acl`, initialised.

    Args:
        device: `emulator`, `npu`, or `auto` for what the environment says.
        profile: Of the emulator; by default what the environment says.
        mode: Of the emulator, `strict` or `compatible`; by default what the environment says, else
            strict, because this is our own program.

    Raises:
        BackendError: There is no `acl`, or it cannot be initialised.
        ConfigError: The environment or a profile is wrong.
    """
    global _open  # noqa: PLW0603 - ACL is one for the whole process
    with _lock:
        if _open is not None and _open.users:
            _open.check_process()
            _check_same(_open, (wants_emulator(device), profile, mode))
            _open.users += 1
            return _open
        module, emulated = _module(device, profile, mode)
        acl = Acl(module)
        asked = wants_emulator(device), profile, mode
        _open = Library(acl, emulated, owned=_initialise(acl), asked=asked, users=1)
        return _open


def _check_same(opened: Library, asked: tuple[bool, str | None, str | None]) -> None:
    """Refuse what is asked for while a process has another `acl` open: it can have one only."""
    pairs = zip(opened.asked[1:], asked[1:], strict=True)
    if opened.asked[0] != asked[0] or any(new not in (None, old) for old, new in pairs):
        names = ("an NPU", "the emulator")
        wanted, there = (
            ", ".join(filter(None, (names[which], *how))) for which, *how in (asked, opened.asked)
        )
        raise ConfigError(
            f"ge: a model of this process runs on {there}, and another is to run on {wanted}; one "
            "process has one of them: close the other model first, or use a process of its own"
        )


def release(library: Library) -> None:
    """Finalise ACL with the last engine, if it was initialised here."""
    with _lock:
        library.users -= 1
        if library.users or not library.owned or os.getpid() != library.pid:
            return
        library.acl.finalize()


def with_patience(action: Callable[[], Any], what: str) -> Any:
    """Do something that a busy device refuses, again and again for some seconds.

    Raises:
        DeviceError: It stays busy, or something else is wrong.
    """
    for pause_s in _PAUSES_S:
        try:
            return action()
        except DeviceError as error:
            if error.code not in BUSY:
                raise
        threading.Event().wait(pause_s)
    try:
        return action()
    except DeviceError as error:
        if error.code not in BUSY:
            raise
        raise type(error)(
            f"{what} is busy or cannot be set up, also after {sum(_PAUSES_S):.0f} s of trying: "
            f"{error}; look for other processes with `npu-smi info` (a device takes at most 64 of "
            "them, 32 in a virtual machine), and whether driver and CANN fit together",
            code=error.code,
            call=error.call,
        ) from error


def _initialise(acl: Acl) -> bool:
    """Initialise ACL; return whether it was us who did."""

    def attempt() -> bool:
        try:
            acl.init()
        except DeviceError as error:
            if error.code != ALREADY_INITIALISED:  # by torch_npu, MindSpore or another library
                raise
            return False
        return True

    return bool(with_patience(attempt, "ACL"))


def wants_emulator(device: str) -> bool:
    """Whether the option or the environment asks for the emulator.

    Raises:
        ConfigError: One of them says something unknown.
    """
    if device not in ("auto", "npu", "emulator"):
        raise ConfigError(f"ge: device {device!r}: expected `emulator` or `npu`")
    if device != "auto" or not os.environ.get(_CHOICE):
        return device == "emulator"
    return bool(emulator().is_chosen())


def emulator() -> Any:
    """Return what can install the emulator: a part of gepipe that engines know by name only."""
    return plugins.load("acl", "emulator")


def _module(device: str, profile: str | None, mode: str | None) -> tuple[ModuleType, bool]:
    if wants_emulator(device):
        chosen = mode or os.environ.get(emulator().MODE) or "strict"
        return emulator().install(profile, chosen, quiet=True), True
    if profile is not None or mode is not None:
        raise ConfigError(
            "ge: `profile` and `mode` are of the emulator; set `device: emulator` as well"
        )
    try:
        module = importlib.import_module("acl")
    except ImportError as error:
        raise BackendError(
            f"pyACL does not import: {error}; install CANN and run `source "
            "/usr/local/Ascend/ascend-toolkit/set_env.sh` before gepipe (in services as well), or "
            "try it on the emulator with GEPIPE_ACL=emulator"
        ) from error
    if not hasattr(module, "rt") or not hasattr(module, "mdl"):
        raise BackendError(
            f"the module `acl` at {getattr(module, '__file__', '?')} is not pyACL; expected the "
            "one of CANN: look at PYTHONPATH"
        )
    return module, hasattr(module, "_machine")
