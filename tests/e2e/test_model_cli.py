"""`gepipe model`, `compare` and `doctor` in processes of their own."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import (
    doubling_model,
    family_of,
    is_alive,
    jpeg,
    onnx_model,
    wait_until,
)
from tests.unit.models.support import fake_cann, plain_environment

pytest.importorskip("onnx")
GEPIPE = [sys.executable, "-c", "from gepipe.cli.app import main; main()"]
YAML = """\
pipeline:
  name: tiny
  source: {images: photos}
  stages:
    - name: preprocess
      threads: 1
      batch_size: 4
      ops:
        - decode_image: {color: rgb}
        - resize: {size: [8, 8]}
        - normalize: {mean: [0.4, 0.5, 0.6], std: [0.25, 0.5, 0.2], scale: 1/255}
        - to_tensor: {layout: nchw}
    - name: inference
      model: tiny.onnx
    - name: postprocess
      ops:
        - top_k: {k: 2}
"""


def tiny(path, factor=1.0):
    return onnx_model(
        path,
        [("ReduceMean", ["input"], ["m"], {"axes": [2, 3], "keepdims": 0}),
         ("Mul", ["m", "f"], ["scores"], {})],
        {"input": ("float32", ["n", 3, 8, 8])},
        {"scores": ("float32", ["n", 3])},
        {"f": [factor, factor, factor] if isinstance(factor, float) else factor},
    )  # fmt: skip


def as_float(values):
    import numpy as np

    return np.array(values, np.float32)


@pytest.fixture
def place(tmp_path):
    tiny(tmp_path / "tiny.onnx", as_float([1, 1, 1]))
    (tmp_path / "tiny.yaml").write_text(YAML)
    (tmp_path / "photos").mkdir()
    for seed in range(6):
        (tmp_path / "photos" / f"{seed}.jpg").write_bytes(jpeg(seed=seed))
    return tmp_path


def gepipe(place, *arguments, **extra):
    return subprocess.run(
        [*GEPIPE, *arguments],
        cwd=place,
        env=plain_environment(GEPIPE_CACHE=str(place / "cache"), **extra),
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip


@pytest.fixture
def cann(place):
    fake_cann(place / "cann")
    return {
        "ASCEND_HOME_PATH": str(place / "cann"),
        "PATH": f"{place / 'cann/bin'}:{os.environ['PATH']}",
    }


def test_a_model_is_converted_with_atc_and_found_again(place, cann):
    options = ("--soc", "Ascend310P3", "--gears", "1,4", "--precision", "fp16")

    done = gepipe(place, "model", "convert", "tiny.onnx", *options, **cann)
    again = gepipe(place, "model", "convert", "tiny.onnx", *options, "--output", "out/b.om", **cann)

    assert done.returncode == 0, done.stderr
    assert "--dynamic_batch_size=1,4" in done.stdout
    assert "--precision_mode=force_fp16" in done.stdout
    assert "from the cache" in again.stdout
    assert "it was made with: " in again.stdout
    assert (place / "tiny.om").read_bytes() == (place / "out/b.om").read_bytes()
    shown = gepipe(place, "model", "inspect", "tiny.om")
    assert "soc: Ascend310P3" in shown.stdout


def test_atc_that_fails_is_explained(place, cann):
    failed = gepipe(
        place, "model", "convert", "tiny.onnx", "--soc", "310P3", FAKE_ATC="kernel", **cann
    )

    assert failed.returncode == 5
    assert "EZ3003" in failed.stderr
    assert "Einsum_3" in failed.stderr
    log = failed.stderr.rsplit("all of its output: ", 1)[1].strip()
    assert "ATC run failed" in Path(log).read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_atc_and_leaves_nothing(place, cann, number):
    environ = plain_environment(GEPIPE_CACHE=str(place / "cache"), FAKE_ATC="hang", **cann)
    with subprocess.Popen(
        [*GEPIPE, "model", "convert", "tiny.onnx", "--soc", "310P3"],
        cwd=place, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        atc = wait_until(lambda: family_of(process.pid) - {process.pid})
        wait_until((place / "cache/models/logs").exists)
        process.send_signal(number)
        _, said = process.communicate(timeout=200)

    assert process.returncode == 130
    assert f"stopped by {number.name}" in said
    wait_until(lambda: not [pid for pid in atc if is_alive(pid)])  # killed is not yet gone
    assert not list((place / "cache/models").glob(".part-*"))


def test_the_command_is_shown_without_atc_and_nothing_is_done(place):
    shown = gepipe(
        place, "model", "convert", "tiny.onnx", "--soc", "Ascend310P3", "--gears", "8",
        "--aipp-from", "tiny.yaml", "--show",
    )  # fmt: skip

    assert shown.returncode == 0, shown.stderr
    assert "--input_shape=input:8,3,8,8" in shown.stdout
    assert "--insert_op_conf=aipp.cfg" in shown.stdout
    assert "min_chn_0: 102.0" in shown.stdout
    assert not (place / "tiny.om").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("tiny.onnx", "--soc", "Ascend310P3"), "atc is not to be found"),
        (("tiny.onnx",), "--soc"),
        (("tiny.onnx", "--soc", "emulator", "--gears", "1,x"), "batch sizes such as"),
        (("tiny.onnx", "--soc", "emulator", "--aipp-order", "bgr"), "--aipp-from"),
        (("tiny.onnx", "--soc", "emulator", "--output", "x.bin"), "ends in .om"),
        (("tiny.onnx", "--soc", "emulator", "--timeout", "long"), "--timeout"),
        (("model.om", "--soc", "emulator"), "overwritten"),
    ],
)
def test_a_wrong_request_exits_with_2(place, arguments, words):
    doubling_model(place / "model.om")

    wrong = gepipe(place, "model", "convert", *arguments)

    assert wrong.returncode == 2
    assert words in wrong.stderr


def test_the_cache_is_listed_and_cleared(place):
    gepipe(place, "model", "convert", "tiny.onnx", "--soc", "emulator")

    listed = json.loads(gepipe(place, "model", "cache", "list", "--json").stdout)
    assert [model["soc"] for model in listed["models"]] == ["emulator"]
    assert "1 model, " in gepipe(place, "model", "cache", "list").stdout
    assert gepipe(place, "model", "cache", "clear").stdout.startswith("1 model removed")
    assert "0 models" in gepipe(place, "model", "cache", "list").stdout


def test_models_are_inspected(place):
    tiny(place / "wrong.om", as_float([1, 1, 1]))
    gepipe(place, "model", "convert", "tiny.onnx", "--soc", "emulator", "--gears", "1,2")

    shown = json.loads(gepipe(place, "model", "inspect", "tiny.onnx", "--json").stdout)
    assert shown["inputs"] == [{"name": "input", "dtype": "float32", "shape": ["n", 3, 8, 8]}]
    assert shown["opset"] == 17
    emulated = json.loads(gepipe(place, "model", "inspect", "tiny.om", "--json").stdout)
    assert emulated["gears"] == {"kind": "batch", "values": [[1], [2]]}
    wrong = gepipe(place, "model", "inspect", "wrong.om")
    assert "not an .om model: this is ONNX; convert with" in wrong.stdout
    missing = gepipe(place, "model", "inspect", "none.om")
    assert missing.returncode == 2
    assert "no such model file" in missing.stderr


def test_both_engines_are_compared(place):
    done = gepipe(place, "compare", "tiny.yaml", "--json", GEPIPE_ACL="emulator")

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["items"], found["agreeing"]) == (6, 6)
    assert found["outputs"][0]["max_abs"] <= 1e-6
    assert any("EMULATED NPU" in note for note in found["notes"])


def test_a_model_with_aipp_is_given_pixels(place):
    for order in ("rgb", "bgr"):
        made = gepipe(
            place, "model", "convert", "tiny.onnx", "--soc", "emulator", "--aipp-from",
            "tiny.yaml", "--aipp-order", order, "--output", f"{order}.om",
        )  # fmt: skip
        assert "drop `normalize" in made.stdout, made.stderr

        done = gepipe(
            place, "compare", "tiny.yaml", "--model-b", f"{order}.om", "--tolerance", "1e-4",
            GEPIPE_ACL="emulator",
        )  # fmt: skip

        assert done.returncode == 0, done.stdout + done.stderr
        assert "takes 8-bit pixels" in done.stdout


def test_models_that_differ_exit_with_3_and_say_where(place):
    tiny(place / "other.onnx", as_float([1, 1, -5]))
    (place / "photos" / "broken.jpg").write_bytes(b"no image")

    done = gepipe(place, "compare", "tiny.yaml", "--model-b", "other.onnx", "--json")

    assert done.returncode == 3, done.stderr
    found = json.loads(done.stdout)
    assert found["items"] == 6
    assert found["failed"]["a"]["count"] == found["failed"]["b"]["count"] == 1
    assert any("scores" in problem for problem in found["problems"])
    assert found["outputs"][0]["cosine"] < 0.99
    text = gepipe(place, "compare", "tiny.yaml", "--model-b", "other.onnx", "--limit", "2")
    assert "of 2 items" in text.stdout
    assert "beyond: " in text.stdout


def test_a_side_that_makes_nan_is_beyond(place):
    tiny(place / "nan.onnx", as_float([float("nan"), 1, 1]))

    done = gepipe(place, "compare", "tiny.yaml", "--model-b", "nan.onnx", "--json")

    assert done.returncode == 3
    (output,) = json.loads(done.stdout)["outputs"]
    assert (output["nan_a"], output["nan_b"], output["torn"]) == (0, 6, 6)


def test_values_that_depend_on_what_shares_a_batch_are_beyond(place):
    onnx_model(
        place / "mixed.onnx",
        [("ReduceMean", ["input"], ["m"], {"axes": [2, 3], "keepdims": 0}),
         ("ReduceMean", ["m"], ["all"], {"axes": [0], "keepdims": 1}),
         ("Sub", ["m", "all"], ["scores"], {})],
        {"input": ("float32", ["n", 3, 8, 8])},
        {"scores": ("float32", ["n", 3])},
    )  # fmt: skip

    same = gepipe(place, "compare", "tiny.yaml", "--batch-b", "1", "--json")
    mixed = gepipe(place, "compare", "tiny.yaml", "--set", "inference.model=mixed.onnx",
                   "--batch-a", "3", "--batch-b", "1", "--json")  # fmt: skip

    assert same.returncode == 0, same.stdout + same.stderr
    assert json.loads(same.stdout)["items"] == 6
    assert mixed.returncode == 3, mixed.stdout + mixed.stderr
    found = json.loads(mixed.stdout)
    assert [side.rpartition(", ")[2] for side in found["sides"]] == ["batch 3", "batch 1"]
    assert found["outputs"][0]["max_abs"] > 0.01


def test_there_must_be_two_sides_and_inputs(place):
    gepipe(place, "model", "convert", "tiny.onnx", "--soc", "emulator")

    same = gepipe(place, "compare", "tiny.yaml", "--set", "inference.model=tiny.om")
    assert same.returncode == 2
    assert "--model-a" in same.stderr
    assert "--batch-b" in same.stderr
    equal = gepipe(place, "compare", "tiny.yaml", "--backend-b", "onnxruntime")
    assert equal.returncode == 2
    assert "both sides are" in equal.stderr
    assert "--batch-b" in equal.stderr
    for photo in (place / "photos").iterdir():
        photo.write_bytes(b"")
    nothing = gepipe(place, "compare", "tiny.yaml", "--model-b", "tiny.onnx", "--backend-b", "ge",
                     GEPIPE_ACL="emulator")  # fmt: skip
    assert nothing.returncode == 2
    assert "nothing was compared" in nothing.stderr


def test_the_doctor_says_that_the_npu_is_emulated(place):
    done = gepipe(place, "doctor", GEPIPE_ACL="emulator")

    assert done.returncode == 0
    assert "EMULATED NPU" in done.stdout


@pytest.mark.parametrize(
    "command",
    [
        ["model", "convert"],
        ["model", "inspect"],
        ["model", "cache", "list"],
        ["model"],
        ["compare"],
    ],
)
def test_every_command_has_a_help(place, command):
    done = gepipe(place, *command, "--help")

    assert done.returncode == 0
    assert "Usage" in done.stdout
