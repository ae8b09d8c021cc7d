"""Writes a pipeline out, as plain values or as a file that loads again."""

from __future__ import annotations

import re
from typing import Any

import yaml

from gepipe.spec.model import PipelineSpec
from gepipe.spec.tree import NUMBER


class _Dumper(yaml.SafeDumper):
    """Quotes text that YAML 1.1 or YAML 1.2 would read as something else."""


_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(f"^({NUMBER})$"), list("-+.0123456789")
)


def dump(spec: PipelineSpec) -> dict[str, Any]:
    """Return the whole pipeline as plain values that load again to an equal one."""
    return {"pipeline": spec.model_dump(mode="json", exclude_none=True)}


def dumps(spec: PipelineSpec) -> str:
    """Return the whole pipeline as YAML that loads again to an equal one."""
    text: str = yaml.dump(dump(spec), Dumper=_Dumper, allow_unicode=True, sort_keys=False)
    return text
