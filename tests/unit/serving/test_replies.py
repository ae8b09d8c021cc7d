from __future__ import annotations

import pytest

from gepipe.errors import (
    DeviceError,
    DeviceLostError,
    InternalError,
    ItemError,
    TensorMismatchError,
    WorkerStartError,
)
from gepipe.serving.host import ExecutionError
from gepipe.serving.replies import code_of, text_of


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ItemError("truncated", "cut off"), "INVALID_ARG", "s: truncated: cut off"),
        (ItemError("cancelled", "gone"), "CANCELLED", "s: cancelled: gone"),
        (ItemError("expired", "late"), "UNAVAILABLE", "s: expired: late"),
        (ItemError("RuntimeError", "user"), "INTERNAL", "s: RuntimeError: user"),
        (TensorMismatchError("no"), "INVALID_ARG", "s: TensorMismatchError: no"),
        (ExecutionError("timeout", "50 ms"), "UNAVAILABLE", "s: timeout: 50 ms"),
        (ExecutionError("unavailable", "away"), "UNAVAILABLE", "s: unavailable: away"),
        (ExecutionError("crash", "SIGSEGV"), "UNAVAILABLE", "s: crash: SIGSEGV"),
        (ExecutionError("device", "507011"), "INTERNAL", "s: device: 507011"),
        (ExecutionError("too_large", "long"), "INVALID_ARG", "s: too_large: long"),
        (ExecutionError("RuntimeError", "x"), "INTERNAL", "s: RuntimeError: x"),
        (DeviceError("107002"), "INTERNAL", "s: device: 107002"),
        (DeviceLostError("gone"), "INTERNAL", "s: device_lost: gone"),
        (WorkerStartError("none"), "UNAVAILABLE", "s: WorkerStartError: none"),
        (InternalError("bug"), "INTERNAL", "s: InternalError: bug"),
        (ValueError("user"), "INTERNAL", "s: ValueError: ValueError: user"),
    ],
)
def test_code_and_text(error, code, text) -> None:
    assert code_of(error) == code
    assert text_of("s", error) == text


def test_row_is_named_where_there_are_several() -> None:
    assert text_of("s", ItemError("empty", "none"), 2) == "s: empty: row 2: none"
    assert text_of("s", ItemError("empty", "none")) == "s: empty: none"
