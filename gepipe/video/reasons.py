"""Why FFmpeg could not do something. Loaded by decoders only."""

from __future__ import annotations

from av.error import ExitError

from gepipe.io.videos import without_password


def reason(error: BaseException) -> str:
    """Return what FFmpeg says, without its numbers."""
    text = str(getattr(error, "strerror", None) or error)
    log = getattr(error, "log", None)
    if log:
        text = f"{text} ({log[2].strip()})"
    return " ".join(without_password(text).split())[:300].lower().rstrip(".")


def reason_of_reading(error: BaseException, limit_s: float) -> str:
    """Return why something could not be read within a limit of time."""
    if isinstance(error, ExitError):
        return f"nothing came for {limit_s:g} s"
    return reason(error)
