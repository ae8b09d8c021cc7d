from __future__ import annotations

import pytest

from gepipe.serving import host


@pytest.fixture(autouse=True)
def patient(monkeypatch) -> None:
    """Have a batch wait as long for a new process as a busy machine needs to start it."""
    monkeypatch.setattr(host, "_PATIENCE_S", (60.0, 60.0))
