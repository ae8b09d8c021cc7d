from __future__ import annotations

from tests.unit.engines.ge.bed import npu

__all__ = ["npu"]
