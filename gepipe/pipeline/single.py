"""What can be done with pipelines of one model only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gepipe.errors import ConfigError, GepipeError

if TYPE_CHECKING:
    from gepipe.spec.model import PipelineSpec


def require_one_model(
    spec: PipelineSpec, what: str, instead: str, error: type[GepipeError] = ConfigError
) -> None:
    """Refuse a chain of models.

    Args:
        spec: The pipeline.
        what: What cannot be done with one, as the end of a sentence about it.
        instead: What can be done instead.
        error: What to raise.

    Raises:
        ConfigError: The pipeline has several models; or `error`.
    """
    if spec.mids:
        names = ", ".join(stage.name for stage in spec.stages if stage.role == "infer")
        raise error(f"{spec.name}: has several models ({names}), and {what}; {instead}")
