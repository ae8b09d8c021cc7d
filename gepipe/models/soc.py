"""Which chip this machine has, asked in a process of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import Final

from gepipe.errors import ConfigError
from gepipe.models.options import EMULATOR

_PROBE: Final = """
import acl
acl.init()
print("\\nsoc:", acl.get_soc_name())
acl.finalize()
"""
_TIMEOUT_S: Final = 60.0
#: The line of a card in what `npu-smi info` prints: `| 0     310P3   | OK ...`.
_CARD: Final = re.compile(r"^\|\s*\d+\s+(\d{3}\w*)\s*\|", re.MULTILINE)


def detect_soc(environ: Mapping[str, str] | None = None) -> str:
    """Return the name of the chip, such as `Ascend310P3`; `emulator` where that is chosen.

    Args:
        environ: The environment; this process's by default.

    Raises:
        ConfigError: There is none, or it does not tell.
    """
    environ = os.environ if environ is None else environ
    if environ.get("GEPIPE_ACL") == EMULATOR:
        return EMULATOR
    said = _output([sys.executable, "-c", _PROBE], environ)
    if (found := re.search(r"^soc: (Ascend\w+)", said, re.MULTILINE)) is not None:
        return found[1]
    smi = shutil.which("npu-smi", path=environ.get("PATH", ""))
    if smi and (card := _CARD.search(_output([smi, "info"], environ))) is not None:
        return f"Ascend{card[1]}"
    raise ConfigError(
        "which chip to convert for is not known: there is no card here that tells; name it, as "
        "with --soc Ascend310P3 (`npu-smi info` on the machine with the card shows 310P3), or "
        "--soc emulator (in a run: GEPIPE_ACL=emulator)"
    )


def _output(command: list[str], environ: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - our own probe, or the tool of the driver
            command, env=dict(environ), capture_output=True, text=True, errors="replace",
            timeout=_TIMEOUT_S, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
