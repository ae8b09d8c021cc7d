from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from gepipe.errors import ConfigError, ModelLoadError
from gepipe.models.atc import find_atc
from gepipe.models.complaints import complaint_of
from gepipe.models.convert import convert, copy_to, ensure_om
from gepipe.models.options import (
    ConvertOptions,
    parse_dims,
    parse_gears,
    parse_image_sizes,
    parse_input_shape,
)
from gepipe.models.plan import plan_conversion
from gepipe.models.store import Store
from tests.support import onnx_model, wait_until
from tests.unit.models.support import fake_cann

onnx = pytest.importorskip("onnx")


def image_model(path: Path, shape=("n", 3, 8, 8)) -> Path:
    return onnx_model(
        path,
        [("ReduceMean", ["x"], ["y"], {"axes": [2, 3], "keepdims": 0})],
        {"x": ("float32", shape)},
        {"y": ("float32", [shape[0], shape[1]])},
    )


def text_model(path: Path) -> Path:
    return onnx_model(
        path,
        [("Add", ["ids", "mask"], ["y"], {})],
        {"ids": ("int64", ["n", "t"]), "mask": ("int64", ["n", "t"])},
        {"y": ("int64", ["n", "t"])},
    )


@pytest.fixture
def cann(tmp_path, monkeypatch):
    """Install a CANN with a fake atc, as set_env.sh would; return where its calls are noted."""
    for name in [n for n in os.environ if n.startswith(("ASCEND", "GEPIPE", "FAKE"))]:
        monkeypatch.delenv(name)
    home = tmp_path / "cann"
    fake_cann(home)
    calls = tmp_path / "calls"
    calls.touch()
    monkeypatch.setenv("ASCEND_HOME_PATH", str(home))
    monkeypatch.setenv("PATH", f"{home / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("GEPIPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FAKE_ATC_CALLS", str(calls))
    return calls


def made(model: Path, **options):
    return convert(plan_conversion(model, ConvertOptions(soc="Ascend310P3", **options)))


def calls_of(file: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"gears": (4,)}, {"input_shape": "x:4,3,8,8", "input_format": "NCHW"}),
        ({"gears": (1, 4)}, {"input_shape": "x:-1,3,8,8", "dynamic_batch_size": "1,4"}),
        ({}, {"input_shape": "x:-1,3,8,8", "dynamic_batch_size": "1,2,4,8"}),
        ({"dims": ((1,), (8,))}, {"input_format": "ND", "dynamic_dims": "1;8"}),
        ({"gears": (2,), "precision": "fp16"}, {"precision_mode": "force_fp16"}),
        ({"gears": (2,), "precision": "fp32"}, {"precision_mode": "must_keep_origin_dtype"}),
        ({"gears": (2,), "output_type": "FP16"}, {"output_type": "FP16"}),
        ({"gears": (2,), "extra": ("--external_weight=1",)}, {"external_weight": "1"}),
        (
            {"input_shape": (("x", ((1, 16), 3, 8, 8)),)},
            {"input_shape": "x:1~16,3,8,8", "input_format": "NCHW"},
        ),
    ],
)
def test_options_become_arguments_of_atc(tmp_path, cann, options, expected):
    done = made(image_model(tmp_path / "m.onnx"), **options)

    (call,) = calls_of(cann)
    assert expected.items() <= call.items()
    assert call["soc_version"] == "Ascend310P3"
    assert done.path.read_bytes().startswith(b"IMOD")
    assert sorted(p.name for p in done.path.parent.iterdir()) == [
        "convert.log", "entry.json", "m.om", *["weight"] * ("extra" in options),
    ]  # fmt: skip


def test_image_sizes_and_dims_of_several_inputs(tmp_path, cann):
    made(
        image_model(tmp_path / "m.onnx", ("n", 3, "h", "w")),
        image_sizes=((416, 416), (608, 608)),
        gears=(2,),
    )
    made(text_model(tmp_path / "t.onnx"), dims=((1, 8, 1, 8), (2, 16, 2, 16)))

    images, text = calls_of(cann)
    assert images["input_shape"] == "x:2,3,-1,-1"
    assert images["dynamic_image_size"] == "416,416;608,608"
    assert text["input_shape"] == "ids:-1,-1;mask:-1,-1"
    assert text["dynamic_dims"] == "1,8,1,8;2,16,2,16"


@pytest.mark.parametrize(
    ("shape", "options", "words"),
    [
        ((1, 3, 8, 8), {"gears": (1, 4)}, "fixed batch"),
        ((1, 3, 8, 8), {"gears": (8,)}, "fixed batch"),
        (("n", 3, "h", "w"), {}, "--image-sizes"),
        (("n", 3, 8, 8), {"image_sizes": ((8, 8), (9, 9))}, "no input has an open height"),
        (("n", 3, 8, 8), {"dims": ((1, 2), (3, 4))}, "one for each open extent"),
        (("n", 3, 8, 8), {"input_shape": (("z", (1,)),)}, "no input is called 'z'"),
        (("n", 3, 8, 8), {"input_shape": (("x", (1, 3)),)}, "E10012"),
        (("n", 3, 8, 8), {"input_shape": (("x", (1, 3, 9, 9)),)}, "contradicts"),
    ],
)
def test_what_atc_would_refuse_is_refused_before(tmp_path, cann, shape, options, words):
    with pytest.raises(ConfigError, match=words):
        made(image_model(tmp_path / "m.onnx", shape), **options)

    assert not calls_of(cann)


def test_what_the_pre_stage_makes_fills_what_the_model_leaves_open(tmp_path, cann):
    options = {"row": (3, 32, 48), "default_gears": (1, 16)}

    made(image_model(tmp_path / "open.onnx", ("n", 3, "h", "w")), **options)
    made(image_model(tmp_path / "fixed.onnx", (1, 3, 8, 8)), **options)

    opened, fixed = calls_of(cann)
    assert opened["input_shape"] == "x:-1,3,32,48"
    assert opened["dynamic_batch_size"] == "1,16"
    assert fixed["input_shape"] == "x:1,3,8,8"
    assert "dynamic_batch_size" not in fixed


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gears": (1, 2), "dims": ((1,), (2,))}, "E10009"),
        ({"image_sizes": ((1, 2), (3, 4)), "dims": ((1,), (2,))}, "E10009"),
        ({"dims": ((1,),)}, "E10035"),
        ({"gears": tuple(range(1, 102))}, "E10036"),
        ({"gears": (2, 2)}, "twice"),
        ({"precision": "fp61"}, "did you mean"),
        ({"output_type": "float"}, "FP32"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        ConvertOptions(**options)


def test_text_of_options_is_read():
    assert parse_gears("8,1, 4") == (1, 4, 8)
    assert parse_image_sizes("416x416,608x800") == ((416, 416), (608, 800))
    assert parse_image_sizes("416,416;608,800") == ((416, 416), (608, 800))
    assert parse_dims("1,128;8,128") == ((1, 128), (8, 128))
    assert parse_input_shape("a:0:-1,1~16,3") == (("a:0", (-1, (1, 16), 3)),)
    for parse, text in (
        (parse_gears, "1,x"), (parse_image_sizes, "416"), (parse_dims, ";"),
        (parse_input_shape, "1,2"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match="such as"):
            parse(text)


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("kernel", r"no kernel.*EZ3003(.|\n)*Einsum_3"),
        ("numpy", "numpy<2"),
        ("inner", "EZ9999"),
        ("library", "set_env.sh"),
        ("killed", "memory"),
        ("silent", "exit code 3(.|\n)*something else"),
        ("nothing", "wrote no model"),
    ],
)
@pytest.mark.usefixtures("cann")
def test_a_failure_of_atc_says_what_to_do_and_keeps_nothing(tmp_path, monkeypatch, way, words):
    monkeypatch.setenv("FAKE_ATC", way)

    with pytest.raises(ModelLoadError, match=words):
        made(image_model(tmp_path / "m.onnx"), gears=(1,))

    assert Store().entries() == []
    assert not list((tmp_path / "cache/models").glob(".part-*"))


@pytest.mark.usefixtures("cann")
def test_an_unknown_chip_is_named(tmp_path):
    model = image_model(tmp_path / "m.onnx")

    with pytest.raises(ModelLoadError, match="does not know the chip"):
        convert(plan_conversion(model, ConvertOptions(soc="310P9", gears=(1,))))


@pytest.mark.usefixtures("cann")
def test_atc_is_ended_with_its_children_when_it_takes_too_long(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_ATC", "hang")
    plan = plan_conversion(
        image_model(tmp_path / "m.onnx"), ConvertOptions(soc="Ascend310P3", gears=(1,))
    )

    with pytest.raises(ModelLoadError, match=r"did not finish within 0\.5 s"):
        convert(plan, timeout_s=0.5)


def test_what_atc_started_ends_with_a_gepipe_that_is_killed(tmp_path, cann):
    model = image_model(tmp_path / "m.onnx")
    code = (
        "from pathlib import Path\n"
        "from gepipe.models.convert import ensure_om\n"
        "from gepipe.models.options import ConvertOptions\n"
        f"ensure_om(Path({str(model)!r}), ConvertOptions(soc='Ascend310P3', gears=(1,)))\n"
    )
    environ = {**os.environ, "FAKE_ATC": "hang", "FAKE_ATC_PID": str(tmp_path / "pid")}
    killed = subprocess.Popen([sys.executable, "-c", code], env=environ)
    wait_until((tmp_path / "pid").exists)
    atc = int((tmp_path / "pid").read_text())
    (part,) = (tmp_path / "cache" / "models").glob(".part-*")

    killed.kill()
    killed.wait()

    wait_until(lambda: not running(atc))
    made(model, gears=(1,))
    assert not part.exists()  # what was left unfinished went with the next conversion
    assert not calls_of(cann)[1:]


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.usefixtures("cann")
def test_paths_that_atc_does_not_take_are_kept_from_it(tmp_path):
    folder = tmp_path / "two words"
    folder.mkdir()

    done = made(image_model(folder / "my 模型.onnx"), gears=(1,))

    assert done.path.name == "my_模型.om"


def test_weights_behind_links_lie_beside_the_model_for_atc(tmp_path, cann):
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshot").mkdir()
    weights = onnx.numpy_helper.from_array(np.ones((1, 3, 8, 8), np.float32), "w")
    model = onnx.load(image_model(tmp_path / "m.onnx"))
    model.graph.initializer.append(weights)
    onnx.save(
        model, tmp_path / "blobs" / "1f", save_as_external_data=True, location="m.data",
        size_threshold=0,
    )  # fmt: skip
    (tmp_path / "blobs" / "m.data").rename(tmp_path / "blobs" / "2e")
    (tmp_path / "snapshot" / "m.onnx").symlink_to("../blobs/1f")
    (tmp_path / "snapshot" / "m.data").symlink_to("../blobs/2e")

    made(tmp_path / "snapshot" / "m.onnx", gears=(1,))

    (call,) = calls_of(cann)
    assert call["beside"] == ["m.data", "m.onnx"]


@pytest.mark.usefixtures("cann")
def test_weights_that_atc_puts_beside_the_model_go_with_it(tmp_path):
    done = made(image_model(tmp_path / "m.onnx"), gears=(1,), extra=("--external_weight=1",))

    copy_to(done.path, tmp_path / "out" / "m.om")

    (weights,) = (tmp_path / "out" / "weight").iterdir()
    assert weights.read_bytes() == b"w" * 1000
    assert Store().entries()[0].nbytes > done.path.stat().st_size + 1000


@pytest.mark.usefixtures("cann")
@pytest.mark.parametrize("soc", ["Ascend310P3", "ascend310p3", "310p3", "ASCEND310P3", "310P3"])
def test_the_chip_may_be_written_in_any_case(tmp_path, soc):
    plan = plan_conversion(image_model(tmp_path / "m.onnx"), ConvertOptions(soc=soc, gears=(1,)))

    assert plan.soc == "Ascend310P3"


@pytest.mark.usefixtures("cann")
def test_newer_atc_adds_the_host_to_the_name(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_ATC", "suffix")

    assert made(image_model(tmp_path / "m.onnx"), gears=(1,)).path.name == "m.om"


def test_atc_is_found_without_an_environment_which_is_then_made(tmp_path):
    fake_cann(tmp_path / "usr/local/Ascend/ascend-toolkit/8.0.RC3")

    found = find_atc({"PATH": "/nowhere", "HOME": "/root"}, tmp_path)

    assert found.version == "8.0.RC3"
    home = str(found.program.parent.parent)
    assert found.environ["ASCEND_OPP_PATH"] == f"{home}/opp"
    assert found.environ["PATH"].startswith(f"{home}/bin:")
    assert f"{home}/lib64" in found.environ["LD_LIBRARY_PATH"]
    with pytest.raises(ConfigError, match=r"set_env\.sh"):
        find_atc({"PATH": "/nowhere"}, tmp_path / "empty")


@pytest.mark.usefixtures("cann")
def test_a_conversion_is_found_again_by_contents_options_and_version(tmp_path):
    model = image_model(tmp_path / "m.onnx")
    first = made(model, gears=(1,))

    (tmp_path / "other.onnx").write_bytes(model.read_bytes())
    same = made(tmp_path / "other.onnx", gears=(1,))
    assert first.is_new
    assert not same.is_new
    assert same.path == first.path
    assert "--soc_version=Ascend310P3" in same.command

    assert made(model, gears=(2,)).is_new
    assert made(model, gears=(1,), precision="fp16").is_new
    image_model(model, ("n", 4, 8, 8))
    assert made(model, gears=(1,)).is_new
    info = next((tmp_path / "cann").glob("*-linux/*.info"))
    info.write_text("version=8.1.RC1\n")
    assert made(model, gears=(1,)).is_new


def test_files_that_arguments_name_count_and_are_found(tmp_path, cann, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = image_model(tmp_path / "m.onnx")
    (tmp_path / "my.cfg").write_text("aipp_op {}")

    first = made(model, gears=(1,), extra=("--insert_op_conf=my.cfg",))
    (tmp_path / "my.cfg").write_text("aipp_op { }")

    assert calls_of(cann)[0]["insert_op_conf"] == str(tmp_path / "my.cfg")
    assert made(model, gears=(1,), extra=("--insert_op_conf=my.cfg",)).key != first.key


def test_two_at_once_convert_once(tmp_path, cann, monkeypatch):
    monkeypatch.setenv("FAKE_ATC_S", "0.3")
    model = image_model(tmp_path / "m.onnx")
    said: list[str] = []

    def work(_):
        plan = plan_conversion(model, ConvertOptions(soc="Ascend310P3", gears=(1,)))
        return convert(plan, say=said.append)

    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(work, range(3)))

    assert len(calls_of(cann)) == 1
    assert sorted(each.is_new for each in done) == [False, False, True]
    assert sum("waiting" in line for line in said) == 2


@pytest.mark.usefixtures("cann")
def test_ensure_om_converts_onnx_and_leaves_om_alone(tmp_path):
    options = ConvertOptions(soc="Ascend310P3", gears=(1, 2))

    path = ensure_om(image_model(tmp_path / "m.onnx"), options)

    assert path.name == "m.om"
    assert ensure_om(path, options) == path
    (entry,) = Store().entries()
    assert entry.in_use
    assert Store().clear() == ([], [entry])
    (path.parent / "users" / str(os.getpid())).unlink()
    assert Store().clear() == ([entry], [])


def test_the_first_message_that_tells_something_is_taken():
    said = "EZ9999: Inner Error!\nTraceBack\nE10016: Opname [z] is not found in the model\n"

    found = complaint_of(said)

    assert found is not None
    assert found.code == "E10016"
    assert complaint_of("all is well") is None
    assert complaint_of(f"signal {signal.SIGKILL}") is None
