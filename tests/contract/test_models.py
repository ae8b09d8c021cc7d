"""Loading and describing models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gepipe.emulator.convert import convert_onnx
from gepipe.emulator.errors import EmulatorError
from gepipe.emulator.om import Aipp, OmTensor, write_om
from tests.contract.card import Card, loaded
from tests.support import onnx_model

# --- loading --------------------------------------------------------------------------------


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


def test_the_program_s_memory_may_be_a_part_of_it_only(card: Card) -> None:
    if "static" not in card.models:
        pytest.skip("no model")
    data = Path(card.models["static"]).read_bytes()
    ptr, mdl = card.acl.util.bytes_to_ptr(data), card.acl.mdl
    work, weight = card.ok(mdl.query_size_from_mem(ptr, len(data)))
    assert (work, weight, 0) == mdl.query_size(card.models["static"])
    weights = card.device(weight)
    model = card.ok(mdl.load_from_mem_with_mem(ptr, len(data), 0, 0, weights, weight))
    other = card.ok(mdl.load_from_file_with_mem(card.models["static"], 0, 0, weights, weight))
    for each in (model, other):  # they share the weights
        assert mdl.unload(each) == 0
    assert mdl.unload(model) == 145003
    assert card.acl.rt.free(weights) == 0


def test_a_model_is_unloaded_in_its_own_context(emulated: Card, lenient: Card) -> None:
    for card in (emulated, lenient):
        model = card.ok(card.acl.mdl.load_from_file(card.models["static"]))
        card.ok(card.acl.rt.create_context(0))
        assert card.acl.mdl.unload(model) == (107004 if card is emulated else 0)


def test_memory_of_a_loaded_model_cannot_be_freed(emulated: Card) -> None:
    path = emulated.models["static"]
    work, weight = emulated.ok(emulated.acl.mdl.query_size(path))
    memory = [emulated.device(work), emulated.device(weight)]
    emulated.ok(emulated.acl.mdl.load_from_file_with_mem(path, memory[0], work, memory[1], weight))
    with pytest.raises(EmulatorError, match="still used by model"):
        emulated.acl.rt.free(memory[1])


def test_memory_for_a_model_is_device_memory_of_its_device(make: Callable[..., Card]) -> None:
    card = make(devices=2).open()
    path, load = card.models["static"], card.acl.mdl.load_from_file_with_mem
    work, _ = card.ok(card.acl.mdl.query_size(path))
    with pytest.raises(EmulatorError, match=r"work memory .* is pinned memory"):
        load(path, card.pinned(work), work, 0, 0)
    there = card.device(work)
    card.ok(card.acl.rt.create_context(1))
    with pytest.raises(EmulatorError, match="of device 0"):
        load(path, there, work, 0, 0)
    assert card.acl.mdl.query_size("/nonexistent.om") == (0, 0, 145002)


def test_acl_must_be_initialised_before_a_model_is_loaded(make: Callable[..., Card]) -> None:
    card = make("compatible")
    card.ok(card.acl.rt.set_device(0))
    assert any("acl.init was not called" in note for note in card.machine.report.notes)
    card.ok(card.acl.init())
    card.ok(card.acl.finalize())
    assert card.acl.rt.set_device(0) == 100001


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


def test_a_configuration_loads_from_memory_into_memory(card: Card) -> None:
    if "static" not in card.models:
        pytest.skip("no model")
    mdl, data = card.acl.mdl, Path(card.models["static"]).read_bytes()
    ptr = card.acl.util.bytes_to_ptr(data)
    work, weight = card.ok(mdl.query_size_from_mem(ptr, len(data)))
    at = card.device(work), card.device(weight)
    options = {1: 4, 3: ptr, 4: len(data), 5: at[1], 6: weight, 7: at[0], 8: work, 13: 1}
    config = mdl.create_config_handle()
    assert mdl.load_with_config(config)[1] == 100000
    for attribute, value in options.items():
        card.ok(mdl.set_config_opt(config, attribute, value))
    assert mdl.set_config_opt(config, 99, 1) == 100000
    free = card.acl.rt.get_mem_info(0)[0]
    model = card.ok(mdl.load_with_config(config))
    assert card.acl.rt.get_mem_info(0)[0] == free
    card.ok(mdl.destroy_config_handle(config))
    card.ok(mdl.unload(model))
    for each in at:
        card.ok(card.acl.rt.free(each))


def test_a_bundle_lists_its_models(emulated: Card) -> None:
    mdl = emulated.acl.mdl
    bundle = emulated.ok(mdl.bundle_load_from_file(emulated.models["static"]))
    assert mdl.bundle_get_model_num(bundle) == (1, 0)
    model = emulated.ok(mdl.bundle_get_model_id(bundle, 0))
    assert mdl.bundle_get_model_id(bundle, 1) == (0, 148053)
    desc = mdl.create_desc()
    assert mdl.get_desc(desc, model) == 0
    assert mdl.bundle_unload(bundle) == 0
    assert mdl.bundle_unload(bundle) == 148053
    assert mdl.destroy_desc(desc) == 0
    emulated.close()


def test_a_model_is_executed_in_the_context_that_loaded_it(card: Card) -> None:
    with loaded(card) as model:
        other = card.ok(card.acl.rt.create_context(0))
        assert model.execute() == 107004
        card.ok(card.acl.rt.destroy_context(other))
        card.ok(card.acl.rt.set_context(card.context))


# --- describing -----------------------------------------------------------------------------


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


def test_formats_and_names_of_both_sides(card: Card) -> None:
    with loaded(card) as model:
        mdl = card.acl.mdl
        name = mdl.get_output_name_by_index(model.desc, 0)
        assert mdl.get_output_index_by_name(model.desc, name) == (0, 0)
        assert mdl.get_output_index_by_name(model.desc, "none") == (0, 100000)
        assert mdl.get_output_name_by_index(model.desc, 9) == ""
        assert mdl.get_input_format(model.desc, 0) in (0, 2)
        assert mdl.get_output_data_type(model.desc, 0) == 0
        assert mdl.get_tensor_real_name(model.desc, "x") == "x"
        assert mdl.get_tensor_real_name(model.desc, "none") == ""
        assert mdl.get_aipp_type(model.id, 0) == (0, 0, 0)
        assert mdl.get_first_aipp_info(model.id, 0) in ((None, 145015), (None, 100038))


@pytest.mark.parametrize(
    ("form", "size", "dims"), [("RGB888_U8", 48, [1, 4, 4, 3]), ("YUV420SP_U8", 24, [1, 6, 4, 1])]
)
def test_static_aipp_makes_inputs_bytes_in_nhwc(
    emulated: Card, form: str, size: int, dims: list[int]
) -> None:
    graph = onnx_model(
        emulated.folder / "neg.onnx",
        [("Neg", ["x"], ["y"], {})],
        {"x": ("float32", [1, 3, 4, 4])},
        {"y": ("float32", [1, 3, 4, 4])},
    ).read_bytes()
    aipp = Aipp(form, 4, 4, min_chn=(1, 1, 1))
    emulated.models["aipp"] = str(emulated.folder / "aipp.om")
    convert_onnx(emulated.models["aipp"], graph, aipp={"x": aipp})
    with loaded(emulated, "aipp") as model:
        mdl = emulated.acl.mdl
        assert model.sizes_in == [size]
        assert emulated.ok(mdl.get_input_dims(model.desc, 0))["dims"] == [1, 4, 4, 3]
        assert emulated.ok(mdl.get_input_dims_v2(model.desc, 0))["dims"] == dims
        assert mdl.get_input_data_type(model.desc, 0) == 4
        assert mdl.get_input_format(model.desc, 0) == 1
        assert mdl.get_aipp_type(model.id, 0) == (1, 0, 0)
        assert emulated.ok(mdl.get_first_aipp_info(model.id, 0))["input_format"] == form
        x = np.full(size, 9, np.uint8)
        model.feed(x)
        assert model.execute() == 0
        assert (model.result((1, 3, 4, 4)) == 1 - 9).all()


def test_parameters_of_dynamic_aipp_fit_no_model_of_the_emulator(emulated: Card) -> None:
    with loaded(emulated) as model:
        mdl = emulated.acl.mdl
        aipp = mdl.create_aipp(1)
        assert mdl.set_aipp_input_format(aipp, 1) == 0
        assert mdl.set_aipp_src_image_size(aipp, 4, 4) == 0
        assert mdl.set_input_aipp(model.id, model.ins, 0, aipp) == 145015
        assert mdl.set_aipp_by_input_index(model.id, model.ins, 0, aipp) == 145015
        assert mdl.destroy_aipp(aipp) == 0


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
    data = Path(card.models["static"]).read_bytes()
    ptr = card.acl.util.bytes_to_ptr(data)
    assert card.acl.mdl.get_desc_from_mem(desc, ptr, len(data)) == 0
    assert card.acl.mdl.get_desc_from_mem(desc, ptr, 10) == 145006
    card.ok(card.acl.mdl.destroy_desc(desc))


# --- datasets -------------------------------------------------------------------------------


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
    assert acl.get_tensor_desc_dim_v2(desc, 2) == (0, 100000)
    assert acl.get_tensor_desc_dim(desc, 1) == 3
    assert acl.set_tensor_desc_name(desc, "t") is None
    assert acl.get_tensor_desc_name(desc) == "t"
    assert acl.destroy_tensor_desc(desc) is None


SIZES = {0: 4, 1: 2, 2: 1, 3: 4, 4: 1, 6: 2, 7: 2, 8: 4, 9: 8, 10: 8, 11: 8, 12: 1, 13: 0}
SIZES |= {-1: 0, 16: 8, 17: 16, 27: 2, 29: 1, 30: 1, 33: 4}


def test_sizes_of_types_and_half_precision(card: Card) -> None:
    assert {number: card.acl.data_type_size(number) for number in SIZES} == SIZES
    assert card.acl.float_to_float16(1.5) == 0x3E00
    assert card.acl.float16_to_float(0x3E00) == 1.5
