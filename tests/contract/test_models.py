"""Loading, describing and executing models."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gepipe.emulator.compute import expected
from gepipe.emulator.errors import EmulatorError
from gepipe.emulator.om import OmTensor, read_om, write_om
from tests.contract.card import H2D, Card, Loaded

X = np.arange(8, dtype=np.float32).reshape(2, 4)


@contextmanager
def loaded(card: Card, kind: str = "static") -> Iterator[Loaded]:
    if kind not in card.models:
        pytest.skip(f"GEPIPE_NPU_MODELS has no {kind}.om")
    model = card.loaded(kind)
    yield model
    model.close()


# --- loading ----------------------------------------------------------------------------------


def test_a_missing_file_is_145002(card: Card) -> None:
    assert card.acl.mdl.load_from_file("/nonexistent.om") == (0, 145002)


@pytest.mark.parametrize("data", [b"", b"\x08\x07ai.onnx", b"IMOD" + bytes(300), b"hello"])
def test_a_file_that_is_no_om_is_145006(card: Card, data: bytes) -> None:
    path = card.folder / "bad.om"
    path.write_bytes(data)
    assert card.acl.mdl.load_from_file(str(path)) == (0, 145006)
    assert "Invalid om file" in card.acl.get_recent_err_msg()


def test_a_truncated_file_is_145006(emulated: Card) -> None:
    path = emulated.folder / "cut.om"
    path.write_bytes(Path(emulated.models["static"]).read_bytes()[:-1])
    assert emulated.acl.mdl.load_from_file(str(path)) == (0, 145006)


def test_a_model_for_another_chip_is_refused(emulated: Card) -> None:
    path = emulated.folder / "other.om"
    tensor = OmTensor("x", "float32", (1,))
    write_om(path, None, inputs=[tensor], outputs=[tensor], soc="Ascend910B3")
    assert emulated.acl.mdl.load_from_file(str(path)) == (0, 545002)


def test_an_unknown_model_is_145003(card: Card) -> None:
    assert card.acl.mdl.unload(987) == 145003
    desc = card.acl.mdl.create_desc()
    assert card.acl.mdl.get_desc(desc, 987) == 145003
    assert card.acl.mdl.destroy_desc(desc) == 0
    dataset = card.acl.mdl.create_dataset()
    assert card.acl.mdl.execute(987, dataset, dataset) == 145003
    assert card.acl.mdl.destroy_dataset(dataset) == 0


def test_a_model_loads_from_host_memory(card: Card) -> None:
    if "static" not in card.models:
        pytest.skip("no model")
    data = Path(card.models["static"]).read_bytes()
    ptr = card.acl.util.bytes_to_ptr(data)
    model, code = card.acl.mdl.load_from_mem(ptr, len(data))
    assert code == 0
    assert card.acl.mdl.unload(model) == 0
    assert card.acl.mdl.load_from_mem(ptr, 0) == (0, 100000)
    assert card.acl.mdl.load_from_mem(ptr, len(data) - 5) == (0, 145006)


def test_a_model_loads_into_memory_of_the_program_s(card: Card) -> None:
    if "static" not in card.models:
        pytest.skip("no model")
    path = card.models["static"]
    work, weight = card.ok(card.acl.mdl.query_size(path))
    memory = [card.device(work), card.device(weight)]
    load = card.acl.mdl.load_from_file_with_mem
    assert load(path, memory[0], work, memory[1], weight - 1) == (0, 145000)
    model = card.ok(load(path, memory[0], work, memory[1], weight))
    assert card.acl.mdl.unload(model) == 0
    for ptr in memory:
        assert card.acl.rt.free(ptr) == 0


def test_memory_of_a_loaded_model_cannot_be_freed(emulated: Card) -> None:
    path = emulated.models["static"]
    work, weight = emulated.ok(emulated.acl.mdl.query_size(path))
    memory = [emulated.device(work), emulated.device(weight)]
    emulated.ok(emulated.acl.mdl.load_from_file_with_mem(path, memory[0], work, memory[1], weight))
    with pytest.raises(EmulatorError, match="still used by model"):
        emulated.acl.rt.free(memory[1])


def test_loading_takes_device_memory_and_unloading_gives_it_back(emulated: Card) -> None:
    before = emulated.acl.rt.get_mem_info(0)[0]
    model = emulated.ok(emulated.acl.mdl.load_from_file(emulated.models["static"]))
    assert emulated.acl.rt.get_mem_info(0)[0] < before - (1 << 20)
    emulated.ok(emulated.acl.mdl.unload(model))
    assert emulated.acl.rt.get_mem_info(0)[0] == before


def test_a_model_that_does_not_fit_is_245000(make: Callable[..., Card]) -> None:
    card = make(memory="1MiB").open()
    assert card.acl.mdl.load_from_file(card.models["static"]) == (0, 245000)


def test_a_configuration_loads_like_the_plain_call(card: Card) -> None:
    if "static" not in card.models:
        pytest.skip("no model")
    mdl = card.acl.mdl
    config = mdl.create_config_handle()
    card.ok(mdl.set_config_opt(config, 1, 1))
    card.ok(mdl.set_config_opt(config, 2, card.models["static"]))
    with pytest.raises(TypeError):
        mdl.set_config_opt(config, 2, 5)
    model = card.ok(mdl.load_with_config(config))
    card.ok(mdl.destroy_config_handle(config))
    card.ok(mdl.unload(model))


def test_a_model_is_executed_in_the_context_that_loaded_it(card: Card) -> None:
    with loaded(card) as model:
        other = card.ok(card.acl.rt.create_context(0))
        assert model.execute() == 107004
        card.ok(card.acl.rt.destroy_context(other))
        card.ok(card.acl.rt.set_context(card.context))


# --- describing -------------------------------------------------------------------------------


def test_dims_are_a_dict_of_name_count_and_list(card: Card) -> None:
    with loaded(card) as model:
        dims = card.ok(card.acl.mdl.get_input_dims(model.desc, 0))
        assert dims == {"name": "x", "dimCount": 2, "dims": [2, 4]}
        assert card.acl.mdl.get_input_dims(model.desc, 9) == ({}, 100000)
        assert card.ok(card.acl.mdl.get_output_dims(model.desc, 0))["dims"] == [2, 4]
        assert card.ok(card.acl.mdl.get_cur_output_dims(model.desc, 0))["dims"] == [2, 4]


def test_getters_with_a_bad_index_return_zero_minus_one_or_an_empty_text(card: Card) -> None:
    with loaded(card) as model:
        mdl = card.acl.mdl
        assert mdl.get_input_size_by_index(model.desc, 9) == 0
        assert mdl.get_output_size_by_index(model.desc, 9) == 0
        assert mdl.get_input_data_type(model.desc, 9) == -1
        assert mdl.get_output_format(model.desc, 9) == -1
        assert mdl.get_input_name_by_index(model.desc, 9) == ""
        assert mdl.get_input_index_by_name(model.desc, "none") == (0, 100000)


def test_types_sizes_and_names(card: Card) -> None:
    with loaded(card) as model:
        mdl = card.acl.mdl
        assert (model.sizes_in, model.sizes_out) == ([32], [32])
        assert mdl.get_input_data_type(model.desc, 0) == 0
        assert mdl.get_input_name_by_index(model.desc, 0) == "x"
        assert mdl.get_output_name_by_index(model.desc, 0).endswith(":y")
        assert mdl.get_input_index_by_name(model.desc, "x") == (0, 0)


def test_a_description_outlives_its_model(card: Card) -> None:
    if "static" not in card.models:
        pytest.skip("no model")
    model = card.loaded()
    model.drop(model.ins)
    model.drop(model.outs)
    card.ok(card.acl.mdl.unload(model.id))
    assert card.acl.mdl.get_num_inputs(model.desc) == 1
    card.ok(card.acl.mdl.destroy_desc(model.desc))


def test_a_file_is_described_without_loading_it(card: Card) -> None:
    if "static" not in card.models:
        pytest.skip("no model")
    desc = card.acl.mdl.create_desc()
    card.ok(card.acl.mdl.get_desc_from_file(desc, card.models["static"]))
    assert card.acl.mdl.get_num_outputs(desc) == 1
    card.ok(card.acl.mdl.destroy_desc(desc))


# --- datasets ---------------------------------------------------------------------------------


def test_a_dataset_lists_its_buffers(card: Card) -> None:
    mdl = card.acl.mdl
    dataset, buffer = mdl.create_dataset(), card.acl.create_data_buffer(640, 64)
    assert mdl.add_dataset_buffer(dataset, buffer) == (dataset, 0)
    assert mdl.get_dataset_num_buffers(dataset) == 1
    assert mdl.get_dataset_buffer(dataset, 0) == buffer
    assert mdl.get_dataset_buffer(dataset, 1) == 0
    assert card.acl.get_data_buffer_addr(buffer) == 640
    assert card.acl.get_data_buffer_size_v2(buffer) == 64
    assert card.acl.get_data_buffer_size(buffer) == 64
    assert card.acl.update_data_buffer(buffer, 1280, 32) == 0
    assert card.acl.get_data_buffer_addr(buffer) == 1280
    assert mdl.destroy_dataset(dataset) == 0
    assert card.acl.destroy_data_buffer(buffer) == 0


def test_destroying_twice_is_an_emulator_error(emulated: Card) -> None:
    mdl = emulated.acl.mdl
    for create, destroy in (
        (mdl.create_dataset, mdl.destroy_dataset),
        (mdl.create_desc, mdl.destroy_desc),
        (lambda: emulated.acl.create_data_buffer(1, 1), emulated.acl.destroy_data_buffer),
        (lambda: emulated.acl.create_tensor_desc(0, [1], 2), emulated.acl.destroy_tensor_desc),
        (mdl.create_config_handle, mdl.destroy_config_handle),
    ):
        handle = create()
        destroy(handle)
        with pytest.raises(EmulatorError, match="destroyed at"):
            destroy(handle)


def test_tensor_descriptions(card: Card) -> None:
    acl = card.acl
    desc = acl.create_tensor_desc(1, [2, 3], 2)
    assert acl.get_tensor_desc_type(desc) == 1
    assert acl.get_tensor_desc_format(desc) == 2
    assert acl.get_tensor_desc_size(desc) == 12
    assert acl.get_tensor_desc_element_count(desc) == 6
    assert acl.get_tensor_desc_num_dims(desc) == 2
    assert acl.get_tensor_desc_dim_v2(desc, 1) == (3, 0)
    assert acl.set_tensor_desc_name(desc, "t") is None
    assert acl.get_tensor_desc_name(desc) == "t"
    assert acl.destroy_tensor_desc(desc) is None


def test_sizes_of_types_and_half_precision(card: Card) -> None:
    assert [card.acl.data_type_size(n) for n in (0, 1, 9, 12)] == [4, 2, 8, 1]
    assert card.acl.float_to_float16(1.5) == 0x3E00
    assert card.acl.float16_to_float(0x3E00) == 1.5


# --- executing --------------------------------------------------------------------------------


def test_a_model_computes(card: Card) -> None:
    with loaded(card) as model:
        model.feed(X)
        assert model.execute() == 0
        np.testing.assert_allclose(model.result((2, 4)), 2 * X + 1, atol=1e-2)


def test_asynchronous_results_are_there_after_synchronising(card: Card) -> None:
    with loaded(card) as model:
        model.feed(X)
        assert model.execute_async(card.stream) == 0
        assert card.acl.rt.synchronize_stream(card.stream) == 0
        np.testing.assert_allclose(model.result((2, 4)), 2 * X + 1, atol=1e-2)


def test_execution_with_a_limit_of_time(card: Card) -> None:
    with loaded(card) as model:
        mdl = card.acl.mdl
        config = mdl.create_exec_config_handle()
        card.ok(mdl.set_exec_config_opt(config, 0, 5000))
        assert mdl.execute_v2(model.id, model.ins, model.outs, card.stream, config) == 0
        card.ok(mdl.destroy_exec_config_handle(config))


def test_another_number_of_buffers_is_145000(card: Card) -> None:
    with loaded(card) as model:
        empty = card.acl.mdl.create_dataset()
        assert card.acl.mdl.execute(model.id, empty, model.outs) == 145000
        assert "number of inputs" in card.acl.get_recent_err_msg()
        card.ok(card.acl.mdl.destroy_dataset(empty))


def test_a_buffer_may_be_too_small_by_64_bytes_but_no_more(emulated: Card) -> None:
    path = emulated.folder / "wide.om"
    tensor = OmTensor("x", "float32", (2, 64))
    write_om(path, None, inputs=[tensor], outputs=[tensor])
    emulated.models["wide"] = str(path)
    with loaded(emulated, "wide") as model:
        buffer = emulated.acl.mdl.get_dataset_buffer(model.ins, 0)
        emulated.ok(emulated.acl.update_data_buffer(buffer, model.at_in[0], 512 - 64))
        assert model.execute() == 0
        emulated.ok(emulated.acl.update_data_buffer(buffer, model.at_in[0], 512 - 65))
        assert model.execute() == 145000


def test_a_buffer_without_memory_is_100000(card: Card) -> None:
    with loaded(card) as model:
        buffer = card.acl.mdl.get_dataset_buffer(model.ins, 0)
        card.ok(card.acl.update_data_buffer(buffer, 0, 0))
        assert model.execute() == 100000
        card.ok(card.acl.update_data_buffer(buffer, model.at_in[0], 32))


def test_an_output_without_memory_is_allocated_by_a_synchronous_execution(card: Card) -> None:
    with loaded(card) as model:
        buffer = card.acl.mdl.get_dataset_buffer(model.outs, 0)
        card.ok(card.acl.rt.free(model.at_out[0]))
        card.ok(card.acl.update_data_buffer(buffer, 0, 0))
        model.feed(X)
        assert model.execute() == 0
        model.at_out[0] = card.acl.get_data_buffer_addr(buffer)
        assert model.at_out[0]
        np.testing.assert_allclose(model.result((2, 4)), 2 * X + 1, atol=1e-2)


def test_host_memory_as_an_input_is_an_emulator_error(emulated: Card) -> None:
    model, host = emulated.loaded(), emulated.pinned(32)
    buffer = emulated.acl.mdl.get_dataset_buffer(model.ins, 0)
    emulated.ok(emulated.acl.update_data_buffer(buffer, host, 32))
    with pytest.raises(EmulatorError, match="must be device memory"):
        model.execute()


def test_an_output_may_be_an_input_of_the_same_run(card: Card) -> None:
    with loaded(card) as model:
        buffer = card.acl.mdl.get_dataset_buffer(model.outs, 0)
        card.ok(card.acl.update_data_buffer(buffer, model.at_in[0], 32))
        model.feed(X)
        assert model.execute() == 0
        data = np.frombuffer(card.read(model.at_in[0], 32), np.float32).reshape(2, 4)
        np.testing.assert_allclose(data, 2 * X + 1, atol=1e-2)
        card.ok(card.acl.update_data_buffer(buffer, model.at_out[0], 32))


def test_one_model_on_two_streams_is_an_emulator_error_unless_ordered(emulated: Card) -> None:
    model, rt = emulated.loaded(), emulated.acl.rt
    other = emulated.ok(rt.create_stream())
    outs, _ = model.dataset(model.sizes_out)
    emulated.ok(model.execute_async(emulated.stream))
    with pytest.raises(EmulatorError, match=r"not ordered after acl\.mdl\.execute_async"):
        emulated.acl.mdl.execute_async(model.id, model.ins, outs, other)
    event = emulated.ok(rt.create_event())
    emulated.ok(rt.record_event(event, emulated.stream))
    emulated.ok(rt.stream_wait_event(other, event))
    emulated.ok(emulated.acl.mdl.execute_async(model.id, model.ins, outs, other))
    emulated.ok(rt.synchronize_stream(other))


def test_what_an_execution_uses_cannot_be_destroyed_before_it_is_over(
    make: Callable[..., Card],
) -> None:
    card = make(latency_ms=30).open()
    model = card.loaded("timing")
    card.ok(model.execute_async(card.stream))
    for destroy, what in (
        (card.acl.mdl.destroy_dataset, model.ins),
        (card.acl.mdl.unload, model.id),
        (card.acl.rt.free, model.at_in[0]),
    ):
        with pytest.raises(EmulatorError, match=r"not ordered after acl\.mdl\.execute_async"):
            destroy(what)
    card.ok(card.acl.rt.synchronize_stream(card.stream))
    card.ok(card.acl.mdl.destroy_dataset(model.ins))


def test_a_model_that_only_takes_time_depends_on_its_input(emulated: Card) -> None:
    om = read_om(emulated.models["timing"])
    with loaded(emulated, "timing") as model:
        for x in (X, X[::-1].copy(), X + 1):
            model.feed(x)
            assert model.execute() == 0
            assert (model.result((2, 4)) == expected(om, [x], [(2, 4)])[0]).all()


def test_executions_take_as_long_as_the_profile_says(make: Callable[..., Card]) -> None:
    card = make(latency_ms={2: 15}).open()
    model, rt = card.loaded("timing"), card.acl.rt
    start, end = card.ok(rt.create_event()), card.ok(rt.create_event())
    card.ok(rt.record_event(start, card.stream))
    for _ in range(3):
        card.ok(model.execute_async(card.stream))
    card.ok(rt.record_event(end, card.stream))
    card.ok(rt.synchronize_stream(card.stream))
    assert 45 <= card.ok(rt.event_elapsed_time(start, end)) < 55


def test_copies_overlap_executions(make: Callable[..., Card]) -> None:
    card = make(latency_ms=60, copy={"gb_per_s": 0.001, "latency_us": 0}).open()
    model, rt = card.loaded("timing"), card.acl.rt
    copy = card.ok(rt.create_stream())
    size = 60_000  # 60 ms
    ptr, host = card.device(size), card.pinned(size)
    began = card.machine.schedule.now()
    card.ok(model.execute_async(card.stream))
    card.ok(rt.memcpy_async(ptr, size, host, size, H2D, copy))
    for stream in (card.stream, copy):
        card.ok(rt.synchronize_stream(stream))
    assert card.machine.schedule.now() - began < 0.1


# --- gears ------------------------------------------------------------------------------------


def gear_input(card: Card, model: Loaded) -> int:
    return card.ok(card.acl.mdl.get_input_index_by_name(model.desc, "ascend_mbatch_shape_data"))


def test_a_static_model_has_no_gears(card: Card) -> None:
    with loaded(card) as model:
        mdl = card.acl.mdl
        assert mdl.get_dynamic_batch(model.desc) == ({"batchCount": 0, "batch": []}, 0)
        assert mdl.get_dynamic_hw(model.desc, -1) == ({"hwCount": 0, "hw": []}, 0)
        assert mdl.get_input_dynamic_gear_count(model.desc, -1) == (0, 0)
        assert mdl.get_input_index_by_name(model.desc, "ascend_mbatch_shape_data")[1] == 100000


def test_batch_gears(card: Card) -> None:
    with loaded(card, "batch") as model:
        mdl = card.acl.mdl
        index = gear_input(card, model)
        assert (mdl.get_num_inputs(model.desc), index) == (2, 1)
        assert mdl.get_dynamic_batch(model.desc) == ({"batchCount": 3, "batch": [1, 2, 4]}, 0)
        assert card.ok(mdl.get_input_dims(model.desc, 0))["dims"] == [-1, 4]
        assert model.sizes_in[0] == model.sizes_out[0] == 64
        assert card.ok(mdl.get_output_dims(model.desc, 0))["dims"] == [4, 4]
        assert card.ok(mdl.get_cur_output_dims(model.desc, 0))["dims"] == [4, 4]
        card.ok(mdl.set_dynamic_batch_size(model.id, model.ins, index, 2))
        assert card.ok(mdl.get_cur_output_dims(model.desc, 0))["dims"] == [2, 4]
        model.feed(X)
        card.ok(model.execute())
        np.testing.assert_allclose(model.result((2, 4)), 2 * X + 1, atol=1e-2)


def test_a_value_that_is_no_gear_is_145013(card: Card) -> None:
    with loaded(card, "batch") as model:
        index = gear_input(card, model)
        assert card.acl.mdl.set_dynamic_batch_size(model.id, model.ins, index, 3) == 145013
        assert card.acl.mdl.set_dynamic_batch_size(model.id, model.ins, index, 0) == 100000
        assert card.acl.mdl.set_dynamic_batch_size(model.id, model.ins, 9, 2) == 100000


def test_a_gear_input_without_memory_is_100000_and_too_small_is_145012(card: Card) -> None:
    with loaded(card, "batch") as model:
        index = gear_input(card, model)
        buffer = card.acl.mdl.get_dataset_buffer(model.ins, index)
        ptr = card.acl.get_data_buffer_addr(buffer)
        for where, size, code in ((0, 0, 100000), (ptr, 2, 145012)):
            card.ok(card.acl.update_data_buffer(buffer, where, size))
            assert card.acl.mdl.set_dynamic_batch_size(model.id, model.ins, index, 2) == code
        card.ok(card.acl.update_data_buffer(buffer, ptr, 4))


def test_a_gear_input_that_is_not_in_the_dataset_is_145000(card: Card) -> None:
    with loaded(card, "batch") as model:
        short, _ = model.dataset(model.sizes_in[:1])
        assert card.acl.mdl.execute(model.id, short, model.outs) == 145000
        model.drop(short)


def test_without_a_gear_the_largest_runs(card: Card) -> None:
    with loaded(card, "batch") as model:
        x = np.arange(16, dtype=np.float32).reshape(4, 4)
        model.feed(x)
        card.ok(model.execute())
        np.testing.assert_allclose(model.result((4, 4)), 2 * x + 1, atol=1e-2)


def test_a_stale_gear_is_an_error_in_strict_mode(emulated: Card) -> None:
    model = emulated.loaded("batch")
    other, _ = model.dataset(model.sizes_in)
    emulated.ok(emulated.acl.mdl.set_dynamic_batch_size(model.id, model.ins, 1, 2))
    with pytest.raises(EmulatorError, match="keeps that of another dataset"):
        emulated.acl.mdl.execute(model.id, other, model.outs)


def test_writing_into_the_gear_input_is_an_error_in_strict_mode(emulated: Card) -> None:
    model = emulated.loaded("batch")
    emulated.ok(emulated.acl.mdl.set_dynamic_batch_size(model.id, model.ins, 1, 2))
    emulated.write(model.at_in[1], bytes(4))
    with pytest.raises(EmulatorError, match="wrote into the gear input"):
        model.execute()


def test_image_size_gears(card: Card) -> None:
    with loaded(card, "hw") as model:
        mdl = card.acl.mdl
        index = gear_input(card, model)
        assert mdl.get_dynamic_hw(model.desc, -1) == ({"hwCount": 2, "hw": [[2, 2], [4, 6]]}, 0)
        assert mdl.set_dynamic_hw_size(model.id, model.ins, index, 2, 3) == 145013
        assert mdl.set_dynamic_hw_size(model.id, model.ins, index, 0, 3) == 100000
        card.ok(mdl.set_dynamic_hw_size(model.id, model.ins, index, 2, 2))
        x = np.arange(12, dtype=np.float32).reshape(1, 3, 2, 2)
        model.feed(x)
        card.ok(model.execute())
        assert (model.result((1, 3, 2, 2)) == -x).all()


def test_dims_gears_list_the_dims_of_all_inputs(card: Card) -> None:
    with loaded(card, "dims") as model:
        mdl = card.acl.mdl
        index = gear_input(card, model)
        assert mdl.get_input_dynamic_gear_count(model.desc, 0) == (0, 100000)
        count = card.ok(mdl.get_input_dynamic_gear_count(model.desc, -1))
        gears = card.ok(mdl.get_input_dynamic_dims(model.desc, -1, count))
        assert gears == [
            {"name": "", "dimCount": 4, "dims": [1, 2, 1, 2]},
            {"name": "", "dimCount": 4, "dims": [3, 4, 1, 4]},
        ]
        dims: dict[str, Any] = {"name": "", "dimCount": 4, "dims": [1, 9, 1, 9]}
        assert mdl.set_input_dynamic_dims(model.id, model.ins, index, dims) == 145013
        short = {"dimCount": 2, "dims": [1, 2]}
        assert mdl.set_input_dynamic_dims(model.id, model.ins, index, short) == 145012
        with pytest.raises(TypeError):
            mdl.set_input_dynamic_dims(model.id, model.ins, index, {"dims": (1, 2, 1, 2)})
        card.ok(mdl.set_input_dynamic_dims(model.id, model.ins, index, gears[0]))
        model.feed(np.array([[1, 2]], np.float32), 0)
        model.feed(np.array([[10, 20]], np.float32), 1)
        card.ok(model.execute())
        assert model.result((1, 2)).tolist() == [[11, 22]]


# --- ranges of shapes -------------------------------------------------------------------------


def test_a_shape_range_model_takes_and_gives_tensor_descriptions(card: Card) -> None:
    with loaded(card, "range") as model:
        acl, mdl = card.acl, card.acl.mdl
        assert mdl.get_cur_output_dims(model.desc, 0) == ({}, 200001)
        assert mdl.query_size(card.models["range"])[2] != 0
        desc = acl.create_tensor_desc(0, [3, 4], 2)
        assert mdl.set_dataset_tensor_desc(model.ins, desc, 5) == (model.ins, 100000)
        assert mdl.set_dataset_tensor_desc(model.ins, desc, 0) == (model.ins, 0)
        x = np.arange(12, dtype=np.float32).reshape(3, 4)
        model.feed(x)
        card.ok(model.execute())
        given = mdl.get_dataset_tensor_desc(model.outs, 0)
        assert acl.get_tensor_desc_size(given) == 48
        assert acl.get_tensor_desc_dim_v2(given, 0) == (3, 0)
        np.testing.assert_allclose(model.result((3, 4)), 2 * x + 1, atol=1e-2)
        acl.destroy_tensor_desc(desc)


def test_a_shape_out_of_range_is_100000(card: Card) -> None:
    with loaded(card, "range") as model:
        desc = card.acl.create_tensor_desc(0, [9, 4], 2)
        card.ok(card.acl.mdl.set_dataset_tensor_desc(model.ins, desc, 0))
        assert model.execute() == 100000
        card.acl.destroy_tensor_desc(desc)


# --- acl.util ---------------------------------------------------------------------------------


def test_bytes_to_ptr_takes_bytes_only(card: Card) -> None:
    data = b"hello world"
    ptr = card.acl.util.bytes_to_ptr(data)
    assert ctypes.string_at(ptr, 5) == b"hello"
    assert card.acl.util.ptr_to_bytes(ptr, 11) == data
    for other in (bytearray(b"x"), memoryview(b"x"), np.zeros(1)):
        with pytest.raises(ValueError, match="needs an byte as argument"):
            card.acl.util.bytes_to_ptr(other)


@pytest.mark.filterwarnings("ignore::Warning")
def test_arrays_and_pointers(card: Card) -> None:
    array = np.arange(6, dtype=np.float32)
    assert card.acl.util.numpy_to_ptr(array) == array.ctypes.data
    ptr, same = card.acl.util.numpy_contiguous_to_ptr(array)
    assert ptr == same.ctypes.data
    view = card.acl.util.ptr_to_numpy(ptr, (2, 3), 11)
    assert view.tolist() == [[0, 1, 2], [3, 4, 5]]
    array[0] = 9
    assert view[0, 0] == 9
    with pytest.raises(ValueError, match="needs an ndarray"):
        card.acl.util.numpy_to_ptr(b"x")
    with pytest.raises(TypeError):
        card.acl.util.ptr_to_numpy(ptr, [2, 3], 11)


def test_the_functions_for_arrays_warn(card: Card) -> None:
    with pytest.warns(Warning, match="deprecated"):
        card.acl.util.numpy_to_ptr(np.zeros(1))


@pytest.mark.filterwarnings("ignore::Warning")
def test_reading_device_memory_on_the_host_is_an_emulator_error(emulated: Card) -> None:
    ptr = emulated.device(64)
    for read in (
        lambda: emulated.acl.util.ptr_to_bytes(ptr, 4),
        lambda: emulated.acl.util.ptr_to_numpy(ptr, (4,), 2),
    ):
        with pytest.raises(EmulatorError, match="the host cannot read it"):
            read()


@pytest.mark.filterwarnings("ignore::Warning")
def test_an_array_that_is_not_contiguous_is_an_error_in_strict_mode(
    emulated: Card, lenient: Card
) -> None:
    array = np.zeros((4, 4))[:, ::2]
    with pytest.raises(EmulatorError, match="not contiguous"):
        emulated.acl.util.numpy_to_ptr(array)
    assert lenient.acl.util.numpy_to_ptr(array) == array.ctypes.data
