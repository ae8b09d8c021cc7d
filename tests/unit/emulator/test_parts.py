"""Parsing of arguments, clocks, memory addresses, preprocessing, codes."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from gepipe.emulator.api import Call
from gepipe.emulator.compute import expected
from gepipe.emulator.devicememory import charged
from gepipe.emulator.handles import Handles
from gepipe.emulator.machine import Machine
from gepipe.emulator.messages import message
from gepipe.emulator.om import Aipp, OmModel, OmTensor
from gepipe.emulator.order import Access, Uses, merge
from gepipe.emulator.preprocess import apply_aipp
from gepipe.emulator.profile import Curve, Profile
from gepipe.emulator.report import Report
from gepipe.engines.ge.codes import CODES, explain


def parse(formats: str, *args: object) -> list[object]:
    return Call("rt.f", formats, "r", False, len).parser()(args)


@pytest.mark.parametrize(
    ("formats", "given", "made"),
    [
        ("k", -1, 2**64 - 1),
        ("k", 2**64 + 5, 5),
        ("k", True, 1),
        ("I", -1, 2**32 - 1),
        ("I", np.int64(7), 7),
        ("i", -1, -1),
        ("K", 2**64, 0),
        ("s", "x", "x"),
        ("f", 2, 2.0),
    ],
)
def test_arguments_are_converted_as_c_does(formats: str, given: object, made: object) -> None:
    assert parse(formats, given) == [made]


@pytest.mark.parametrize(
    ("formats", "args"),
    [
        ("k", (np.int64(1),)),
        ("k", (1.0,)),
        ("k", ("1",)),
        ("i", (2**31,)),
        ("i", (1.5,)),
        ("I", (None,)),
        ("s", (b"x",)),
        ("kk", (1,)),
        ("k|k", ()),
        ("k|k", (1, 2, 3)),
    ],
)
def test_other_arguments_are_type_errors(formats: str, args: tuple[object, ...]) -> None:
    with pytest.raises(TypeError, match=r"acl\.rt\.f args parse failed$"):
        parse(formats, *args)


def test_failures_have_the_return_form() -> None:
    forms = {"r": 5, "vr": (0, 5), "vvr": (0, 0, 5), "dr": ({}, 5), "lr": ([], 5), "v": 0}
    for form, result in forms.items():
        assert Call("f", "", form, False, len).failure(5) == result


def use(stream: int, seq: int, first: int, last: int, *, writes: bool) -> Access:
    return Access(stream, seq, first, last, writes, f"{stream}.{seq}")


def test_uses_conflict_when_nothing_orders_them() -> None:
    uses = Uses()
    uses.add(use(1, 3, 0, 10, writes=True))

    assert uses.conflict({}, {}, 5, 6, writes=False) is not None
    assert uses.conflict({}, {}, 10, 20, writes=True) is None
    assert uses.conflict({}, {1: 3}, 5, 6, writes=True) is None
    assert uses.conflict({}, {1: 2}, 5, 6, writes=True) is not None
    assert uses.conflict({1: 3}, {}, 5, 6, writes=True) is None
    assert uses.accesses == []


def test_readers_do_not_conflict() -> None:
    uses = Uses()
    uses.add(use(1, 1, 0, 10, writes=False))

    assert uses.conflict({}, {}, 0, 10, writes=False) is None
    assert uses.conflict({}, {}, 0, 10, writes=True) is not None


def test_a_later_use_of_a_stream_stands_for_earlier_ones() -> None:
    uses = Uses()
    for seq in range(1, 100):
        uses.add(use(1, seq, 0, 10, writes=True))
    uses.add(use(1, 100, 0, 10, writes=False))
    uses.add(use(2, 1, 0, 10, writes=True))

    assert [each.label for each in uses.accesses] == ["1.99", "1.100", "2.1"]


def test_clocks_merge_to_the_later_of_each() -> None:
    clock = {1: 5, 2: 1}
    merge(clock, {1: 3, 2: 4, 3: 1})
    assert clock == {1: 5, 2: 4, 3: 1}


def test_an_allocation_s_charge() -> None:
    assert [charged(size) for size in (1, 32, 33)] == [64, 64, 96]
    assert charged(33, spare=0) == 64


def test_addresses_are_used_again_as_late_as_possible() -> None:
    machine = Machine(Profile("test"), report=Report(quiet=True))
    memory = machine.devices[0].memory
    first = memory.allocate(1000)
    assert first is not None
    memory.free(first)
    second = memory.allocate(1000)
    assert second is not None
    assert second.base != first.base
    assert "freed at" in memory.blocks.fate(first.base)
    machine.close()


def test_addresses_never_overlap_when_they_come_round_again() -> None:
    from gepipe.emulator.profile import DeviceSpec

    machine = Machine(Profile("test", devices=(DeviceSpec(1 << 20),)), report=Report(quiet=True))
    memory = machine.devices[0].memory
    random = np.random.default_rng(0)
    live = []
    for _ in range(600):
        block = memory.allocate(int(random.integers(1, 200_000)))
        if live and (block is None or random.random() < 0.5):
            memory.free(live.pop(int(random.integers(len(live)))))
        if block is not None:
            live.append(block)
        ordered = sorted(live, key=lambda each: each.base)
        for left, right in pairwise(ordered):
            assert left.base + left.size <= right.base
    assert memory.used == sum(block.taken for block in live)
    machine.close()


def test_memory_that_was_freed_goes_back_to_the_system() -> None:
    machine = Machine(Profile("test"), report=Report(quiet=True))
    memory = machine.devices[0].memory

    def resident_bytes() -> int:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def turn(count: int) -> None:
        for _ in range(count):
            block = memory.allocate(100)
            assert block is not None
            memory.free(block)

    turn(5000)  # fills the tables of what was freed where
    before = resident_bytes()
    turn(30_000)  # whose 512 bytes each would be 15 MB
    assert resident_bytes() - before < 4 << 20
    machine.close()


def test_handles_come_round_without_meeting_live_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gepipe.emulator.handles._SPACE", 64 * 9)
    handles = Handles()
    kept = [handles.add("kept") for _ in range(3)]
    for number in range(50):
        passing = handles.add(number)
        assert passing not in kept
        assert handles.get(passing, int) == number
        handles.remove(passing, "gone")
    assert [handles.get(handle, str) for handle in kept] == ["kept"] * 3
    handles.close()


def test_a_model_that_takes_time_makes_rows_of_rows() -> None:
    om = OmModel("m", (OmTensor("x", "uint8", (2, 3)),), (OmTensor("y", "int32", (2, 4)),))
    x = np.array([[1, 2, 3], [0, 0, 96]], np.uint8)
    (y,) = expected(om, [x], [(2, 4)])

    assert y.tolist() == [[12, 13, 14, 15], [95, 96, 0, 1]]


def test_aipp_normalises_and_swaps() -> None:
    image = np.arange(12, dtype=np.uint8).reshape(1, 2, 2, 3)
    aipp = Aipp(
        rbuv_swap_switch=True, mean_chn=(1, 0, 0), min_chn=(0, 2, 0), var_reci_chn=(2, 1, 0.5)
    )
    y = apply_aipp(aipp, image, "float32", channels_first=True)

    assert y.shape == (1, 3, 2, 2)
    assert y[0, :, 0, 0].tolist() == [(2 - 1) * 2, 1 - 2, 0 * 0.5]


def test_aipp_crops() -> None:
    image = np.arange(48, dtype=np.uint8).reshape(1, 4, 4, 3)
    aipp = Aipp(crop=True, load_start_pos_h=1, load_start_pos_w=2, crop_size_h=2, crop_size_w=1)
    y = apply_aipp(aipp, image, "float32", channels_first=False)
    assert y[0, :, :, 0].tolist() == [[image[0, 1, 2, 0]], [image[0, 2, 2, 0]]]


def test_aipp_converts_nv12_to_rgb() -> None:
    """Grey stays grey, by the matrix that the CANN manual gives for BT.601 narrow range."""
    aipp = Aipp(
        "YUV420SP_U8",
        src_image_size_w=4,
        src_image_size_h=2,
        csc_switch=True,
        matrix=(298, 0, 409, 298, -100, -208, 298, 516, 0),
        input_bias=(16, 128, 128),
    )
    flat = np.array([126] * 8 + [128] * 4, np.uint8)
    y = apply_aipp(aipp, flat, "float32", channels_first=False)
    assert y.shape == (1, 2, 4, 3)
    assert set(y.ravel().tolist()) == {128.0}


def test_every_code_has_a_name_and_a_meaning() -> None:
    assert len({code.name for code in CODES.values()}) == len(CODES)
    for number, code in CODES.items():
        assert code.name.startswith("ACL_ERROR_")
        assert code.meaning
        assert str(number) in explain(number)
        assert message(number, "rt.malloc", "why")
    assert explain(123456) == "123456 (unknown code)"


def test_describing_models_needs_no_numpy() -> None:
    code = (
        "import sys, gepipe.emulator, gepipe.emulator.om; "
        "print([name for name in ('numpy', 'onnxruntime') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_curve_of_one_point_is_flat() -> None:
    assert Curve(((4, 1.0),)).seconds(1) == Curve(((4, 1.0),)).seconds(9) == 1.0
