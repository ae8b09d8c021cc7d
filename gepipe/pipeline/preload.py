"""What the fork server imports for all workers, so that none of them has to."""

from __future__ import annotations

from typing import Final

#: None of these starts a thread or opens a device when it is imported.
PRELOAD: Final = (
    "gepipe.pipeline.bodies",
    "gepipe.engines.onnx",
    "gepipe.io.files",
    "gepipe.ops.fused",
    "gepipe.ops.scores",
)
