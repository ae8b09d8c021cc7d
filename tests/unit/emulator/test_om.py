"""The emulator's `.om` files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gepipe.emulator.errors import OmError
from gepipe.emulator.om import Aipp, Gears, OmTensor, parse_om, read_om, write_om

X = OmTensor("x", "float32", (-1, 4))
Y = OmTensor("y", "float16", (-1, 2))
BATCH = Gears("batch", ((1,), (8,)))


def test_a_model_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = write_om(
        tmp_path / "m.om",
        b"graph",
        inputs=[X],
        outputs=[Y],
        gears=BATCH,
        aipp={"x": Aipp(mean_chn=(1, 2, 3), crop=True)},
    )

    assert read_om(tmp_path / "m.om") == written
    assert written.name == "m"
    assert written.graph == b"graph"
    assert written.output_shapes == (((1, 2),), ((8, 2),))


def test_sizes_are_those_of_the_largest_gear(tmp_path: Path) -> None:
    om = write_om(tmp_path / "m.om", None, inputs=[X], outputs=[Y], gears=BATCH)

    assert om.input_bytes(0) == 8 * 4 * 4
    assert om.output_bytes(0) == 8 * 2 * 2
    assert om.largest_gear == 1
    assert om.work_bytes > 1 << 20
    assert om.weight_bytes == 0


def test_ranges_without_a_bound_have_no_size(tmp_path: Path) -> None:
    ranges = {"x": [(1, -1), (4, 4)]}
    om = write_om(tmp_path / "m.om", None, inputs=[X], outputs=[Y], ranges=ranges)

    assert om.is_shape_range
    assert om.input_bytes(0) == om.output_bytes(0) == 0


def test_gears_of_dims_fill_every_open_extent_in_order(tmp_path: Path) -> None:
    gears = Gears("dims", ((2, 3, 4), (5, 6, 7)))
    inputs = [OmTensor("a", "int32", (-1, -1)), OmTensor("b", "int32", (1, -1))]
    out = OmTensor("y", "int32", (1,))
    shapes = [[(1,)], [(1,)]]
    om = write_om(
        tmp_path / "m.om", None, inputs=inputs, outputs=[out], gears=gears, output_shapes=shapes
    )

    assert om.input_shapes(1) == [(5, 6), (1, 7)]
    assert om.gear_axes == 3


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"gears": None}, "no gears and no ranges"),
        ({"gears": Gears("batch", ((1, 2),))}, "each gear must be 1 numbers"),
        ({"gears": Gears("batch", ((0,),))}, "from 1"),
        ({"gears": Gears("dims", ((2,),)), "aipp": {"x": Aipp()}}, "AIPP with dynamic dims"),
        ({"inputs": [OmTensor("x", "float", (1,))]}, "unknown dtype"),
        ({"inputs": [OmTensor("x", "int8", (1,), "CHWN")]}, "unknown format"),
        ({"inputs": [OmTensor("x", "int8", (1,))]}, "an input with -1"),
    ],
)
def test_parts_that_contradict_each_other_are_refused(
    change: dict[str, Any], text: str, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"inputs": [X], "outputs": [Y], "gears": BATCH, **change}
    with pytest.raises(ValueError, match=text):
        write_om(tmp_path / "m.om", None, **given)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "empty"),
        (b"IMOD", "a model for real cards"),
        (b"\x08\x08\x12\x07ai.onnx", "this is ONNX; convert it"),
        (b"\x08\x08", "looks like ONNX"),
        (b"PK", "unknown contents"),
    ],
)
def test_other_files_are_called_by_their_name(data: bytes, text: str) -> None:
    with pytest.raises(OmError, match=text) as caught:
        parse_om(data)
    assert caught.value.code == 145006


def test_every_damage_is_noticed(tmp_path: Path) -> None:
    tensor = OmTensor("x", "int8", (1,))
    write_om(tmp_path / "m.om", b"graph" * 9, inputs=[tensor], outputs=[tensor])
    whole = (tmp_path / "m.om").read_bytes()

    for cut in (len(whole) - 1, 40, 20, 3):
        with pytest.raises(OmError):
            parse_om(whole[:cut])
    with pytest.raises(OmError, match="damaged"):
        parse_om(whole[:-1] + b"!")
    with pytest.raises(OmError):
        parse_om(whole[:60] + b"\xff" + whole[61:])


def test_a_missing_file_has_its_own_code(tmp_path: Path) -> None:
    with pytest.raises(OmError) as caught:
        read_om(tmp_path / "none.om")
    assert caught.value.code == 145002
