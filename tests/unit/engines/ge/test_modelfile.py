from __future__ import annotations

import os
import struct

import pytest

from gepipe.emulator.om import OmTensor, write_om
from gepipe.engines.ge import modelfile
from gepipe.errors import ModelLoadError
from tests.support import doubling_model


def om_header(payload: bytes, *, dynamic: int = 0) -> bytes:
    head = bytearray(256)
    struct.pack_into("<4sIII", head, 0, b"IMOD", 256, 0x20000000, 0)
    struct.pack_into("<I", head, 156, 1)
    struct.pack_into("<Q", head, 184, len(payload))
    head[193] = dynamic
    return bytes(head) + payload


def test_onnx_under_another_name_is_recognised(npu, tmp_path) -> None:
    bed = npu()
    path = doubling_model(tmp_path / "m.onnx").rename(tmp_path / "m.om")

    with pytest.raises(
        ModelLoadError,
        match=r"not an \.om model \(model file is not \.om format\): this is ONNX; convert with",
    ):
        bed.open(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it is empty"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
        (b"PK\x03\x04rest", "PyTorch"),
        (b"\x00\x01\x02", "unknown contents"),
        (b"IMOD" + bytes(50), "damaged.*it has 54"),
        (om_header(b"abc")[:-1], "damaged"),
    ],
)
def test_wrong_file_is_named(tmp_path, content, said) -> None:
    path = tmp_path / "m.om"
    path.write_bytes(content)

    with pytest.raises(ModelLoadError, match=said):
        modelfile.inspect(path)


def test_missing_file_and_folder_are_named(tmp_path) -> None:
    with pytest.raises(ModelLoadError, match="No such file"):
        modelfile.inspect(tmp_path / "m.om")
    with pytest.raises(ModelLoadError, match="is a directory"):
        modelfile.inspect(tmp_path)
    os.mkfifo(tmp_path / "pipe.om")
    with pytest.raises(ModelLoadError, match=r"device, pipe or socket; expected an \.om"):
        modelfile.inspect(tmp_path / "pipe.om")


@pytest.mark.parametrize("harm", ["cut", "cut short", "changed"])
def test_damaged_file_is_not_taken_for_that_of_another_chip(npu, harm) -> None:
    bed = npu()
    path = bed.timed()
    content = bytearray(path.read_bytes())
    if harm == "changed":
        content[40] ^= 255
    path.write_bytes(content[: {"cut": -3, "cut short": 20}.get(harm)])

    with pytest.raises(ModelLoadError, match=r"damaged.*copy it again") as failure:
        bed.open(path)

    assert "chip" not in str(failure.value)


def test_header_tells_chip_and_kind(tmp_path) -> None:
    path = tmp_path / "m.om"
    path.write_bytes(om_header(b"..soc_version\x12\x0e\x0aAscend310P3\x00..", dynamic=1))

    file = modelfile.inspect(path)

    assert (file.soc, file.is_shape_range, file.emulated) == ("Ascend310P3", True, False)


def test_model_for_real_cards_is_not_run_on_the_emulator(npu, tmp_path) -> None:
    bed = npu()
    path = tmp_path / "m.om"
    path.write_bytes(om_header(b"payload"))

    with pytest.raises(ModelLoadError, match="a model for real cards"):
        bed.open(path)


def test_model_for_another_chip_names_both(npu, tmp_path) -> None:
    bed = npu(soc="Ascend310P3")
    path = tmp_path / "m.om"
    tensor = OmTensor("x", "float32", (1, 2))
    write_om(path, None, inputs=[tensor], outputs=[tensor], soc="Ascend910B4")

    with pytest.raises(
        ModelLoadError, match="converted for Ascend910B4, the device is Ascend310P3"
    ):
        bed.open(path)
