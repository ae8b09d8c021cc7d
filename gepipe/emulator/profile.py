"""The profile of an emulated machine: its cards, how fast they are, and what goes wrong.

A profile is a YAML file; unknown keys are errors. Everything has a default:

    name: published               # cards of one name are shared by the processes of this machine
    soc: Ascend310P3              # what acl.get_soc_name() returns
    devices: 2                    # or a list, one {memory: 24GiB, used: 1GiB} per card
    memory: 24GiB                 # per card
    memory_kind: ddr              # or hbm: which kinds get_mem_info knows
    run_mode: host                # or device: device memory is then host-addressable
    copy: {gb_per_s: 12, latency_us: 10}
    latency_ms: {1: 22, 8: 44.4, 32: 61.5}   # per batch size, interpolated
    models: {"bert*": {1: 3.5}}   # latencies of models of these names instead
    pace_computing: false         # whether models that compute take that long as well
    seed: null                    # a number: virtual time and a random but repeatable interleaving
    hold_gil: true                # synchronous calls stall other threads, as pyACL's do
    limits: {processes: 64, streams: 1024, events: 1023}
    faults:
      - {call: mdl.execute_async, at: 3, code: 507011}      # fails when it runs
      - {call: rt.malloc, at: 2, code: 207001, times: 5}
      - {call: mdl.execute_async, at: 9, hang: true, device: 1}
      - {call: mdl.execute_async, at: 12, lost: true}       # the card is gone for this process
"""

from __future__ import annotations

import bisect
import fnmatch
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from gepipe.emulator.checks import (
    checked,
    count,
    flag,
    mapping,
    number,
    one_of,
    section,
    size,
    text,
)
from gepipe.emulator.errors import ProfileError
from gepipe.engines.ge.codes import CODES

#: Folder of the profiles that gepipe brings along; their names stand for their paths.
SHIPPED: Final = Path(__file__).parent / "profiles"
_LOST_HEARTBEAT: Final = 507010


@dataclass(frozen=True, slots=True)
class Curve:
    """Latency over batch size: straight lines between the points, and the last one goes on.

    Attributes:
        points: (batch size, seconds), ascending.
    """

    points: tuple[tuple[int, float], ...] = ()

    def seconds(self, batch: int) -> float:
        """Return how long a batch of this size takes."""
        if not self.points:
            return 0.0
        sizes = [size for size, _ in self.points]
        right = min(max(bisect.bisect_left(sizes, batch), 1), len(sizes) - 1)
        if batch <= sizes[0] or right == 0:
            return self.points[0][1]
        (low, before), (high, after) = self.points[right - 1], self.points[right]
        return before + (after - before) * (batch - low) / (high - low)


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """One card.

    Attributes:
        memory_bytes: Its memory.
        used_bytes: What other programs are supposed to use of it.
    """

    memory_bytes: int = 24 * 2**30
    used_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong at the n-th call of a function.

    Attributes:
        call: The function's name without `acl.`.
        at: At which call it begins, from 1; calls are counted for each process and device.
        times: At how many calls.
        device: On which device only; None for any.
        code: What is returned, or by an asynchronous call reported when its stream is waited for.
        hang: The call or task never ends.
        lost: The device is lost: every later call on it fails with `code`.
        once_file: A file that is made when the fault strikes, and spares every process from then
            on; for programs that replace a process whose card failed.
    """

    call: str
    at: int = 1
    times: int = 1
    device: int | None = None
    code: int = _LOST_HEARTBEAT
    hang: bool = False
    lost: bool = False
    once_file: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """How many of each a card allows."""

    processes: int = 64
    streams: int = 1024
    events: int = 1023


@dataclass(frozen=True, slots=True)
class Copying:
    """How fast data moves between host and card."""

    gb_per_s: float = 12.0
    latency_us: float = 10.0

    def seconds(self, nbytes: int) -> float:
        """Return how long a copy takes."""
        return self.latency_us * 1e-6 + nbytes / (self.gb_per_s * 1e9)


@dataclass(frozen=True, slots=True)
class Profile:
    """An emulated machine. See the module for the meaning of each attribute."""

    name: str = "default"
    soc: str = "Ascend310P3"
    devices: tuple[DeviceSpec, ...] = (DeviceSpec(),)
    memory_kind: str = "ddr"
    run_mode: str = "host"
    copy: Copying = field(default_factory=Copying)
    latency: Curve = field(default_factory=Curve)
    models: Mapping[str, Curve] = field(default_factory=dict)
    pace_computing: bool = False
    seed: int | None = None
    hold_gil: bool = True
    limits: Limits = field(default_factory=Limits)
    faults: tuple[Fault, ...] = ()

    def latency_of(self, model: str) -> Curve:
        """Return the latencies of the model of this name."""
        for pattern, curve in self.models.items():
            if fnmatch.fnmatchcase(model, pattern):
                return curve
        return self.latency


def load_profile(name_or_path: str) -> Profile:
    """Read a profile by the path of its YAML file, or by the name of one that gepipe ships.

    Raises:
        ProfileError: It does not exist, or has problems; all of them are listed.
    """
    import yaml

    path = Path(name_or_path)
    if not path.suffix and (shipped := SHIPPED / f"{name_or_path}.yaml").exists():
        path = shipped
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        known = ", ".join(sorted(file.stem for file in SHIPPED.glob("*.yaml")))
        raise ProfileError(f"emulator profile {path}: {error}; shipped: {known}") from error
    try:
        return parse_profile(raw or {}, default_name=path.stem)
    except ProfileError as error:
        raise ProfileError(f"emulator profile {path}: {error}") from None


def parse_profile(raw: object, *, default_name: str = "default") -> Profile:
    """Make a profile of parsed YAML.

    Raises:
        ProfileError: With all problems found.
    """
    problems: list[str] = []
    known = mapping(raw, "profile", problems)
    values: dict[str, Any] = {"name": default_name}
    memory = 24 * 2**30
    for key, value in known.items():
        try:
            if key == "memory":
                memory = size(value)
            elif key == "latency_ms":
                values["latency"] = _curve(value)
            elif (read := _READERS.get(key)) is None:
                problems.append(f"{key}: unknown; known: {', '.join(sorted(_READERS))}")
            else:
                values[key] = read(value)
        except (TypeError, ValueError) as error:
            problems.append(f"{key}: {error}")
    if problems:
        raise ProfileError("; ".join(problems))
    cards = values.get("devices", ({},))
    values["devices"] = tuple(
        DeviceSpec(card.get("memory", memory), card.get("used", 0)) for card in cards
    )
    return Profile(**values)


def _curve(value: object) -> Curve:
    if isinstance(value, (int, float)):
        return Curve(((1, number(value) / 1000),))
    if not isinstance(value, dict) or not value:
        raise ValueError(f"milliseconds per batch size were expected, not {value!r}")
    points = sorted((count(size), number(ms) / 1000) for size, ms in value.items())
    if points[0][0] == 0:
        raise ValueError("batch sizes begin at 1")
    return Curve(tuple(points))


def _cards(value: object) -> tuple[dict[str, Any], ...]:
    if isinstance(value, list):
        return tuple(checked(each, {"memory": size, "used": size}) for each in value)
    return ({},) * count(value)


def _faults(value: object) -> tuple[Fault, ...]:
    if not isinstance(value, list):
        raise ValueError(f"a list was expected, not {value!r}")  # noqa: TRY004
    readers: dict[str, Callable[[object], Any]] = {each.name: count for each in fields(Fault)}
    readers |= {"call": text, "hang": flag, "lost": flag, "once_file": text}
    faults = tuple(Fault(**checked(each, readers)) for each in value)
    for fault in faults:
        if fault.code not in CODES:
            raise ValueError(f"{fault.code} is no code of ACL")
    return faults


def _models(value: object) -> dict[str, Curve]:
    problems: list[str] = []
    found = mapping(value, "models", problems)
    if problems:
        raise ValueError(problems[0])
    return {pattern: _curve(each) for pattern, each in found.items()}


_READERS: Final[dict[str, Callable[[object], Any]]] = {
    "name": text,
    "soc": text,
    "devices": _cards,
    "memory": size,
    "memory_kind": one_of("ddr", "hbm"),
    "run_mode": one_of("host", "device"),
    "copy": section(Copying, {"gb_per_s": number, "latency_us": number}),
    "latency_ms": _curve,
    "models": _models,
    "pace_computing": flag,
    "seed": lambda value: None if value is None else count(value),
    "hold_gil": flag,
    "limits": section(Limits, dict.fromkeys(("processes", "streams", "events"), count)),
    "faults": _faults,
}
