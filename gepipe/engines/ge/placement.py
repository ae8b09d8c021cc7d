"""Which model goes onto which device: by free device memory, before anything is loaded.

What a device has free and a model needs, only ACL knows, and the process that supervises a run must
not initialise it: its workers are forked from a server that it starts. So a process of its own
asks.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from gepipe.engines.ge import library, modelfile
from gepipe.engines.ge.buddy import charged
from gepipe.engines.ge.memory import free_memory, gib
from gepipe.engines.ge.runtime import Acl
from gepipe.errors import BackendError, DeviceError, ModelLoadError

_LIMIT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class DeviceState:
    """A device at one moment.

    Attributes:
        device: Its number, as ACL counts.
        free: Free bytes of its memory; 0 where it cannot be used.
        total: All bytes.
        error: Why it cannot be used; empty where it can.
    """

    device: int
    free: int
    total: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class Survey:
    """What there is, and what models need.

    Attributes:
        soc: Name of the chips.
        devices: All that can be seen.
        needs: Model path to bytes of device memory; 0 where it is not known before it runs.
    """

    soc: str
    devices: tuple[DeviceState, ...]
    needs: Mapping[str, int]


def survey(models: Sequence[Path] = (), options: Mapping[str, Any] | None = None) -> Survey:
    """Ask ACL, in a process of its own.

    Args:
        models: Models to ask about.
        options: The engine's options in the YAML.

    Raises:
        BackendError: There is no ACL, or it cannot be used.
    """
    raw = _ask([str(path) for path in models], options or {}, states=True)
    return Survey(raw["soc"], tuple(DeviceState(**each) for each in raw["devices"]), raw["needs"])


def chip(options: Mapping[str, Any] | None = None) -> str:
    """Return the name of the chip, for which a model is converted, in a process of its own.

    Args:
        options: The engine's options in the YAML.

    Raises:
        BackendError: There is no ACL, or it cannot be used: what is converted could not be run.
    """
    return str(_ask([], options or {}, states=False)["soc"])


def _ask(models: Sequence[str], options: Mapping[str, Any], *, states: bool) -> Any:
    request = json.dumps({"models": models, "options": options, "states": states})
    command = [sys.executable, "-m", "gepipe.engines.ge.placement", request]
    try:
        done = subprocess.run(  # noqa: S603 - our own module
            command, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise BackendError(
            f"the devices did not answer within {_LIMIT_S:.0f} s; look at `npu-smi info`"
        ) from error
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        reason = (lines or done.stderr.splitlines() or [f"status {done.returncode}"])[-1]
        raise BackendError(reason)
    return json.loads(lines[-1])


def place(needs: Sequence[tuple[str, int]], free: Mapping[int, int]) -> list[int]:
    """Choose a device for each model: the largest first, where most memory is free.

    Args:
        needs: Name and bytes of each model, instances one by one.
        free: Device to free bytes.

    Returns:
        The device of each model, in the order of `needs`.

    Raises:
        ModelLoadError: They do not fit; the message has the sums.
    """
    left = dict(free)
    chosen = [-1] * len(needs)
    for at in sorted(range(len(needs)), key=lambda at: -needs[at][1]):
        name, nbytes = needs[at]
        device = max(left, key=lambda device: (left[device], -device), default=-1)
        if device < 0 or left[device] < nbytes:
            wanted = sum(nbytes for _, nbytes in needs)
            listed = ", ".join(f"{device}: {gib(each)}" for device, each in sorted(left.items()))
            raise ModelLoadError(
                f"{name} needs {gib(nbytes)} of device memory and fits nowhere: free are "
                f"{listed or 'no devices'}, after placing what is larger; all {len(needs)} models "
                f"together need {gib(wanted)} of {gib(sum(free.values()))}; use fewer instances, "
                "more devices or smaller gears"
            )
        left[device] -= nbytes
        chosen[at] = device
    return chosen


def _need(acl: Acl, file: modelfile.ModelFile) -> int:
    """Return the device memory that a model needs; 0 where it is not known before it runs."""
    from gepipe.engines.ge.loading import describe_file, pool_nbytes

    description = describe_file(acl, file)
    if file.is_shape_range or (description is not None and description.kind == "range"):
        return 0
    parts = list(acl.query_size(str(file.path)))
    if description is not None:
        parts.append(pool_nbytes(description))
    return sum(charged(nbytes) for nbytes in parts if nbytes)


def _survey_here(models: Sequence[str], options: Mapping[str, Any], *, states: bool) -> Survey:
    used = library.acquire(
        options.get("device", "auto"), options.get("profile"), options.get("mode")
    )
    acl = used.acl
    try:
        found = []
        needs: dict[str, int] = {}
        for device in range(acl.get_device_count() if states else 0):
            try:
                acl.set_device(device)
            except DeviceError as error:
                found.append(DeviceState(device, 0, 0, str(error)))
                continue
            try:
                found.append(DeviceState(device, *free_memory(acl)))
                if not needs:
                    needs = {name: _need(acl, modelfile.inspect(Path(name))) for name in models}
            finally:
                acl.reset_device(device)
        return Survey(acl.soc, tuple(found), needs)
    finally:
        library.release(used)


def _main() -> int:
    request = json.loads(sys.argv[1])
    try:
        found = _survey_here(request["models"], request["options"], states=request["states"])
    except BackendError as error:
        sys.stdout.write(f"{error}\n")
        return 1
    sys.stdout.write(json.dumps(asdict(found)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(_main())
