"""What cannot be served is refused before a model is opened."""

from __future__ import annotations

import pytest

from gepipe.errors import ExportError
from gepipe.serving.export_plan import plan_export
from gepipe.spec.load import loads
from tests.unit.serving.plans import YAML


def test_an_operator_that_keeps_a_state_is_refused(tmp_path) -> None:
    model = tmp_path / "absent.onnx"
    model.touch()
    spec = loads(YAML.format(model=model, more="", infer="", post="yolo, track"))

    with pytest.raises(ExportError, match="postprocess: track keeps a state from item to item"):
        plan_export(spec)
