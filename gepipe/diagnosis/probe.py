"""Imports `acl` and asks the cards, in a process of its own: a broken driver may crash or hang it.

That process prints a line of JSON for each step, so that what ended it is known.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_TIMEOUT_S: Final = 60.0
_MARK: Final = "gepipe-probe "
_SCRIPT: Final = """
import json, sys
def tell(**what):
    print("\\ngepipe-probe " + json.dumps(what), flush=True)  # libraries leave lines unfinished
try:
    import gepipe.emulator.auto
    import acl
except BaseException as error:
    tell(step="import", error=f"{type(error).__name__}: {error}")
    raise SystemExit
tell(step="import", file=getattr(acl, "__file__", "") or "")
if not hasattr(acl, "rt"):
    tell(step="import", error="it is not pyACL: it has no acl.rt")
    raise SystemExit
code = acl.init()
tell(step="init", code=code)
if code not in (0, 100002):
    raise SystemExit
count, code = acl.rt.get_device_count()
tell(step="count", code=code, count=count)
soc = ""
try:
    soc = acl.get_soc_name() or ""
    tell(step="soc", soc=soc)
except Exception as error:
    tell(step="soc", error=str(error))
if hasattr(acl, "get_version"):
    try:
        tell(step="version", version=list(acl.get_version()))
    except Exception as error:
        tell(step="version", error=str(error))
kinds = [(1, "HBM"), (0, "DDR")]
if soc.startswith("Ascend310"):
    kinds.reverse()
for device in range(count if not code else 0):
    code = acl.rt.set_device(device)
    if code:
        tell(step="device", device=device, code=code)
        continue
    for kind, name in kinds:
        free, total, code = acl.rt.get_mem_info(kind)
        if not code and total:
            break
    tell(step="device", device=device, code=code, free=int(free or 0), total=int(total or 0),
         kind=name)
    acl.rt.reset_device(device)
tell(step="end")
acl.finalize()
"""


@dataclass(frozen=True)
class Probe:
    """What `acl` said.

    Attributes:
        steps: What each step told, in order.
        ending: How the process ended, in words; empty if it came to its end.
    """

    steps: tuple[Mapping[str, Any], ...]
    ending: str = ""

    def step(self, name: str) -> Mapping[str, Any]:
        """Return what the last step of a name told; empty if it was not reached."""
        found = [step for step in self.steps if step["step"] == name]
        return found[-1] if found else {}

    @property
    def devices(self) -> tuple[Mapping[str, Any], ...]:
        """What each device told."""
        return tuple(step for step in self.steps if step["step"] == "device")

    @property
    def import_error(self) -> str:
        """Why `acl` does not import; empty if it does."""
        return str(self.step("import").get("error", ""))

    @property
    def soc(self) -> str:
        """The chip; empty if it did not tell."""
        return str(self.step("soc").get("soc") or "")


def probe(environ: Mapping[str, str], timeout_s: float = _TIMEOUT_S) -> Probe:
    """Ask `acl`.

    Args:
        environ: The environment to ask it in.
        timeout_s: When the process is ended.
    """
    ending = ""
    try:
        done = subprocess.run(  # noqa: S603 - our own probe
            [sys.executable, "-c", _SCRIPT], env=dict(environ), capture_output=True, text=True,
            errors="replace", timeout=timeout_s, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        said = done.stdout
        if done.returncode < 0:
            ending = f"the process was ended by {signal.Signals(-done.returncode).name}"
        elif done.returncode:
            ending = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    except subprocess.TimeoutExpired as error:
        said = error.stdout.decode(errors="replace") if isinstance(error.stdout, bytes) else ""
        ending = f"it hangs: nothing more within {timeout_s:g} s"
    except OSError as error:
        return Probe(({"step": "import", "error": str(error)},))
    marked = (line for line in said.splitlines() if line.startswith(_MARK))
    return Probe(tuple(json.loads(line.removeprefix(_MARK)) for line in marked), ending)
