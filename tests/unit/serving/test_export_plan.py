"""What cannot be served is refused before a model is opened."""

from __future__ import annotations

import pytest

from gepipe.errors import ExportError
from gepipe.serving.export_plan import plan_export
from gepipe.spec.load import load, loads
from tests.support import ROOT
from tests.unit.serving.plans import YAML


def test_an_operator_that_keeps_a_state_is_refused(tmp_path) -> None:
    model = tmp_path / "absent.onnx"
    model.touch()
    spec = loads(YAML.format(model=model, more="", infer="", post="yolo, track"))

    with pytest.raises(ExportError, match="postprocess: track keeps a state from item to item"):
        plan_export(spec)


@pytest.mark.parametrize("name", ["ocr", "detect-classify"])
def test_chains_are_refused_with_what_to_do(name: str) -> None:
    spec = load(ROOT / f"pipelines/{name}.yaml", ("name=chain",))

    with pytest.raises(ExportError, match=r"several models \(.*export each model with the stages"):
        plan_export(spec)
