"""Error texts as `get_recent_err_msg` returns them: a report code, a time, and what went wrong."""

from __future__ import annotations

import os
import time

from gepipe.engines.ge.codes import CODES

_REPORT_CODES = {
    145000: "E13025",
    145001: "E13002",
    145002: "E13000",
    145006: "E10001",
    507033: "EE9999",
}


def message(code: int, call: str, text: str) -> str:
    """Return the text for a failure.

    Args:
        code: What the call returned.
        call: The call, without `acl.`.
        text: What went wrong, in this emulator's words.
    """
    name, meaning = CODES.get(code, ("", "unknown"))
    stamp = time.strftime("%Y-%m-%d-%H:%M:%S")
    head = f"[PID: {os.getpid()}] {stamp}"
    if code < 200000:
        report = _REPORT_CODES.get(code, "EE1001" if code < 145000 else "E13025")
        return (
            f"{report}: {head} The argument is invalid.Reason: {text}\n"
            f"        Solution: {meaning} ({name}).\n"
        )
    report = _REPORT_CODES.get(code, "EL0004" if code < 300000 else "EZ9999")
    return (
        f"{report}: Inner Error!\n{report}: {head} {text}[FUNC:acl.{call}]\n"
        f"        TraceBack (most recent call last):\n"
        f"        {name}: {meaning}.[FUNC:emulator]\n"
    )
