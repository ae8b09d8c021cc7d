"""Models with gears, and with ranges of shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gepipe.emulator.errors import EmulatorError
from tests.contract.card import Card, Loaded, X, loaded

# --- gears ----------------------------------------------------------------------------------


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


def test_a_gear_needs_no_description_and_no_more_memory_than_its_own(card: Card) -> None:
    if "batch" not in card.models:
        pytest.skip("no model")
    model = card.loaded("batch")
    index = gear_input(card, model)
    card.ok(card.acl.mdl.destroy_desc(model.desc))
    buffer = card.acl.mdl.get_dataset_buffer(model.ins, 0)
    card.ok(card.acl.update_data_buffer(buffer, model.at_in[0], 32))
    card.ok(card.acl.mdl.set_dynamic_batch_size(model.id, model.ins, index, 2))
    model.feed(X)
    card.ok(model.execute())
    np.testing.assert_allclose(model.result((2, 4)), 2 * X + 1, atol=1e-2)
    model.desc = card.acl.mdl.create_desc()
    model.close()


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


def test_a_gear_of_another_kind_is_100000(card: Card) -> None:
    with loaded(card, "batch") as model:
        index = gear_input(card, model)
        dims = {"name": "", "dimCount": 2, "dims": [2, 4]}
        assert card.acl.mdl.set_dynamic_hw_size(model.id, model.ins, index, 2, 2) == 100000
        assert card.acl.mdl.set_input_dynamic_dims(model.id, model.ins, index, dims) == 100000
        assert card.acl.mdl.set_dynamic_batch_size(99, model.ins, index, 2) == 145003
        assert card.acl.mdl.get_input_dynamic_gear_count(model.desc, -1) == (0, 0)


def test_a_gear_input_is_device_memory(emulated: Card) -> None:
    model, host = emulated.loaded("batch"), emulated.pinned(64)
    buffer = emulated.acl.mdl.get_dataset_buffer(model.ins, 1)
    emulated.ok(emulated.acl.update_data_buffer(buffer, host, 64))
    with pytest.raises(EmulatorError, match=r"gear input .* is pinned memory"):
        emulated.acl.mdl.set_dynamic_batch_size(model.id, model.ins, 1, 2)


def test_a_stale_gear_runs_in_compatible_mode(lenient: Card) -> None:
    model = lenient.loaded("batch")
    other, (ptr, _) = model.dataset(model.sizes_in)
    lenient.ok(lenient.acl.mdl.set_dynamic_batch_size(model.id, model.ins, 1, 2))
    lenient.write(ptr, X.tobytes())
    assert lenient.acl.mdl.execute(model.id, other, model.outs) == 0
    assert (model.result((2, 4)) == 2 * X + 1).all()
    assert any("keeps that of another dataset" in note for note in lenient.machine.report.notes)


def test_buffers_of_a_gear_model_are_checked_by_the_emulator_alone(emulated: Card) -> None:
    model = emulated.loaded("batch")
    buffer = emulated.acl.mdl.get_dataset_buffer(model.ins, 0)
    emulated.ok(emulated.acl.update_data_buffer(buffer, emulated.device(16), 16))
    emulated.ok(emulated.acl.mdl.set_dynamic_batch_size(model.id, model.ins, 1, 4))
    with pytest.raises(EmulatorError, match="too small"):
        model.execute()
    large = emulated.acl.create_data_buffer(emulated.device(16), 16)
    assert emulated.acl.destroy_data_buffer(large) == 0


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
        for ignored in (-1, 0):
            sizes = {"hwCount": 2, "hw": [[2, 2], [4, 6]]}
            assert mdl.get_dynamic_hw(model.desc, ignored) == (sizes, 0)
        assert card.ok(mdl.get_cur_output_dims(model.desc, 0))["dims"] == [1, 3, 4, 6]
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
        assert mdl.get_input_dynamic_dims(model.desc, 0, count) == ([], 100000)
        assert mdl.get_input_dynamic_dims(model.desc, -1, count - 1) == ([], 100000)
        other: dict[str, Any] = {"name": "", "dimCount": 4, "dims": [1, 2, 7, 2]}
        assert mdl.set_input_dynamic_dims(model.id, model.ins, index, other) == 145013
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


# --- ranges of shapes -----------------------------------------------------------------------


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
        ranges = {"rangeCount": 2, "range": [[1, 8], [4, 4]]}
        assert mdl.get_input_dims_range(model.desc, 0) == (ranges, 0)
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


def test_a_description_of_a_dataset_belongs_to_it(emulated: Card) -> None:
    with loaded(emulated, "range") as model:
        acl, mdl = emulated.acl, emulated.acl.mdl
        desc = acl.create_tensor_desc(0, [3, 4], 2)
        emulated.ok(mdl.set_dataset_tensor_desc(model.ins, desc, 0))
        acl.destroy_tensor_desc(desc)  # it was copied
        held = mdl.get_dataset_tensor_desc(model.ins, 0)
        assert acl.get_tensor_desc_dim_v2(held, 0) == (3, 0)
        with pytest.raises(EmulatorError, match="belongs to a dataset"):
            acl.destroy_tensor_desc(held)
        assert mdl.set_dataset_tensor_desc(model.ins, 0, 0) == (model.ins, 0)
        assert mdl.get_dataset_tensor_desc(model.ins, 0) == 0


def test_an_output_of_any_size_stays_within_its_data_buffer(emulated: Card) -> None:
    with loaded(emulated, "range") as model:
        acl, mdl = emulated.acl, emulated.acl.mdl
        block = emulated.device(4096)
        buffer = mdl.get_dataset_buffer(model.outs, 0)
        emulated.ok(acl.update_data_buffer(buffer, block, 64))
        desc = acl.create_tensor_desc(0, [4, 4], 2)
        emulated.ok(mdl.set_dataset_tensor_desc(model.ins, desc, 0))
        emulated.ok(model.execute_async(emulated.stream))
        emulated.ok(acl.rt.memset(block + 64, 64, 0, 64))  # the neighbour is not touched
        with pytest.raises(EmulatorError, match="not ordered"):
            acl.rt.memset(block, 64, 0, 64)
        emulated.ok(acl.rt.synchronize_stream(emulated.stream))
        acl.destroy_tensor_desc(desc)
        desc = acl.create_tensor_desc(0, [8, 4], 2)
        emulated.ok(mdl.set_dataset_tensor_desc(model.ins, desc, 0))
        assert model.execute() == 0  # 128 bytes: 64 too few are tolerated
        emulated.ok(acl.update_data_buffer(buffer, block, 63))
        assert model.execute() == 145000
        assert "needs 128 bytes, its data buffer has 63" in acl.get_recent_err_msg()
        emulated.ok(acl.update_data_buffer(buffer, model.at_out[0], 4096))
        acl.destroy_tensor_desc(desc)
