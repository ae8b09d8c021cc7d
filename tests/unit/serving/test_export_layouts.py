"""What the two layouts write for made-up models."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gepipe.engines.engine import EngineOptions
from gepipe.errors import ExportError
from gepipe.serving.client_text import client_text, curl_text, tensor_lines
from gepipe.serving.export_plan import _given
from gepipe.serving.layout_ensemble import (
    ensemble_files,
    infer_config,
    post_config,
    pre_config,
    top_config,
)
from gepipe.serving.layout_fused import fused_config, fused_files
from gepipe.spec.load import loads
from gepipe.tensors import TensorSpec
from gepipe.triton.config import ModelConfig, Tensor, config_text
from tests.support import doubling_model
from tests.unit.serving.plans import message_of, parameters_of, plan_of

CHAIN = loads(
    """
name: tiny
stages:
  - {name: preprocess, ops: [decode_image, to_tensor]}
  - {name: detect, role: infer}
  - {name: cut, role: mid, ops: [yolo, crop, to_tensor]}
  - {name: read, role: infer}
  - {name: postprocess, ops: [top_k]}
"""
)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return doubling_model(tmp_path / "net.onnx")


def batching(config: ModelConfig) -> dict:
    return message_of(config_text(config)).get("dynamic_batching", {})


def test_an_ensemble_is_four_models_and_every_file_of_them(model: Path) -> None:
    files, modules = ensemble_files(plan_of(model), 3)

    assert sorted(files) == [
        "tiny/3/.keep",
        "tiny/config.pbtxt",
        "tiny_inference/3/model.onnx",
        "tiny_inference/config.pbtxt",
        "tiny_postprocess/3/model.py",
        "tiny_postprocess/3/pipeline.yaml",
        "tiny_postprocess/config.pbtxt",
        "tiny_preprocess/3/model.py",
        "tiny_preprocess/3/pipeline.yaml",
        "tiny_preprocess/config.pbtxt",
    ]
    assert files["tiny_inference/3/model.onnx"] == model
    assert modules == ()


def test_a_fused_model_holds_the_whole_pipeline(model: Path) -> None:
    files, _ = fused_files(plan_of(model, batch=16), 1)

    assert sorted(files) == [
        "tiny/1/model.onnx",
        "tiny/1/model.py",
        "tiny/1/pipeline.yaml",
        "tiny/config.pbtxt",
    ]
    text = files["tiny/1/pipeline.yaml"]
    assert isinstance(text, bytes)
    spec = loads(text.decode())
    assert spec.pre.batch_size == 16
    assert spec.infer.model == Path("model.onnx")
    assert len(spec.pre.ops) == 3
    assert spec.profile is not None
    assert spec.profile.queue == 128


def test_each_step_is_given_its_own_operators_only(model: Path) -> None:
    files, _ = ensemble_files(plan_of(model), 1)

    def spec(step: str):
        text = files[f"tiny_{step}/1/pipeline.yaml"]
        assert isinstance(text, bytes)
        return loads(text.decode())

    assert (len(spec("preprocess").pre.ops), spec("preprocess").post.ops) == (3, ())
    assert (spec("postprocess").pre.ops, len(spec("postprocess").post.ops)) == ((), 1)
    assert spec("preprocess").infer.model is None


@pytest.mark.parametrize("layout", [ensemble_files, fused_files])
def test_a_python_without_gepipe_says_what_it_needs(
    model: Path, layout: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    files, _ = layout(plan_of(model), 1)
    for module in [name for name in sys.modules if name.startswith("gepipe.serving.")]:
        monkeypatch.setitem(sys.modules, module, None)
    codes = [content for name, content in files.items() if name.endswith("/model.py")]

    assert codes
    for code in codes:
        with pytest.raises(ImportError) as refused:
            exec(compile(code, "model.py", "exec"), {})
        text = str(refused.value)
        assert text.startswith(
            f"this model needs gepipe and Python 3.10 or newer; {sys.executable}"
        )
        assert "pip install gepipe" in text


def test_weights_beside_the_model_come_along(tmp_path: Path) -> None:
    import onnx

    path = doubling_model(tmp_path / "net.onnx")
    loaded = onnx.load(str(path))
    onnx.save(
        loaded,
        str(path),
        save_as_external_data=True,
        location="net.weights",
        size_threshold=0,
        convert_attribute=False,
    )

    files, _ = ensemble_files(plan_of(path), 1)

    assert files["tiny_inference/1/net.weights"] == tmp_path / "net.weights"


def test_weights_that_atc_left_beside_an_om_come_along(tmp_path: Path) -> None:
    (tmp_path / "weight").mkdir()
    (tmp_path / "weight" / "abc").write_bytes(b"weights")
    om = tmp_path / "net.om"
    om.write_bytes(b"IMOD")

    files, _ = fused_files(plan_of(om, engine="ge"), 1)

    assert files["tiny/1/model.om"] == om
    assert files["tiny/1/weight/abc"] == tmp_path / "weight" / "abc"


def test_models_of_a_chain_lie_apart_with_what_belongs_to_each(tmp_path: Path) -> None:
    import onnx

    models = {}
    for stage in ("detect", "read"):
        (tmp_path / stage).mkdir()
        models[stage] = path = doubling_model(tmp_path / stage / "net.onnx")
        onnx.save(
            onnx.load(str(path)),
            str(path),
            save_as_external_data=True,
            location="net.weights",
            size_threshold=0,
            convert_attribute=False,
        )
    plan = dataclasses.replace(plan_of(models["detect"]), spec=CHAIN, models=models)

    files, _ = fused_files(plan, 1)

    assert {name: file for name, file in files.items() if "/net" in name or "/model" in name} == {
        "tiny/1/model.py": files["tiny/1/model.py"],
        "tiny/1/model1/model.onnx": models["detect"],
        "tiny/1/model1/net.weights": tmp_path / "detect/net.weights",
        "tiny/1/model2/model.onnx": models["read"],
        "tiny/1/model2/net.weights": tmp_path / "read/net.weights",
    }
    text = files["tiny/1/pipeline.yaml"]
    assert isinstance(text, bytes)
    spec = loads(text.decode())
    assert [leg.infer.model for leg in spec.legs] == [
        Path("model1/model.onnx"),
        Path("model2/model.onnx"),
    ]


def test_a_model_that_a_chain_runs_twice_is_there_once(model: Path) -> None:
    models = {"detect": model, "read": model}
    plan = dataclasses.replace(plan_of(model), spec=CHAIN, models=models)

    files, _ = fused_files(plan, 1)

    assert [name for name, file in files.items() if file == model] == ["tiny/1/model.onnx"]
    text = files["tiny/1/pipeline.yaml"]
    assert isinstance(text, bytes)
    assert [leg.infer.model for leg in loads(text.decode()).legs] == [Path("model.onnx")] * 2


def test_weights_outside_the_models_folder_are_refused(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gepipe.models.onnxfile import read_onnx

    outside = dataclasses.replace(read_onnx(model), external=("../net.weights",))
    monkeypatch.setattr("gepipe.serving.layout_ensemble.read_onnx", lambda _: outside)

    with pytest.raises(ExportError, match=r"has weights in '../net.weights', outside its folder"):
        ensemble_files(plan_of(model), 1)


def test_instances_come_from_the_plan(model: Path) -> None:
    engines = [EngineOptions(device=device) for device in (2, 2, 5, 5)]
    plan = plan_of(model, engine="ge", engines=engines, pre=7)

    groups = [
        message_of(config_text(make(plan)))["instance_group"]
        for make in (pre_config, infer_config, post_config, fused_config)
    ]

    assert groups == [
        [{"kind": "KIND_CPU", "count": 1}],
        [{"kind": "KIND_MODEL", "count": 1}],
        [{"kind": "KIND_CPU", "count": 1}],
        [{"kind": "KIND_CPU", "count": 1}],
    ]
    told = parameters_of(config_text(infer_config(plan)))
    assert (told["device_ids"], told["instances"]) == ("2,5", "2")
    assert parameters_of(config_text(pre_config(plan)))["workers"] == "7"


def test_the_backend_is_told_what_the_engine_is_told(model: Path) -> None:
    options = EngineOptions(
        device=1,
        batch_size=8,
        precision="fp16",
        gears=(1, 4, 8),
        timeout_s=0.05,
        extra={"device": "emulator", "profile": "published"},
    )
    plan = plan_of(model, engine="ge", engines=[options], gears=(1, 4, 8))

    assert parameters_of(config_text(infer_config(plan))) == {
        "device_ids": "1",
        "engine": "ge",
        "engine_options": '{"device": "emulator", "profile": "published"}',
        "gears": "1,4,8",
        "max_queue_size": "128",
        "precision": "fp16",
        "stage": "inference",
        "timeout": "50ms",
    }


def test_what_the_backend_is_told_it_understands(model: Path, tmp_path: Path) -> None:
    from gepipe.serving.settings import Settings

    text = config_text(infer_config(plan_of(model, engines=[EngineOptions(threads=3)])))
    config = message_of(text)
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "model.onnx").write_bytes(model.read_bytes())

    settings = Settings.read(config, tmp_path / "1", "tiny_inference_0_0", 8)

    assert (settings.stage, settings.engine) == ("inference", "onnxruntime")
    assert (settings.queue, settings.max_wait_s) == (128, 0.0)
    assert settings.places == (EngineOptions(threads=3, batch_size=8, text_bytes=64 << 10),)


def test_queues_are_bounded_and_the_batches_are_the_backends_own(model: Path) -> None:
    plan = plan_of(model, gears=(1, 4, 8))

    for config in (pre_config(plan), infer_config(plan), post_config(plan)):
        assert batching(config) == {}
    assert parameters_of(config_text(pre_config(plan)))["max_queue_size"] == "128"
    said = parameters_of(config_text(infer_config(plan)))
    assert said["max_queue_size"] == "128"
    assert "max_wait" not in said


def test_a_profile_reaches_the_server(model: Path) -> None:
    plan = plan_of(model, more="profile: {preset: latency, queue: 7}\n  max_wait: 3ms")

    said = parameters_of(config_text(infer_config(plan)))

    assert (said["max_queue_size"], said["max_wait"]) == ("7", "3ms")
    assert parameters_of(config_text(pre_config(plan)))["max_queue_size"] == "7"


def test_a_row_that_is_one_number_is_given_an_axis(model: Path) -> None:
    plan = plan_of(
        model,
        inputs=[TensorSpec("id", "int64", ())],
        outputs=[TensorSpec("score", "float16", ())],
    )

    infer, post = (message_of(config_text(make(plan))) for make in (infer_config, post_config))

    assert infer["input"] == [
        {"name": "id", "data_type": "TYPE_INT64", "dims": ["1"], "reshape": {}}
    ]
    assert infer["output"] == [{"name": "score", "data_type": "TYPE_FP16", "dims": ["1"]}]
    assert post["input"][0] == {
        "name": "score",
        "data_type": "TYPE_FP16",
        "dims": ["1"],
        "reshape": {},
    }


def test_names_of_the_model_cannot_collide_with_those_of_clients(model: Path) -> None:
    plan = plan_of(
        model,
        inputs=[TensorSpec("RESULT", "float32", (3,)), TensorSpec("meta", "float32", (3,))],
        outputs=[TensorSpec("IMAGE", "float32", (3,)), TensorSpec("meta", "float32", (3,))],
    )

    steps = message_of(config_text(top_config(plan)))["ensemble_scheduling"]["step"]

    wires = [name for step in steps for name in step["output_map"].values()]
    assert len(wires) == len(set(wires)) == 6


def test_configurations_differ_by_nothing_but_the_pipeline(model: Path) -> None:
    one, again = (ensemble_files(plan_of(model), 1)[0] for _ in range(2))

    assert one == again
    for content in one.values():
        if isinstance(content, bytes):
            assert str(model.parent).encode() not in content


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (Tensor("IMAGE", "STRING", (1,)), "takes IMAGE, BYTES [rows, 1]: 1 to 8 rows, each the "),
        (Tensor("INPUT", "FP16", (3, 4)), "takes INPUT, FP16 [rows, 3, 4]: 1 to 8 rows"),
    ],
)
def test_tensors_are_told_in_plain_words(model: Path, given: Tensor, line: str) -> None:
    takes, makes = tensor_lines(plan_of(model, given=given))

    assert takes.startswith(line)
    assert makes == "makes RESULT, BYTES [rows, 1]: for each row its result as JSON text"


def test_curl_is_offered_where_the_input_is_bytes(model: Path) -> None:
    assert "--data-binary @photo.jpg" in curl_text(plan_of(model))
    assert curl_text(plan_of(model, given=Tensor("INPUT", "FP32", (3,)))) == ""


@pytest.mark.parametrize("given", [None, Tensor("INPUT", "BOOL", (3, 4))])
def test_the_client_is_python(model: Path, given: Tensor | None) -> None:
    text = client_text(plan_of(model, given=given))

    compile(text, "client.py", "exec")
    if given is not None:
        assert "row.reshape((1, 3, 4)), dtype=np.bool_" in text


@pytest.mark.parametrize("given", [None, Tensor("INPUT", "FP32", (3,))])
def test_the_client_blames_no_server_for_a_file(
    model: Path, tmp_path: Path, given: Tensor | None
) -> None:
    pytest.importorskip("tritonclient.http")
    client, gone = tmp_path / "client.py", str(tmp_path / "gone")
    client.write_text(client_text(plan_of(model, given=given)))
    files = [gone]
    if given is not None:  # arrays alone are read, not only sent
        for name, content in (("text.npy", b"text"), ("empty.npy", b"")):
            (tmp_path / name).write_bytes(content)
            files.append(str(tmp_path / name))

    ended = subprocess.run(
        [sys.executable, str(client), *files, "--url", "127.0.0.1:1"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    lines = ended.stderr.splitlines()
    assert ended.returncode == 3
    assert [line.partition(": ")[0] for line in lines] == files
    assert "No such file" in lines[0]
    assert "127.0.0.1:1" not in ended.stderr


@pytest.mark.parametrize(
    ("op", "name"),
    [
        ("decode_image: {}", "IMAGE"),
        ("python: 'json:loads'", "INPUT"),
        ("tokenize: {tokenizer: tokenizer.json}", "INPUT"),
    ],
)
def test_clients_send_the_bytes_that_the_first_operator_reads(op: str, name: str) -> None:
    text = (
        f"stages: [{{name: preprocess, ops: [{{{op}}}]}}, {{name: inference}}, "
        "{name: postprocess}]"
    )

    assert _given(loads(text), ()) == Tensor(name, "STRING", (1,))
