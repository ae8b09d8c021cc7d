"""What a pipeline becomes for `ge`, with an atc that checks its arguments."""

from __future__ import annotations

import json
import os

import pytest

from gepipe.errors import BackendError, ConfigError
from gepipe.ops.crop import Crop
from gepipe.ops.tensor import ToTensor
from gepipe.pipeline.conversion import prepare
from gepipe.spec import loads
from tests.support import onnx_model
from tests.unit.models.support import fake_cann

pytest.importorskip("onnx")


@pytest.fixture
def prepared(tmp_path, monkeypatch):
    """Return a function that prepares a pipeline, and where the calls of atc are noted."""
    fake_cann(tmp_path / "cann")
    (tmp_path / "acl.py").write_text(
        "def init(): return 0\ndef finalize(): return 0\ndef get_soc_name(): return 'Ascend310P3'\n"
        "class rt: pass\nclass mdl: pass\n"
    )
    for name, value in {
        "ASCEND_HOME_PATH": tmp_path / "cann",
        "PATH": f"{tmp_path / 'cann/bin'}:{os.environ['PATH']}",
        "PYTHONPATH": tmp_path,
        "GEPIPE_CACHE": tmp_path / "cache",
        "FAKE_ATC_CALLS": tmp_path / "calls",
    }.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.delenv("GEPIPE_ACL", raising=False)
    onnx_model(
        tmp_path / "m.onnx",
        [("GlobalAveragePool", ["x"], ["y"], {})],
        {"x": ("float32", ["n", 3, "h", "w"])},
        {"y": ("float32", ["n", 3, 1, 1])},
    )

    def prepared(options: str, ops: str = "", made=()):
        spec = loads(
            f"""
stages:
  - {{name: preprocess, batch_size: 4, ops: [{ops}]}}
  - {{name: inference, model: {tmp_path}/m.onnx, backend: {{ge: {{{options}}}}}}}
  - {{name: postprocess}}
"""
        )
        if made:  # as a leg of a chain begins
            pre = spec.pre.model_copy(update={"ops": made})
            spec = spec.model_copy(update={"stages": (pre, *spec.stages[1:])})
        return prepare(spec)

    return prepared, tmp_path / "calls"


def test_shapes_fix_what_the_model_leaves_open(prepared):
    prepare_, calls = prepared

    spec = prepare_("shapes: {x: [3, 8, 9]}")

    (call,) = map(json.loads, calls.read_text().splitlines())
    assert call["input_shape"] == "x:-1,3,8,9"
    assert call["dynamic_batch_size"] == "1,4"
    assert spec.infer.model.suffix == ".om"


def test_aipp_moves_operators_into_the_model(prepared):
    prepare_, calls = prepared
    ops = "{decode_image: rgb}, {resize: 8}, {normalize: {mean: 127, std: 128}}, to_tensor"

    spec = prepare_("aipp: true", ops)

    assert [op.title for op in spec.pre.ops] == ["decode_image", "resize 8"]
    assert "insert_op_conf" in json.loads(calls.read_text())
    assert "aipp" not in spec.infer.backend.options


def test_nothing_is_converted_where_nothing_could_run_it(prepared, tmp_path):
    prepare_, calls = prepared
    (tmp_path / "acl.py").unlink()

    with pytest.raises(BackendError, match=r"pyACL does not import.*set_env\.sh"):
        prepare_("shapes: {x: [3, 8, 9]}")
    assert not calls.exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("aipp: 1", "aipp: expected true or false"),
        ("shapes: {z: [3, 8, 8]}", "no input is called 'z'"),
        ("shapes: {x: [4, 8, 8]}", "does not fit"),
        ("shapes: {x: [3, 8]}", "does not fit"),
        ("", r"shapes: \{x: \[3, 224, 224\]"),
    ],
)
def test_options_that_do_not_fit_are_refused(prepared, options, words):
    prepare_, calls = prepared

    with pytest.raises(ConfigError, match=words):
        prepare_(options)
    assert not calls.exists()


def test_several_sizes_of_pre_become_image_sizes_of_the_model(prepared):
    prepare_, calls = prepared

    prepare_("", "decode_image, {letterbox: {sizes: [[64, 96], [96, 64]]}}, to_tensor")

    (call,) = map(json.loads, calls.read_text().splitlines())
    assert call["input_shape"] == "x:1,3,-1,-1"
    assert call["dynamic_image_size"] == "64,96;96,64"


def test_pictures_of_any_size_become_a_few_sizes_of_the_model(prepared):
    prepare_, calls = prepared

    spec = prepare_("", "decode_image, {resize: {max_side: 128, multiple_of: 32}}, to_tensor")

    (call,) = map(json.loads, calls.read_text().splitlines())
    assert call["input_shape"] == "x:1,3,-1,-1"
    sizes = call["dynamic_image_size"].split(";")
    assert sizes == [f"{h},{w}" for h in (32, 64, 96, 128) for w in (32, 64, 96, 128)]
    assert [f"{h},{w}" for h, w in spec.pre.ops[2].sizes] == sizes


def test_several_widths_of_parts_become_dims_in_each_batch_size(prepared):
    prepare_, calls = prepared

    prepare_("", made=(Crop(height=48, widths=(96, 192)), ToTensor()))

    (call,) = map(json.loads, calls.read_text().splitlines())
    assert call["input_shape"] == "x:-1,3,-1,-1"
    assert call["dynamic_dims"] == "1,48,96;1,48,192;4,48,96;4,48,192"
