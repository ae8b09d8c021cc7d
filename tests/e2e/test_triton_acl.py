"""Served models import `acl` as CANN gives it: from a folder that only `PYTHONPATH` names."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from gepipe.emulator.convert import convert_onnx
from gepipe.emulator.om import Gears
from gepipe.triton.bell import Bell
from gepipe.triton.ports import free_ports
from gepipe.triton.runs import new_run
from gepipe.triton.server import Server
from tests.support import doubling_model

#: A module `acl` that needs no choice of the emulator: it is what stands in CANN's folder here.
ACL = """
import sys

from gepipe.emulator.installation import install

del sys.modules[__name__]
install()
"""
PIPELINE = """
pipeline:
  name: fused
  stages:
    - {name: preprocess, batch_size: 4}
    - {name: inference, model: model.om, backend: ge}
    - {name: postprocess}
"""
FUSED = """
backend: "python"
max_batch_size: 4
input [ { name: "INPUT" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "RESULT" data_type: TYPE_STRING dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
"""


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """Return a repository of a model on the backend `ge`, and of a fused one."""
    graph = doubling_model(tmp_path / "net.onnx")
    folder = tmp_path / "models"
    for name, text in (("card", 'backend: "ge"\n'), ("fused", FUSED)):
        version = folder / name / "1"
        version.mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(text)
        convert_onnx(version / "model.om", graph.read_bytes(), gears=Gears("batch", ((1,), (4,))))
    version = folder / "fused" / "1"
    (version / "pipeline.yaml").write_text(PIPELINE)
    (version / "model.py").write_text(
        "from gepipe.serving.fused import Fused as TritonPythonModel\n"
    )
    return folder


def _answer(server: Server, model: str, name: str) -> Any:
    body = {
        "inputs": [{"name": name, "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}],
    }
    url = f"http://127.0.0.1:{server.ports['http']}/v2/models/{model}/infer"
    with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=120) as reply:
        return json.loads(reply.read())["outputs"][0]["data"]


def test_acl_is_found_by_pythonpath_though_the_servers_python_does_not_read_it(
    triton_kit: Any, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cann").mkdir()
    (tmp_path / "cann" / "acl.py").write_text(ACL)
    (tmp_path / "cann" / "numpy.py").write_text("raise RuntimeError('not the NumPy of the stub')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "cann"))
    monkeypatch.delenv("GEPIPE_ACL", raising=False)
    ports = free_ports("127.0.0.1", dict.fromkeys(("http", "grpc", "metrics"), 0))

    with Bell() as bell, new_run() as run, Server(triton_kit, run, models, ports) as server:
        server.wait_live(bell)
        for model in ("card", "fused"):
            server.control.load(model)

        assert _answer(server, "card", "x") == [3, 5, 7, 9]
        (text,) = _answer(server, "fused", "INPUT")
        assert "[3.0, 5.0, 7.0, 9.0]" in text
        server.stop(20, bell)
