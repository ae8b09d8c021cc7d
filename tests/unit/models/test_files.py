from __future__ import annotations

import errno
import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from gepipe.errors import ConfigError, ModelLoadError
from gepipe.models.convert import convert, ensure_om
from gepipe.models.emulated import convert_emulated
from gepipe.models.header import read_header
from gepipe.models.inspection import inspect
from gepipe.models.kind import kind_of, require_om, require_onnx
from gepipe.models.onnxfile import read_onnx
from gepipe.models.options import ConvertOptions
from gepipe.models.plan import plan_conversion
from gepipe.models.soc import detect_soc
from gepipe.models.store import Store
from tests.support import doubling_model
from tests.unit.models.support import plain_environment

onnx = pytest.importorskip("onnx")


def om_file(path, soc="Ascend310P3", partitions=((0, 0, 16), (1, 16, 32))):
    table = struct.pack("<II", len(partitions), 0)
    table += b"".join(struct.pack("<IIQQ", kind, 0, at, size) for kind, at, size in partitions)
    payload = table + b"soc_version\x12\x0c" + soc.encode() + b"\0" * 64
    header = bytearray(256)
    header[:12] = struct.pack("<4sII", b"IMOD", 256, 0x20000000)
    header[82] = 1
    header[84:89] = b"tiny\0"
    header[184:192] = struct.pack("<Q", len(payload))
    path.write_bytes(bytes(header) + payload)
    return path


def test_an_onnx_file_is_read_as_the_onnx_package_reads_it(tmp_path):
    path = doubling_model(tmp_path / "m.onnx")

    found, expected = read_onnx(path), onnx.load(str(path))

    assert found.ir_version == expected.ir_version
    assert found.opset == expected.opset_import[0].version
    assert found.node_count == len(expected.graph.node)
    assert [(t.name, t.dtype, t.shape) for t in found.inputs] == [("x", "float32", ("n", 4))]
    assert [(t.name, t.dtype, t.shape) for t in found.outputs] == [("y", "float32", ("n", 4))]


def test_weights_in_other_files_are_found_and_count(tmp_path):
    model = onnx.load(str(doubling_model(tmp_path / "m.onnx")))
    onnx.save(
        model, str(tmp_path / "e.onnx"), save_as_external_data=True, size_threshold=0,
        location="e.bin",
    )  # fmt: skip

    assert read_onnx(tmp_path / "e.onnx").external == ("e.bin",)
    assert inspect(tmp_path / "e.onnx").facts["external"] == ["e.bin"]
    options = ConvertOptions(soc="emulator", gears=(2,))
    before = plan_conversion(tmp_path / "e.onnx", options).key
    weights = (tmp_path / "e.bin").read_bytes()
    (tmp_path / "e.bin").write_bytes(weights[::-1])
    assert plan_conversion(tmp_path / "e.onnx", options).key != before
    (tmp_path / "e.bin").unlink()
    with pytest.raises(ModelLoadError, match="not beside it"):
        plan_conversion(tmp_path / "e.onnx", options)


@pytest.mark.parametrize("cut", [1, 40, 100])
def test_a_cut_off_onnx_file_is_damaged(tmp_path, cut):
    path = doubling_model(tmp_path / "m.onnx")
    path.write_bytes(path.read_bytes()[:-cut])

    with pytest.raises(ModelLoadError, match=r"damaged|unknown"):
        inspect(path)


def test_noise_never_crashes_the_reader(tmp_path):
    good = doubling_model(tmp_path / "m.onnx").read_bytes()
    refused = 0
    for seed in range(300):
        noise = bytearray(good)
        noise[seed * 7 % len(good)] = seed % 256
        noise[seed * 31 % len(good)] ^= 0xFF
        (tmp_path / "n.onnx").write_bytes(noise)
        try:
            inspect(tmp_path / "n.onnx")
        except ModelLoadError:
            refused += 1

    assert 0 < refused < 300


@pytest.mark.parametrize(
    ("contents", "words"),
    [
        (b"", "empty"),
        (b"PK\x03\x04...", "PyTorch"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"<html>", "web page"),
        (b"\x1c\0\0\0TFL3", "TensorFlow Lite"),
        (b"\x00\x01\x02\x03", "unknown"),
    ],
)
def test_other_files_are_called_what_they_are(tmp_path, contents, words):
    path = tmp_path / "m.om"
    path.write_bytes(contents)

    for look in (require_om, require_onnx, inspect):
        with pytest.raises(ModelLoadError, match=words):
            look(path)


def test_models_under_the_wrong_name_are_told_apart_by_their_contents(tmp_path):
    doubling_model(tmp_path / "a.om")
    om_file(tmp_path / "b.onnx")

    with pytest.raises(ModelLoadError, match=r"not an \.om model: this is ONNX; .*convert with"):
        require_om(tmp_path / "a.om")
    with pytest.raises(ModelLoadError, match=r"not an \.om model: this is ONNX"):
        ensure_om(tmp_path / "a.om")
    with pytest.raises(ModelLoadError, match=r"not an ONNX model: this is an \.om model"):
        require_onnx(tmp_path / "b.onnx")
    assert "not an .om model: this is ONNX; convert with" in inspect(tmp_path / "a.om").notes[0]
    assert "not an ONNX model" in inspect(tmp_path / "b.onnx").notes[0]
    assert require_om(tmp_path / "b.onnx") == "om"


def test_what_is_no_file_to_read_is_a_mistake_of_the_caller(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")

    for name, words in (
        ("none", "no such model file"), ("", "folder"), ("pipe", "pipe"), ("loop", "cannot be read")
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=words):
            kind_of(tmp_path / name)
    with pytest.raises(ConfigError, match="device"):
        inspect(Path("/dev/zero"))


def test_a_file_that_goes_on_with_zeros_is_damaged_and_that_is_seen_at_once(tmp_path):
    path = doubling_model(tmp_path / "m.onnx")
    os.truncate(path, 4 << 30)

    with pytest.raises(ModelLoadError, match="damaged or cut off: there is no field 0"):
        read_onnx(path)


@pytest.mark.usefixtures("cache")
def test_a_model_too_large_for_the_emulator_is_refused_at_once(tmp_path):
    path = external_model(tmp_path)
    os.truncate(tmp_path / "m.data", 3 << 30)
    plan = plan_conversion(path, ConvertOptions(soc="emulator", gears=(1,)))

    with pytest.raises(ModelLoadError, match="at most 2 GiB"):
        convert_emulated(
            plan.model, tmp_path / "m.om", plan.shapes, plan.options, None, tmp_path / "log", 1.0
        )


def test_the_header_of_an_om_file_is_read(tmp_path):
    header = read_header(om_file(tmp_path / "m.om"))

    assert (header.name, header.version, header.model_type) == ("tiny", "2.0", "standard")
    assert header.soc == "Ascend310P3"
    assert [(p.kind, p.nbytes) for p in header.partitions] == [("MODEL_DEF", 16), ("WEIGHTS", 32)]
    plain = inspect(tmp_path / "m.om").to_plain()
    assert plain["inputs"] is None
    assert plain["partitions"][1] == {"kind": "WEIGHTS", "offset": 16, "nbytes": 32}
    json.dumps(plain)


def test_a_damaged_om_file_is_refused(tmp_path):
    path = om_file(tmp_path / "m.om")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ModelLoadError, match="damaged"):
        inspect(path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ModelLoadError, match="cut off"):
        inspect(path)


def external_model(folder, location="m.data"):
    weights = onnx.numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(3, 4), "w")
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [onnx.helper.make_tensor_value_info("x", 1, ["n", 3])],
        [onnx.helper.make_tensor_value_info("y", 1, ["n", 4])],
        [weights],
    )
    model = onnx.helper.make_model(
        graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 17)]
    )
    onnx.save(
        model, folder / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0
    )
    if location != "m.data":
        text = (folder / "m.onnx").read_bytes()
        assert len(location) == len("m.data")
        (folder / "m.onnx").write_bytes(text.replace(b"m.data", location.encode()))
    return folder / "m.onnx"


@pytest.mark.usefixtures("cache")
def test_weights_behind_links_are_found_for_the_emulator(tmp_path):
    (tmp_path / "real").mkdir()
    external_model(tmp_path / "real")
    for name in ("m.onnx", "m.data"):
        (tmp_path / name).symlink_to(f"real/{name}")

    linked = ensure_om(tmp_path / "m.onnx", ConvertOptions(soc="emulator", gears=(1,)))

    assert np.arange(12, dtype=np.float32).tobytes() in linked.read_bytes()


@pytest.mark.parametrize("location", ["../xxx", "/etc/x"])
def test_weights_outside_the_models_folder_are_refused(tmp_path, location):
    with pytest.raises(ModelLoadError, match="outside its folder"):
        plan_conversion(external_model(tmp_path, location), ConvertOptions(soc="emulator"))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GEPIPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


@pytest.mark.usefixtures("cache")
def test_a_model_is_converted_for_the_emulator(tmp_path):
    options = ConvertOptions(soc="emulator", gears=(1, 4))

    path = ensure_om(doubling_model(tmp_path / "m.onnx"), options)

    found = inspect(path)
    assert found.format == "om for the emulator"
    assert found.gears == ("batch", ((1,), (4,)))
    assert [str(t) for t in found.inputs] == ["x: float32 [?, 4]"]
    path.write_bytes(b"gepipe emul om1\n")
    with pytest.raises(ModelLoadError):
        inspect(path)
    assert ensure_om(tmp_path / "m.onnx", options).stat().st_size > 16  # what is damaged is redone


@pytest.mark.usefixtures("cache")
def test_what_the_emulator_refuses_is_told(tmp_path):
    (tmp_path / "bad.onnx").write_bytes(
        onnx.helper.make_model(
            onnx.helper.make_graph(
                [onnx.helper.make_node("NoSuchOp", ["x"], ["y"])],
                "bad",
                [onnx.helper.make_tensor_value_info("x", 1, [1, 4])],
                [onnx.helper.make_tensor_value_info("y", 1, [1, 4])],
            ),
            ir_version=8,  # newer ones are too new for the ONNX Runtime of Python 3.10
            opset_imports=[onnx.helper.make_opsetid("", 17)],
        ).SerializeToString()
    )

    with pytest.raises(ModelLoadError, match="NoSuchOp"):
        ensure_om(tmp_path / "bad.onnx", ConvertOptions(soc="emulator"))


def put(store, key, nbytes, used):
    def build(folder):
        (folder / "m.om").write_bytes(bytes(nbytes))

    with store.lock(key):
        entry = store.add(key, "m.om", {"soc": "emulator"}, build)
    os.utime(entry.path.parent / "entry.json", (used, used))
    return entry


def test_those_used_least_recently_go_when_the_cache_is_full(tmp_path):
    store = Store(tmp_path, limit_bytes=250)
    put(store, "a", 100, 1000)
    put(store, "b", 100, 2000)
    assert store.find("a")

    put(store, "c", 100, 3000)

    assert {entry.key for entry in store.entries()} == {"a", "c"}


def test_a_model_in_use_and_the_newest_stay(tmp_path):
    store = Store(tmp_path, limit_bytes=150)
    put(store, "a", 100, 1000)
    store.find("a", mark=True)
    put(store, "b", 200, 2000)

    assert {entry.key for entry in store.entries()} == {"a", "b"}


def test_a_failed_build_leaves_nothing(tmp_path):
    store = Store(tmp_path)

    def build(_):
        raise ModelLoadError("no")

    with store.lock("a"), pytest.raises(ModelLoadError, match="no"):
        store.add("a", "m.om", {}, build)

    assert [path.name for path in tmp_path.iterdir()] == ["locks"]


KEY = "0123456789abcdef" * 2


def test_damage_is_noticed_whatever_its_kind(tmp_path):
    store = Store(tmp_path)
    entry = put(store, KEY, 100, 1000)

    os.utime(entry.path, (5, 5))  # as after a copy of the whole cache
    assert store.find(KEY)
    entry.path.write_bytes(b"x" * 100)
    assert store.find(KEY) is None
    assert store.entries() == []

    put(store, "f" * 32, 100, 2000)
    assert not entry.path.parent.exists()  # else it would take room for ever


def test_what_killed_conversions_left_is_removed_and_what_runs_is_not(tmp_path):
    store = Store(tmp_path)
    for name in (f".part-{KEY}-abc", f".part-{'e' * 32}-abc", ".gone-abc", "own folder"):
        (tmp_path / name).mkdir()
    store.log_file(KEY).write_text("it failed")

    with Store(tmp_path).lock("e" * 32):
        assert store.clear() == ([], [])

    assert {path.name for path in tmp_path.iterdir()} == {
        "locks", "own folder", f".part-{'e' * 32}-abc",
    }  # fmt: skip


def test_what_a_killed_conversion_left_goes_when_the_same_model_is_made(tmp_path):
    (tmp_path / f".part-{KEY}-abc").mkdir()

    put(Store(tmp_path), KEY, 100, 1000)

    assert {path.name for path in tmp_path.iterdir()} == {"locks", KEY}


def test_a_mark_of_a_process_whose_number_is_anothers_now_does_not_count(tmp_path):
    entry = put(Store(tmp_path), KEY, 100, 1000)
    users = entry.path.parent / "users"
    users.mkdir()
    (users / str(os.getpid())).write_text("1")

    assert not entry.in_use
    assert Store(tmp_path).find(KEY, mark=True).in_use


def test_a_full_disk_and_a_folder_that_is_none_are_told_in_words(tmp_path):
    store = Store(tmp_path / "cache")

    def build(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with (
        pytest.raises(ConfigError, match=r"no space left on device; make room .*GEPIPE_CACHE"),
        store.lock(KEY),
    ):
        store.add(KEY, "m.om", {}, build)
    assert not list(store.folder.glob(".part-*"))

    put(store, KEY, 100, 1000)
    moved = store.folder.rename(tmp_path / "moved")
    (moved / "locks").rename(tmp_path / "locks")
    (moved / "locks").touch()
    with pytest.raises(ConfigError, match="cannot be kept in"), Store(moved).lock(KEY):
        pass


def test_the_limit_is_read_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("GEPIPE_CACHE_LIMIT", "2GiB")
    assert Store(tmp_path).limit_bytes == 2 << 30
    monkeypatch.setenv("GEPIPE_CACHE_LIMIT", "much")
    with pytest.raises(ConfigError, match="GEPIPE_CACHE_LIMIT"):
        Store(tmp_path)
    monkeypatch.delenv("GEPIPE_CACHE_LIMIT")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="GEPIPE_CACHE"), Store(tmp_path / "file").lock("a"):
        pass


def test_the_chip_is_asked_for(tmp_path):
    (tmp_path / "acl.py").write_text(
        "def init(): return 0\ndef finalize(): return 0\ndef get_soc_name(): return 'Ascend910B3'\n"
    )
    assert detect_soc(plain_environment(PYTHONPATH=str(tmp_path))) == "Ascend910B3"
    assert detect_soc({"GEPIPE_ACL": "emulator"}) == "emulator"

    smi = tmp_path / "bin" / "npu-smi"
    smi.parent.mkdir()
    smi.write_text("#!/bin/sh\necho '| NPU   Name  | Health |'\necho '| 0     310P3 | OK     |'\n")
    smi.chmod(0o755)
    environ = plain_environment(PATH=f"{smi.parent}:{os.environ['PATH']}")
    assert detect_soc(environ) == "Ascend310P3"
    with pytest.raises(ConfigError, match="--soc"):
        detect_soc(plain_environment())


@pytest.mark.usefixtures("cache")
def test_a_conversion_notes_what_it_decided(tmp_path):
    done = convert(
        plan_conversion(doubling_model(tmp_path / "m.onnx"), ConvertOptions(soc="Emulator"))
    )

    assert "1, 2, 4, 8" in done.notes[0]
