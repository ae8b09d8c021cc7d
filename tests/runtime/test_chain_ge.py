"""A chain whose models are on a card: converted, run one behind the other, with room for both."""

from __future__ import annotations

import numpy as np
import pytest

import gepipe
from gepipe.engines.ge.placement import survey
from gepipe.errors import ModelLoadError
from gepipe.pipeline.assembly import plan
from gepipe.spec.values import Backend
from tests.chains import SIDE, chain, expected, files
from tests.support import onnx_model

EMULATOR = {"device": "emulator"}


def on_card(spec):
    backend = Backend("ge", dict(EMULATOR))
    stages = [
        stage.model_copy(update={"backend": backend}) if stage.role == "infer" else stage
        for stage in spec.stages
    ]
    return spec.model_copy(update={"stages": tuple(stages)})


def test_both_models_run_on_the_card(tmp_path) -> None:
    pictures = [[5] * n for n in (3, 0, 6, 1)]
    with gepipe.Pipeline(on_card(chain(tmp_path))) as pipeline:
        made = [result.value for result in pipeline.run(files(tmp_path / "in", pictures))]

        assert made == [expected(values) for values in pictures]
        assert any(note.startswith("EMULATED NPU") for note in pipeline.notes)


def test_models_that_fit_alone_but_not_together_are_refused_with_the_sums(
    tmp_path, monkeypatch
) -> None:
    def heavy(name, size):
        return onnx_model(
            tmp_path / name,
            [
                ("Flatten", ["x"], ["f"], {"axis": 1}),
                ("MatMul", ["f", "w"], ["t"], {}),
                ("ReduceMean", ["t"], ["y"], {"axes": [1], "keepdims": 0}),
            ],
            {"x": ("float32", ["n", 3, 4, 4])},
            {"y": ("float32", ["n"])},
            {"w": np.full((48, size), 1 / 48, np.float32)},
        )

    spec = on_card(chain(tmp_path, first=heavy("a.onnx", 40_000), second=heavy("b.onnx", 30_000)))
    planned = plan(spec)
    models = [start.model for start in planned.starts]
    needs = survey(models, EMULATOR).needs
    first, second = (needs[str(model)] for model in models)
    assert min(first, second) > 5 << 20

    profile = tmp_path / "profile.yaml"
    profile.write_text(f"soc: Ascend310P3\nmemory: {(max(first, second) + (2 << 20)) >> 20}MiB\n")
    monkeypatch.setenv("GEPIPE_ACL_PROFILE", str(profile))
    for leg in spec.legs:
        plan(leg)
    with pytest.raises(ModelLoadError, match=r"look, read on device 0: .*all 2 models together"):
        plan(spec)


def test_parts_of_several_widths_are_gears_of_the_second_model(tmp_path) -> None:
    pictures = [[10 * n] * n for n in (1, 3, 2)]
    spec = on_card(chain(tmp_path, widths=(SIDE, 2 * SIDE)))
    with gepipe.Pipeline(spec) as pipeline:
        made = [result.value for result in pipeline.run(files(tmp_path / "in", pictures))]

        assert made == [expected(values) for values in pictures]
        assert pipeline.failures == []
