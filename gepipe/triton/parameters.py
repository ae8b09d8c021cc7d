"""Parameters of the backend `ge` in a configuration, for what reads them and what checks them."""

from __future__ import annotations

from typing import Final

#: What the backend reads; it refuses any other.
GE: Final = (
    "device_ids",
    "engine",
    "engine_options",
    "gears",
    "instances",
    "max_queue_size",
    "max_wait",
    "precision",
    "stage",
    "text_bytes",
    "threads",
    "timeout",
)
#: What Triton's Python backend reads.
PYTHON: Final = ("EXECUTION_ENV_PATH", "FORCE_CPU_ONLY_INPUT_TENSORS", "TRITON_BACKEND_CONFIG")
#: What other GE backends call the same.
RENAMED: Final = {
    "device": "device_ids",
    "device_id": "device_ids",
    "npu_id": "device_ids",
    "precision_mode": "precision",
    "queue_size": "max_queue_size",
}
