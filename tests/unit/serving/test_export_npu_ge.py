"""The export for CANN's backend `npu_ge` avoids each of its traps; a test for each of them.

The numbers are those of the list that was made when its source code was read (v2.3.0).
"""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from gepipe.engines.engine import EngineOptions
from gepipe.errors import ExportError
from gepipe.serving.export import export
from gepipe.serving.export_folder import Repository
from gepipe.serving.npu_ge import (
    NOT_RUN,
    as_onnx,
    needs,
    npu_ge_config,
    npu_ge_files,
    start_text,
    warnings,
)
from gepipe.spec.load import loads
from gepipe.tensors import TensorSpec
from gepipe.triton.config import config_text
from tests.support import doubling_model
from tests.unit.serving.plans import YAML, X, message_of, parameters_of, plan_of


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return doubling_model(tmp_path / "net.onnx")


def spec_of(model: Path, infer: str = ""):
    return loads(YAML.format(model=model, more="", infer=infer, post="top_k"))


def parameters(model: Path, **more) -> dict[str, str]:
    return parameters_of(config_text(npu_ge_config(plan_of(model, **more))))


def test_1_an_om_is_refused_since_the_backend_compiles_onnx(tmp_path: Path) -> None:
    om = tmp_path / "net.om"
    om.write_bytes(b"IMOD" + bytes(300))

    with pytest.raises(ExportError, match=r"no way to load .om; export the .onnx"):
        as_onnx(spec_of(om))


def test_2_there_is_one_model_file_in_one_version_whatever_was_there(
    model: Path, tmp_path: Path
) -> None:
    repository = Repository(tmp_path / "models")
    for version in (1, 2):
        files, _ = npu_ge_files(plan_of(model), version)
        repository.put("tiny", files, version, keep=False)

    found = [path for path in repository.folder.rglob("*") if path.suffix in (".onnx", ".pb")]
    assert found == [repository.folder / "tiny_inference/2/model.onnx"]


@pytest.mark.parametrize("batch", [1, 8])
def test_3_preferred_sizes_are_always_there_or_nothing_is_merged(model: Path, batch: int) -> None:
    found = message_of(config_text(npu_ge_config(plan_of(model, batch=batch))))

    assert found["dynamic_batching"]["preferred_batch_size"] == list(range(1, batch + 1))
    assert found["max_batch_size"] == batch


def test_4_tensors_are_written_out_also_those_it_cannot_complete_by_itself(model: Path) -> None:
    inputs = [TensorSpec("h", "float16", (3,)), TensorSpec("b", "bool", (3,))]
    found = message_of(config_text(npu_ge_config(plan_of(model, inputs=inputs))))

    assert [each["data_type"] for each in found["input"]] == ["TYPE_FP16", "TYPE_BOOL"]
    assert found["output"][0]["dims"] == ["10"]


@pytest.mark.parametrize("side", ["inputs", "outputs"])
def test_4_float64_is_refused(model: Path, side: str) -> None:
    plan = plan_of(model, **{side: [TensorSpec("d", "float64", (3,))]})

    with pytest.raises(ExportError, match=r"target npu_ge: tensor 'd' is float64"):
        npu_ge_files(plan, 1)


def test_4_types_of_which_nothing_is_known_are_told(model: Path) -> None:
    plan = plan_of(model, inputs=[TensorSpec("u", "uint64", (3,))])

    assert any("'u' is uint64" in line for line in warnings(plan))


def test_6_a_batch_runs_by_gears_and_never_row_by_row(model: Path) -> None:
    said = parameters(model, batch=4)

    assert "static_model" not in said
    assert said["graph.ge.inputShape"] == "x:-1,3,4,4"
    assert said["graph.ge.dynamicNodeType"] == "1"


def test_6_a_batch_of_one_is_a_static_graph_without_gears(model: Path) -> None:
    said = parameters(model, batch=1)

    assert (said["static_model"], said["graph.ge.inputShape"]) == ("1", "x:1,3,4,4")
    assert not {"graph.ge.dynamicDims", "graph.ge.dynamicNodeType"} & set(said)


def test_7_there_is_a_gear_for_every_size_since_none_is_padded(model: Path) -> None:
    assert parameters(model, batch=5)["graph.ge.dynamicDims"] == "1;2;3;4;5"


def test_7_a_gear_names_the_batch_of_each_input_in_the_order_of_the_alphabet(model: Path) -> None:
    said = parameters(model, batch=2, inputs=[TensorSpec("z", "float32", (3,)), X])

    assert said["graph.ge.inputShape"] == "x:-1,3,4,4;z:-1,3"
    assert said["graph.ge.dynamicDims"] == "1,1;2,2"


def test_7_many_gears_are_told_and_too_many_refused(model: Path) -> None:
    assert any("compiles 32 gears" in line for line in warnings(plan_of(model, batch=32)))
    assert not any("gears" in line for line in warnings(plan_of(model, batch=8)))
    with pytest.raises(ExportError, match="at most 100 gears; set batch_size to 100 or less"):
        npu_ge_files(plan_of(model, batch=101), 1)


def test_7_a_model_of_a_fixed_batch_is_refused_since_none_is_padded(model: Path) -> None:
    with pytest.raises(ExportError, match="fixed to batches of 8, and npu_ge pads none"):
        npu_ge_files(plan_of(model, gears=(8,), batch=8), 1)


def test_8_options_of_ge_go_to_the_command_line_only(model: Path) -> None:
    said = parameters(model)

    assert not [key for key in said if key.startswith(("ge.", "global."))]
    assert "--backend-config=npu_ge,$option" in start_text(plan_of(model))


def test_9_devices_and_streams_are_always_there(model: Path) -> None:
    assert parameters(model)["device_ids"] == "0"
    config = npu_ge_config(plan_of(model, infer="devices: [2, 3]\n      instances: 4"))
    said = parameters_of(config_text(config))

    assert (said["device_ids"], said["device_exec_blocks"]) == ("2,3", "4")
    assert config.instances is not None
    assert config.instances.count == 8


def test_9_a_card_gets_no_more_than_eight_streams(model: Path) -> None:
    assert parameters(model, infer="instances: 20")["device_exec_blocks"] == "8"


def test_10_the_step_before_checks_and_the_client_has_a_limit(model: Path) -> None:
    files, _ = npu_ge_files(plan_of(model), 1)
    step = files["tiny_preprocess/1/model.py"]

    assert isinstance(step, bytes)
    assert b"gepipe.serving.preprocess import Preprocess" in step  # which checks shape and type
    assert any("give every request a timeout" in line for line in warnings(plan_of(model)))


def test_11_clients_reach_the_model_through_the_ensemble(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="use --layout ensemble"):
        export(spec_of(model), tmp_path / "models", layout="fused", target="npu_ge")


@pytest.mark.parametrize(
    ("precision", "said"), [("auto", "origin"), ("fp32", "origin"), ("fp16", "fp16")]
)
def test_12_the_precision_is_always_there(model: Path, precision: str, said: str) -> None:
    found = parameters(model, infer=f"precision: {precision}")

    assert found["session.ge.exec.precision_mode_v2"] == said


def test_13_the_server_runs_in_a_folder_of_its_own(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "my models" / "tiny"
    folder.mkdir(parents=True)
    script = folder / "start_npu_ge.sh"
    script.write_text(start_text(plan_of(model)))
    server = tmp_path / "bin" / "tritonserver"
    server.parent.mkdir()
    server.write_text('#!/bin/sh\npwd\nprintf "%s\\n" "$@"\nls\n')
    server.chmod(server.stat().st_mode | stat.S_IXUSR)
    path = f"{server.parent}:{os.environ['PATH']}"
    environ = {"PATH": path, "GE_OPTIONS": "ge.aicoreNum=12|10 ge.x=1", "TMPDIR": str(tmp_path)}

    done = subprocess.run(
        ["sh", str(script), "--log-verbose=1"],
        env=environ,
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )

    where, *arguments = done.stdout.splitlines()
    assert where.startswith(str(tmp_path))
    assert not where.startswith(str(folder.parent))
    assert arguments == [
        f"--model-repository={folder.parent}",
        "--http-address=127.0.0.1",
        "--grpc-address=127.0.0.1",
        "--metrics-address=127.0.0.1",
        "--disable-auto-complete-config",
        "--backend-config=npu_ge,ge.aicoreNum=12|10",
        "--backend-config=npu_ge,ge.x=1",
        "--log-verbose=1",
    ]


def test_14_the_python_and_the_shared_memory_that_are_needed_are_told(model: Path) -> None:
    row = TensorSpec("x", "float32", (3, 1024, 1024))
    python, memory = needs(plan_of(model, inputs=[row], batch=8, pre=3))

    assert "gepipe in the Python of the stub: 3.10 in the images" in python
    kib = int(memory.split()[2].replace(",", ""))
    in_flight = 4 * 1.5 * 8 * (row.nbytes + 40) / 1024  # three pre and one post
    assert in_flight < kib < in_flight + 5000


def test_15_an_opset_beyond_the_advised_one_is_told(model: Path) -> None:
    assert "the model has opset 17; npu_ge advises 14" in warnings(plan_of(model))


def test_16_all_requests_have_the_same_shape_so_that_cards_share_them(model: Path) -> None:
    found = message_of(config_text(npu_ge_config(plan_of(model))))

    assert all(int(extent) > 0 for side in ("input", "output") for extent in found[side][0]["dims"])


def test_it_says_that_nothing_of_it_was_run_on_a_card(model: Path) -> None:
    files, _ = npu_ge_files(plan_of(model), 1)

    assert NOT_RUN.encode() in files["tiny_inference/config.pbtxt"]  # type: ignore[operator]
    assert NOT_RUN.encode() in files["tiny/start_npu_ge.sh"]  # type: ignore[operator]
    assert any("not run on a card" in line for line in warnings(plan_of(model)))


def test_aipp_is_refused_since_the_card_would_not_do_it(model: Path) -> None:
    with pytest.raises(ExportError, match="aipp is a part of a converted model"):
        as_onnx(spec_of(model, "backend: {ge: {aipp: true}}"))


def test_the_model_is_opened_on_the_cpu_to_learn_its_tensors(model: Path) -> None:
    spec = as_onnx(spec_of(model, "backend: ge\n      devices: [2]\n      timeout: 50ms"))

    assert spec.infer.backend.name == "onnxruntime"
    assert (spec.infer.devices, spec.infer.timeout) == ((2,), None)


def test_threads_of_this_machine_are_no_matter_of_the_card(model: Path) -> None:
    one = parameters(model, engines=[EngineOptions(threads=1)])

    assert one == parameters(model, engines=[EngineOptions(threads=4)] * 3)
