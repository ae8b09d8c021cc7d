"""What cannot be served is refused before a model is opened."""

from __future__ import annotations

import pytest

from gepipe.errors import ExportError
from gepipe.serving.export import export
from gepipe.serving.export_plan import _given, plan_export
from gepipe.spec.load import load, loads
from gepipe.tensors import TensorSpec
from gepipe.triton.config import Tensor
from tests.support import ROOT
from tests.unit.serving.plans import YAML


def test_an_operator_that_keeps_a_state_is_refused(tmp_path) -> None:
    model = tmp_path / "absent.onnx"
    model.touch()
    spec = loads(YAML.format(model=model, more="", infer="", post="yolo, track"))

    with pytest.raises(ExportError, match="postprocess: track keeps a state from item to item"):
        plan_export(spec)


@pytest.mark.parametrize("name", ["ocr", "detect-classify"])
@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"layout": "ensemble"}, r"layout ensemble: 'chain' has several models \(.*--layout fused"),
        ({"target": "npu_ge"}, r"target npu_ge: 'chain' has several models \(.*--target ge"),
    ],
)
def test_steps_of_a_server_cannot_split_items(tmp_path, name, options, what) -> None:
    spec = load(ROOT / f"pipelines/{name}.yaml", ("name=chain",))

    with pytest.raises(ExportError, match=what):
        export(spec, tmp_path / "models", **options)
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize(
    ("ops", "row", "what"),
    [
        ("{python: 'json:loads'}", (8, 8, 3), "begins with python.*does not reach those who cut"),
        ("", (3, 8, 8, 3), "expected 8-bit pictures of height, width and channels, but the model"),
    ],
)
def test_parts_are_cut_out_of_what_clients_send(ops, row, what) -> None:
    spec = loads(
        f"stages: [{{name: preprocess, ops: [{ops}]}}, {{name: look, role: infer}}, "
        "{name: cut, role: mid, ops: [yolo, crop]}, {name: read, role: infer}, "
        "{name: postprocess}]"
    )

    with pytest.raises(ExportError, match=what):
        _given(spec, [TensorSpec("x", "uint8", row)])


def test_clients_send_pictures_where_the_first_model_takes_them() -> None:
    spec = loads(
        "stages: [{name: preprocess}, {name: look, role: infer}, "
        "{name: cut, role: mid, ops: [yolo, crop]}, {name: read, role: infer}, "
        "{name: postprocess}]"
    )

    given = _given(spec, [TensorSpec("x", "uint8", (8, 8, 3))])

    assert given == Tensor("INPUT", "UINT8", (8, 8, 3))
