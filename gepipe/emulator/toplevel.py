"""The functions of `acl` itself."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from gepipe.emulator.api import acl_call

if TYPE_CHECKING:
    from gepipe.emulator.machine import Machine

INVALID_FILE, PARSE_FILE = 100003, 100006
UNINITIALISED, REPEATED_INIT, REPEATED_FINALIZE = 100001, 100002, 100037
_DEEPEST = 10


def _depth(text: str, opening: str, closing: str) -> int:
    """Return how deep brackets lie in one another, those in texts included."""
    steps = ((each == opening) - (each == closing) for each in text)
    return max(itertools.accumulate(steps), default=0)


def _config_problem(path: str) -> tuple[int, str]:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        return INVALID_FILE, f"{path}: {error.strerror}"
    except UnicodeDecodeError as error:
        return PARSE_FILE, f"{path}: {error}"
    if not text:
        return 0, ""
    for opening, closing in ("{}", "[]"):
        if _depth(text, opening, closing) > _DEEPEST:
            return PARSE_FILE, f"{path}: more than {_DEEPEST} {opening} in one another"
    try:
        json.loads(text)
    except ValueError as error:
        return PARSE_FILE, f"{path}: {error}"
    return 0, ""


@acl_call("init", "|s")
def init(machine: Machine, path: str = "") -> int:
    """Initialise ACL, once in a process."""
    if machine.initialised:
        machine.init_count += 1
        return machine.fail(REPEATED_INIT, "acl.init was called before")
    if path:
        code, text = _config_problem(path)
        if code:
            return machine.fail(code, text)
    if machine.finalised:
        machine.lenient("acl.init after acl.finalize is supported by newer releases only")
    machine.initialised, machine.finalised = True, False
    machine.init_count = 1
    return 0


@acl_call("finalize", "*")
def finalize(machine: Machine) -> int:
    """Finalise ACL, once in a process."""
    if not machine.initialised:
        code = REPEATED_FINALIZE if machine.finalised else UNINITIALISED
        return machine.fail(code, "acl.finalize was called before, or acl.init never")
    left = machine.leaks()
    if left and machine.strict:  # compatible mode tells of it at the end of the program
        machine.lenient(f"acl.finalize with {len(left)} objects left, such as {left[0]}")
    machine.initialised, machine.finalised = False, True
    if machine.statistics_folder:
        write_statistics(machine)
    for device in machine.devices:
        device.leave()
    return 0


def write_statistics(machine: Machine) -> None:
    """Write how busy this process's devices were, and what the emulator itself cost it.

    For each device: seconds by engine of the hardware. For each function called: how often, and
    the CPU seconds in it, which a real card's program would spend otherwise.
    """
    cards = [
        {
            "card": device.card,
            "busy_s": device.spent_s,
            "began_s": device.began_s,
            "ended_s": device.busy_s,
            "memory_peak_bytes": device.memory.peak,
        }
        for device in machine.devices
    ]
    path = Path(machine.statistics_folder) / f"{os.getpid()}.json"
    calls = {name: spent for name, spent in machine.calls.items() if spent[0]}
    text = json.dumps({"profile": machine.profile.name, "devices": cards, "calls": calls})
    path.write_text(text)


@acl_call("finalize_reference", "", "vr")
def finalize_reference(machine: Machine) -> tuple[int, int]:
    """Undo one `init`; the last one finalises ACL."""
    if not machine.initialised:
        return 0, machine.fail(REPEATED_FINALIZE, "acl.finalize was called before")
    machine.init_count -= 1
    return (machine.init_count, 0) if machine.init_count else (0, finalize(machine))


@acl_call("get_soc_name", "*", "v")
def get_soc_name(machine: Machine) -> str:
    """Return the chip's name."""
    return machine.profile.soc


@acl_call("get_version", "*", "vvvr")
def get_version(_machine: Machine) -> tuple[int, int, int, int]:
    """Return the version of the interface."""
    return 1, 12, 0, 0


@acl_call("get_recent_err_msg", "", "v")
def get_recent_err_msg(machine: Machine) -> str | None:
    """Return and clear what went wrong in this thread."""
    messages, machine.thread.messages = machine.thread.messages, []
    return "".join(messages) or None


@acl_call("app_log", "is", "n")
def app_log(_machine: Machine, _level: int, _text: str) -> None:
    """Write to the log of ACL, which the emulator does not have."""
    return
