from __future__ import annotations

import numpy as np
import pytest

from gepipe.emulator.om import Aipp, Gears, OmTensor, write_om
from gepipe.errors import (
    ClosedError,
    ConfigError,
    DeviceError,
    ModelLoadError,
    TensorMismatchError,
)
from gepipe.tensors import TensorSpec
from tests.unit.engines.ge.bed import affine, outputs_for, pooled, ramp, reference, run


@pytest.mark.parametrize("count", [1, 3, 4, 5, 9])
def test_fixed_batch_is_padded_split_and_cut_back(npu, tmp_path, count) -> None:
    bed = npu()
    graph = affine(tmp_path / "m.onnx", [4, 5])
    tensors = [OmTensor(name, "float32", (4, 5)) for name in "xy"]
    write_om(tmp_path / "m.om", graph, inputs=tensors[:1], outputs=tensors[1:])
    engine = bed.open(tmp_path / "m.om")
    x = ramp(count, 5)

    y = run(engine, count, count + 2, x=x)["y"]

    assert engine.gears == (4,)
    assert engine.inputs == (TensorSpec("x", "float32", (4, 5)),)
    assert np.array_equal(y[:count], 2 * x + 1)
    assert (y[count:] == 7).all(), "padding shows"


@pytest.mark.parametrize("count", [1, 2, 3, 8, 11, 21])
def test_dynamic_batch_takes_the_smallest_gear_that_fits(npu, tmp_path, count) -> None:
    bed = npu()
    graph = affine(tmp_path / "m.onnx", ["n", 5])
    tensors = [OmTensor(name, "float32", (-1, 5)) for name in "xy"]
    gears = Gears("batch", ((1,), (2,), (8,)))
    write_om(tmp_path / "m.om", graph, inputs=tensors[:1], outputs=tensors[1:], gears=gears)
    engine = bed.open(tmp_path / "m.om")
    x = ramp(count, 5)

    y = run(engine, count, count + 1, x=x)["y"]

    assert engine.gears == (1, 2, 8)
    assert engine.outputs == (TensorSpec("y", "float32", (-1, 5)),)
    assert np.array_equal(y[:count], reference(graph, x=x)["y"])
    assert (y[count:] == 7).all()


def test_dynamic_image_size_takes_its_gears_and_no_other(npu, tmp_path) -> None:
    bed = npu()
    graph = pooled(tmp_path / "m.onnx", [2, 3, "h", "w"])
    free = pooled(tmp_path / "free.onnx", ["n", 3, "h", "w"])
    sizes = ((8, 8), (16, 12))
    write_om(
        tmp_path / "m.om",
        graph,
        inputs=[OmTensor("x", "float32", (2, 3, -1, -1), "NCHW")],
        outputs=[
            OmTensor("map", "float32", (2, 2, -1, -1)),
            OmTensor("mean", "float32", (2, 2, 1, 1)),
        ],
        gears=Gears("hw", sizes),
        output_shapes=[[(2, 2, h, w), (2, 2, 1, 1)] for h, w in sizes],
    )
    engine = bed.open(tmp_path / "m.om")
    assert engine.outputs[0].shape == (2, 2, -1, -1)
    assert engine.outputs[1].shape == (2, 2, 1, 1)

    for height, width in (*sizes, *reversed(sizes)):
        x = ramp(5, 3, height, width)
        outputs = {
            "map": np.zeros((5, 2, height, width), "float32"),
            "mean": np.zeros((5, 2, 1, 1), "float32"),
        }
        engine.collect(engine.submit({"x": x}, outputs, 5))
        wanted = reference(free, x=x)
        for name, array in outputs.items():
            np.testing.assert_allclose(array, wanted[name], rtol=1e-5)

    with pytest.raises(TensorMismatchError, match=r"\[3, 9, 8\].*\[8, 8\], \[16, 12\]"):
        engine.submit({"x": ramp(1, 3, 9, 8)}, outputs_for_maps(9, 8), 1)


def outputs_for_maps(height, width):
    return {
        "map": np.zeros((1, 2, height, width), "float32"),
        "mean": np.zeros((1, 2, 1, 1), "float32"),
    }


def test_option_shapes_chooses_among_image_sizes(npu, tmp_path) -> None:
    bed = npu()
    sizes = ((8, 8), (16, 12))
    path = tmp_path / "m.om"
    write_om(
        path,
        None,
        inputs=[OmTensor("x", "float32", (2, 3, -1, -1), "NCHW")],
        outputs=[OmTensor("y", "float32", (2, -1))],
        gears=Gears("hw", sizes),
        output_shapes=[[(2, h * w)] for h, w in sizes],
    )
    engine = bed.open(path, extra={"shapes": {"x": [3, 16, 12]}})

    assert engine.inputs[0].shape == (2, 3, 16, 12)
    assert engine.outputs[0].shape == (2, 192)
    engine.close()
    with pytest.raises(
        ConfigError, match=r"no gear has rows of the shapes 'x': \[3, 16, 13\]; .*\[8, 8\]"
    ):
        bed_again(npu, bed).open(path, extra={"shapes": {"x": [3, 16, 13]}})


def pixels_of(*size: int) -> TensorSpec:
    return TensorSpec("", "float32", (3, *size))


def test_what_the_stage_before_makes_chooses_among_image_sizes(npu, tmp_path) -> None:
    bed = npu()
    sizes = ((8, 8), (16, 12))
    path = tmp_path / "m.om"
    write_om(
        path,
        None,
        inputs=[OmTensor("x", "float32", (2, 3, -1, -1), "NCHW")],
        outputs=[OmTensor("y", "float32", (2, -1))],
        gears=Gears("hw", sizes),
        output_shapes=[[(2, h * w)] for h, w in sizes],
    )
    engine = bed.open(path, made=pixels_of(16, 12))

    assert engine.inputs[0].shape == (2, 3, 16, 12)
    assert engine.outputs[0].shape == (2, 192)
    engine.close()
    engine = bed_again(npu, bed).open(path, made=TensorSpec("", "uint8", (8, 8, 3)))
    assert engine.inputs[0].shape == (2, 3, -1, -1)  # a mismatch that is told elsewhere
    engine.close()
    with pytest.raises(
        ConfigError,
        match=r"makes \[3, 10, 10\] for the input 'x', .*\[height, width\]: \[8, 8\], \[16, 12\]; "
        "make one that it has, as with resize",
    ):
        bed_again(npu, bed).open(path, made=pixels_of(10, 10))


@pytest.mark.parametrize("by", ["made", "option"])
def test_a_row_outside_the_ranges_is_refused_at_opening(npu, tmp_path, by) -> None:
    bed = npu()
    path = tmp_path / "m.om"
    write_om(
        path,
        affine(tmp_path / "m.onnx", ["n", "s"]),
        inputs=[OmTensor("x", "float32", (-1, -1))],
        outputs=[OmTensor("y", "float32", (-1, -1))],
        ranges={"x": [(1, 4), (8, 16)]},
    )

    def asked(extent):
        if by == "made":
            return {"made": TensorSpec("", "float32", (extent,))}
        return {"extra": {"shapes": {"x": [extent]}}}

    engine = bed.open(path, **asked(16))
    assert engine.outputs[0].shape[1:] == (16,)  # found out by an execution of zeros
    x = ramp(3, 16)
    assert np.array_equal(run(engine, 3, x=x)["y"], 2 * x + 1)
    engine.close()
    for extent in (7, 17):
        with pytest.raises(ConfigError, match=rf"\[{extent}\].*'x' takes rows within \[8~16\]"):
            bed_again(npu, bed).open(path, **asked(extent))


def bed_again(_npu, bed):
    bed.machine.finalised = False  # a second process, as it were
    return bed


def test_dynamic_dims_of_two_inputs(npu, tmp_path) -> None:
    from tests.support import onnx_model

    bed = npu()
    graph = onnx_model(
        tmp_path / "m.onnx",
        [("Mul", ["ids", "mask"], ["t"], {}), ("ReduceSum", ["t", "axis"], ["y"], {})],
        {"ids": ("float32", ["n", "s"]), "mask": ("float32", ["n", "s"])},
        {"y": ("float32", ["n", 1])},
        {"axis": np.array([1], "int64")},
    ).read_bytes()
    gears = ((1, 4, 1, 4), (4, 4, 4, 4), (1, 6, 1, 6), (4, 6, 4, 6))
    write_om(
        tmp_path / "m.om",
        graph,
        inputs=[OmTensor(name, "float32", (-1, -1)) for name in ("ids", "mask")],
        outputs=[OmTensor("y", "float32", (-1, 1))],
        gears=Gears("dims", gears),
        output_shapes=[[(gear[0], 1)] for gear in gears],
    )
    engine = bed.open(tmp_path / "m.om")

    assert engine.gears == (1, 4)
    for length, count in ((4, 6), (6, 3), (4, 1)):
        ids, mask = ramp(count, length), (ramp(count, length) % 2)
        wanted = reference(graph, ids=ids, mask=mask)["y"]
        assert np.array_equal(run(engine, count, ids=ids, mask=mask)["y"], wanted)
    with pytest.raises(TensorMismatchError, match=r"\[5\].*dims of all inputs: \[1, 4, 1, 4\]"):
        run(engine, 1, ids=ramp(1, 5), mask=ramp(1, 5))


def test_ranges_of_shapes_grow_their_memory_as_needed(npu, tmp_path) -> None:
    bed = npu()
    graph = affine(tmp_path / "m.onnx", ["n", "s"])
    write_om(
        tmp_path / "m.om",
        graph,
        inputs=[OmTensor("x", "float32", (-1, -1))],
        outputs=[OmTensor("y", "float32", (-1, -1))],
        ranges={"x": [(1, 4), (1, -1)]},
    )
    engine = bed.open(tmp_path / "m.om")
    assert engine.gears == (1, 2, 3, 4)

    for count, length in ((3, 10), (6, 100_000), (1, 3), (9, 70_000)):
        x = ramp(count, length)
        y = np.zeros((count, length), "float32")
        engine.collect(engine.submit({"x": x}, {"y": y}, count))
        assert np.array_equal(y, 2 * x + 1)


@pytest.fixture
def ranging(request, npu, tmp_path):
    """Return an engine of y = 2 x + 1 over matrices of up to 4 rows and any length."""
    bed = npu(**getattr(request, "param", {}))
    graph = affine(tmp_path / "m.onnx", ["n", "s"])
    write_om(
        tmp_path / "m.om",
        graph,
        inputs=[OmTensor("x", "float32", (-1, -1))],
        outputs=[OmTensor("y", "float32", (-1, -1))],
        ranges={"x": [(1, 4), (1, -1)]},
    )
    return bed.open(tmp_path / "m.om")


def doubled(engine, length):
    x = ramp(2, length)
    y = np.zeros((2, length), "float32")
    engine.collect(engine.submit({"x": x}, {"y": y}, 2))
    return np.array_equal(y, 2 * x + 1)


def test_memory_of_ever_larger_shapes_does_not_add_up(ranging) -> None:
    for step in range(1, 31):
        assert doubled(ranging, 50_000 * step)

    memory = ranging.memory
    assert memory.capacity < 2 * memory.in_use
    assert memory.blocks <= 4


def test_any_number_of_shapes_is_remembered_in_bounds(ranging) -> None:
    for length in range(1, 700):
        assert doubled(ranging, length)

    execution = ranging._execution
    kept: list = [execution._shapes._asked]
    kept += [place._views for place in execution._sets]
    assert max(map(len, kept)) <= 256


def refused_growth(call, at):
    return {"faults": [{"call": call, "at": at, "code": 207001}]}


@pytest.mark.parametrize(
    "ranging",
    [
        refused_growth(call, at)
        for call, at in (
            ("rt.malloc", 3),  # the pool's first block is of the opening
            ("rt.malloc", 2),
            ("rt.malloc_host", 6),
            ("rt.malloc_host", 5),
            ("update_data_buffer", 1),
            ("update_data_buffer", 2),
        )
    ],
    indirect=True,
)
def test_memory_that_is_refused_fails_its_batch_only(ranging) -> None:
    codes = []
    for length in (10, 60_000, 10, 60_000, 70_000, 10):
        try:
            assert doubled(ranging, length)
        except DeviceError as error:
            codes.append(error.code)

    assert codes == [207001]


def test_wrong_output_of_a_range_model_leaves_no_trace(ranging) -> None:
    x = ramp(2, 10)

    for length in (9, 11):
        with pytest.raises((TensorMismatchError, DeviceError)):
            ranging.collect(ranging.submit({"x": x}, {"y": np.zeros((2, length), "float32")}, 2))

    assert doubled(ranging, 10)


def test_outputs_of_a_range_model_are_found_by_running_it(npu, tmp_path) -> None:
    bed = npu()
    graph = affine(tmp_path / "m.onnx", ["n", "s"])
    write_om(
        tmp_path / "m.om",
        graph,
        inputs=[OmTensor("x", "float32", (-1, -1))],
        outputs=[OmTensor("y", "float32", (-1, -1))],
        ranges={"x": [(1, 4), (1, 50)]},
    )
    engine = bed.open(tmp_path / "m.om", extra={"shapes": {"x": [20]}})

    assert engine.outputs == (TensorSpec("y", "float32", (-1, 20)),)
    x = ramp(7, 20)
    assert np.array_equal(run(engine, 7, x=x)["y"], 2 * x + 1)
    assert "the model takes 'x': float32 [1~4, 1~50]" in engine.notes
    with pytest.raises(TensorMismatchError, match=r"takes rows within \[1~50\], got \[51\]"):
        engine.submit({"x": ramp(1, 51)}, {"y": ramp(1, 51)}, 1)


def test_static_aipp_takes_uint8_pixels_with_the_channels_last(npu, tmp_path) -> None:
    bed = npu()
    graph = affine(tmp_path / "m.onnx", [2, 3, 4, 4])
    write_om(
        tmp_path / "m.om",
        graph,
        inputs=[OmTensor("x", "uint8", (2, 4, 4, 3), "NHWC")],
        outputs=[OmTensor("y", "float32", (2, 3, 4, 4))],
        aipp={"x": Aipp(src_image_size_w=4, src_image_size_h=4, var_reci_chn=(0.5, 0.5, 0.5))},
    )
    engine = bed.open(tmp_path / "m.om")
    x = ramp(3, 4, 4, 3, dtype="uint8")

    y = run(engine, 3, x=x)["y"]

    assert engine.inputs == (TensorSpec("x", "uint8", (2, 4, 4, 3)),)
    assert np.array_equal(y, x.transpose(0, 3, 1, 2).astype("float32") + 1)


def test_yuv_pixels_are_taken_as_they_lie_in_memory(npu, tmp_path) -> None:
    from gepipe.emulator.preprocess import apply_aipp

    bed = npu()
    graph = affine(tmp_path / "m.onnx", [1, 3, 4, 4])
    aipp = Aipp("YUV420SP_U8", src_image_size_w=4, src_image_size_h=4)
    write_om(
        tmp_path / "m.om",
        graph,
        inputs=[OmTensor("x", "uint8", (1, 4, 4, 3), "NHWC")],
        outputs=[OmTensor("y", "float32", (1, 3, 4, 4))],
        aipp={"x": aipp},
    )
    engine = bed.open(tmp_path / "m.om")
    x = ramp(2, 6, 4, 1, dtype="uint8")

    y = run(engine, 2, x=x)["y"]

    assert engine.inputs == (TensorSpec("x", "uint8", (1, 6, 4, 1)),)
    for row in range(2):
        pixels = apply_aipp(aipp, x[row].reshape(-1), "float32", channels_first=True)
        np.testing.assert_allclose(y[row], 2 * pixels[0] + 1)


def test_names_are_those_of_the_network(npu, tmp_path) -> None:
    bed = npu()
    graph = pooled(tmp_path / "m.onnx", [1, 3, 4, 4])
    write_om(
        tmp_path / "m.om",
        graph,
        inputs=[OmTensor("x", "float32", (1, 3, 4, 4), "NCHW")],
        outputs=[
            OmTensor("map", "float32", (1, 2, 4, 4)),
            OmTensor("mean", "float32", (1, 2, 1, 1)),
        ],
    )

    engine = bed.open(tmp_path / "m.om")

    assert [spec.name for spec in engine.outputs] == ["map", "mean"]
    raw = engine._session.acl.get_output_name(engine._session.desc, 0)
    assert raw == "node_0:0:map", "the emulator no longer names outputs as atc does"


@pytest.mark.parametrize("seed", range(12))
def test_any_order_of_the_streams_gives_the_same_results(npu, tmp_path, seed) -> None:
    bed = npu(seed=seed, latency_ms={1: 3, 4: 5})
    graph = affine(tmp_path / "m.onnx", ["n", 5])
    tensors = [OmTensor(name, "float32", (-1, 5)) for name in "xy"]
    gears = Gears("batch", ((1,), (2,), (4,)))
    write_om(tmp_path / "m.om", graph, inputs=tensors[:1], outputs=tensors[1:], gears=gears)
    engine = bed.open(tmp_path / "m.om")

    pending: list = []
    for number in range(9):
        count = 1 + (number * 5 + seed) % 11
        x = ramp(count, 5) + number
        outputs = outputs_for(engine, count)
        pending.append((engine.submit({"x": x}, outputs, count), x, outputs))
        if len(pending) == engine.in_flight:
            token, x, outputs = pending.pop(0)
            engine.collect(token)
            assert np.array_equal(outputs["y"], 2 * x + 1)
    for token, x, outputs in pending:
        engine.collect(token)
        assert np.array_equal(outputs["y"], 2 * x + 1)


def test_batch_axis_is_required(npu) -> None:
    bed = npu()
    path = bed.folder / "m.om"
    write_om(
        path,
        None,
        inputs=[OmTensor("x", "float32", (4, 3))],
        outputs=[OmTensor("y", "float32", (3, 2))],
    )

    with pytest.raises(TensorMismatchError, match=r"'y' has shape \[3, 2\] for a batch of 4"):
        bed.open(path)


@pytest.mark.parametrize(
    ("inputs", "outputs", "said"),
    [
        ([("x", (0, 3))], [("y", (0, 2))], r"'x': float32 \[0, 3\] takes no rows"),
        ([("x", (4, 3))], [("y", (0, 2))], "'y'.*takes no rows"),
        ([("x", (4, 3)), ("x", (4, 2))], [("y", (4, 2))], "several inputs are named 'x'"),
        ([], [("y", (4, 2))], "no inputs"),
        ([("x", (4, 3))], [("y", ())], r"'y' has shape \[\]"),
    ],
)
def test_model_that_cannot_be_fed_is_refused(npu, inputs, outputs, said) -> None:
    bed = npu()
    path = bed.folder / "m.om"
    sides = [
        [OmTensor(name, "float32", shape) for name, shape in each] for each in (inputs, outputs)
    ]
    write_om(path, None, inputs=sides[0], outputs=sides[1])

    with pytest.raises((ModelLoadError, TensorMismatchError), match=said):
        bed.open(path)


def test_missing_array_is_named(npu) -> None:
    bed = npu()
    engine = bed.open(bed.timed())

    with pytest.raises(TensorMismatchError, match=r"'x'.*inputs \['x'\], outputs \['y'\]"):
        engine.submit({"z": ramp(1, 4)}, outputs_for(engine, 1), 1)


def test_closed_engine_says_so(npu) -> None:
    bed = npu()
    engine = bed.open(bed.timed())
    engine.close()
    engine.close()

    with pytest.raises(ClosedError):
        engine.submit({}, {}, 1)


def test_close_waits_for_what_nobody_collects(npu) -> None:
    bed = npu(latency_ms={1: 20})
    engine = bed.open(bed.timed())
    for _ in range(2):
        engine.submit({"x": ramp(3, 4)}, outputs_for(engine, 3), 3)

    engine.close()

    assert not bed.machine.leaks()


def test_several_models_share_a_process(npu) -> None:
    bed = npu(devices=2)
    first = bed.open(bed.timed("a"), device=0)
    second = bed.open(bed.timed("b", batch=2), device=1)
    third = bed.open(bed.timed("c"), device=0)
    x = ramp(4, 4)

    expected = run(first, 4, x=x)["y"]

    assert np.array_equal(run(second, 4, x=x)["y"], expected)
    second.close()
    assert np.array_equal(run(third, 4, x=x)["y"], expected)


def test_unknown_option_is_refused(npu) -> None:
    bed = npu()

    with pytest.raises(ConfigError, match="unknown options bogus"):
        bed.open(bed.timed(), extra={"bogus": 1})


def test_gears_that_the_model_lacks_are_refused(npu) -> None:
    bed = npu()
    path = bed.timed(gears=Gears("batch", ((1,), (4,))))

    with pytest.raises(ConfigError, match=r"gears \[8\] are not compiled.*batch sizes: 1, 4"):
        bed.open(path, gears=(1, 8))


def test_notes_say_that_nothing_runs_on_a_card(npu) -> None:
    bed = npu()

    notes = bed.open(bed.timed()).notes

    assert notes[0].startswith("EMULATED NPU")
    assert "strict mode" in notes[0]
    assert any(note.startswith("needs ") and "free" in note for note in notes)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("at_once", "least", "most"), [(1, 0.6, 0.62), (2, 0.7, 1.0)])
def test_copies_are_made_while_the_device_computes(npu, seed, at_once, least, most) -> None:
    """Each copy takes 10 ms, a batch 30: one after the other, the device is busy 60 %.

    In the time of the emulator, so that no busy machine shows; whose order is drawn, and so not the
    best. How busy a device really is, the benchmarks measure.
    """
    bed = npu(latency_ms={8: 30}, copy={"gb_per_s": 0.01, "latency_us": 0}, seed=seed)
    engine = bed.open(bed.timed(row=(3125,), out=(3125,), batch=8))
    device = bed.machine.devices[0]
    assert engine.in_flight == 2
    pending: list = []
    x, outputs = ramp(8, 3125), outputs_for(engine, 8)
    for _ in range(20):
        pending.append(engine.submit({"x": x}, outputs, 8))
        if len(pending) == at_once:
            engine.collect(pending.pop(0))
    while pending:
        engine.collect(pending.pop(0))

    busy = device.spent_s["compute"] / (device.busy_s["compute"] - device.began_s["compute"])

    assert device.spent_s["up"] == pytest.approx(0.2)
    assert least < busy < most


@pytest.mark.parametrize("count", [1, 3, 4, 6])
def test_large_inputs_reach_an_idle_device_piece_by_piece(
    npu, tmp_path, monkeypatch, count
) -> None:
    monkeypatch.setattr("gepipe.engines.ge.execution._PIECE_BYTES", 64)
    bed = npu()
    model = tmp_path / "affine.om"
    graph = affine(tmp_path / "affine.onnx", [4, 23])
    tensors = ([OmTensor("x", "float32", (4, 23))], [OmTensor("y", "float32", (4, 23))])
    write_om(model, graph, inputs=tensors[0], outputs=tensors[1])
    engine = bed.open(model)
    rows = np.zeros(1 + count * 23 * 4, np.uint8)[1:].view("float32").reshape(count, 23)
    rows[...] = ramp(count, 23)
    assert not rows.flags.aligned  # as where another program has put them

    made = run(engine, count, x=rows)["y"]

    assert np.array_equal(made, 2 * rows + 1)
