"""The model in the form that its engine opens."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gepipe.spec.model import PipelineSpec

log = logging.getLogger(__name__)

#: Batch sizes that an ONNX model is converted for where the YAML names neither gears nor a batch:
#: the last batch, which is not full, is padded to the smallest that holds it.
_GEARS: Final = (1, 4, 8)


def prepared_model(spec: PipelineSpec, engine: str) -> Path | None:
    """Return the model file for an engine: for `ge`, an ONNX model is converted once and kept.

    Args:
        spec: The pipeline.
        engine: The engine's registered name.

    Raises:
        ConfigError: The conversion's tool is missing, or an option does not fit the model.
        ModelLoadError: The model cannot be converted.
    """
    infer = spec.infer
    if engine != "ge" or infer.model is None:
        return infer.model
    from gepipe.engines.ge import library
    from gepipe.models.convert import ensure_om
    from gepipe.models.options import ConvertOptions

    device = infer.backend.options.get("device", "auto")
    batch = spec.pre.batch_size
    gears = infer.gears or (_GEARS if batch == "auto" else tuple(sorted({1, batch})))
    options = ConvertOptions(
        soc="emulator" if library.wants_emulator(device) else "auto",
        gears=gears,
        precision=infer.precision,
    )
    return ensure_om(infer.model, options, say=log.warning)
