"""The pipeline file of an exported model."""

from __future__ import annotations

from pathlib import Path

from gepipe.spec import PipelineSpec, load


def load_bundle(folder: Path) -> PipelineSpec:
    """Return the pipeline of a version folder.

    Raises:
        ConfigError: It cannot be read.
    """
    return load(folder / "pipeline.yaml")
