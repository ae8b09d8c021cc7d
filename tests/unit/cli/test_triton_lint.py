from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gepipe.cli.triton_linting import describe, show_lint
from gepipe.errors import ConfigError, GepipeError
from gepipe.serving.export import export
from gepipe.spec.load import load
from tests.support import onnx_model
from tests.unit.triton.lint_table import GE, GE_ONE, GOOD, OM, PYTHON
from tests.unit.triton.test_lint_table import write

BAD = GOOD.replace("TYPE_FP32 dims: [ 4 ] } ]\noutput", "FP32 dims: [ 4 ] } ]\noutput")


def test_says_what_is_wrong_and_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = write(tmp_path / "models", {"m/config.pbtxt": BAD, "m/1/model.py": PYTHON})

    assert show_lint(str(models), None, fix=False, as_json=False) == 2

    shown = capsys.readouterr()
    where = f"{models}/m/config.pbtxt:3"
    assert shown.err == f"error: {where}: input[0].data_type: has FP32; expected TYPE_FP32\n"
    assert shown.out == f"{models}: 1 error; --fix mends 1 of them\n"
    assert (models / "m/config.pbtxt").read_text() == BAD


def test_fixes_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = write(tmp_path / "models", {"m/config.pbtxt": BAD, "m/1/model.py": PYTHON})

    assert show_lint(str(models), None, fix=True, as_json=False) == 0

    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out == (
        f"fixed: {models}/m/config.pbtxt:3: input[0].data_type: has FP32; expected TYPE_FP32; now "
        f"TYPE_FP32\n{models}: good to serve; 1 fixed\n"
    )
    assert (models / "m/config.pbtxt").read_text() == GOOD


def test_what_cannot_be_fixed_stays_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = write(
        tmp_path / "models", {"m/config.pbtxt": BAD + "max_batch_size: 4\n", "m/1/model.py": PYTHON}
    )

    assert show_lint(str(models), None, fix=True, as_json=True) == 2

    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is False
    assert [(each["line"], each["repair"]) for each in told["fixed"]] == [(3, "TYPE_FP32")]
    assert [(each["line"], each["field"]) for each in told["errors"]] == [(6, "max_batch_size")]
    assert told["warnings"] == []


def test_warnings_do_not_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = GOOD.replace("count: 1", "count: 0")
    models = write(tmp_path / "models", {"m/config.pbtxt": config, "m/1/model.py": PYTHON})

    assert show_lint(str(models), None, fix=False, as_json=False) == 0

    assert capsys.readouterr().out == (
        f"{models}: good to serve, with 1 warning; --fix mends 1 of them\n"
    )


def test_a_folder_of_backends_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--backends: there is no folder 'none'"):
        show_lint(str(tmp_path), "none", fix=False, as_json=False)


def test_what_cannot_be_written_is_told(tmp_path: Path) -> None:
    models = write(
        tmp_path / "models", {"m/v1/model.om": OM["1/model.om"], "m/config.pbtxt": GE + GE_ONE}
    )
    (models / "m" / "1").write_text("in the way")

    code = show_lint(str(models), None, fix=False, as_json=True)

    assert code == 2
    with pytest.raises(
        GepipeError, match=r"cannot make .*/m/1: there is something of that name already"
    ):
        show_lint(str(models), None, fix=True, as_json=True)


def test_model_files_are_told_apart(tmp_path: Path) -> None:
    write(tmp_path, {"a": OM["1/model.om"], "b": "<html>"})

    known = {name: describe(tmp_path / name) for name in ("a", "b", "none")}

    assert [each.kind if each else None for each in known.values()] == ["om", "other", None]


OPS = """
import numpy as np


def head(blob, meta):
    return {"x": np.zeros(4, np.float32)}


def tell(outputs, meta):
    return {"y": outputs["y"].tolist()}
"""
YAML = """
pipeline:
  name: sound
  source: {images: inputs}
  stages:
    - {name: preprocess, batch_size: 4, ops: [{python: './ops.py:head'}]}
    - {name: inference, model: net.onnx}
    - {name: postprocess, ops: [{python: './ops.py:tell'}]}
  sink: {jsonl: out.jsonl}
"""


@pytest.mark.parametrize("words", [{}, {"layout": "fused"}, {"target": "npu_ge"}])
def test_exports_raise_no_alarm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: dict[str, Any]
) -> None:
    write(
        tmp_path, {"ops.py": "import numpy as np\n" + OPS, "sound.yaml": YAML, "inputs/a.jpg": "a"}
    )
    onnx_model(
        tmp_path / "net.onnx",
        [("Relu", ["x"], ["y"], {})],
        {"x": ("float32", ["n", 4])},
        {"y": ("float32", ["n", 4])},
        {},
    )
    export(load(tmp_path / "sound.yaml"), tmp_path / "models", **words)

    code = show_lint(str(tmp_path / "models"), None, fix=False, as_json=False)

    shown = capsys.readouterr()
    assert (code, shown.out, shown.err) == (0, f"{tmp_path}/models: good to serve\n", "")


def test_runs_as_a_command(tmp_path: Path) -> None:
    models = write(tmp_path / "models", {"m/config.pbtxt": GOOD, "m/1/model.py": PYTHON})
    done = subprocess.run(
        [Path(sys.executable).with_name("gepipe"), "triton", "lint", models],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stdout, done.stderr) == (0, f"{models}: good to serve\n", "")
