"""Executing models."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from gepipe.emulator.compute import expected
from gepipe.emulator.convert import convert_onnx
from gepipe.emulator.errors import EmulatorError
from gepipe.emulator.om import OmTensor, read_om, write_om
from tests.contract.card import H2D, Card, Loaded, X, loaded
from tests.support import onnx_model, wait_until


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


def test_a_limit_of_time_that_passes_is_507046(make: Callable[..., Card]) -> None:
    card = make(faults=[{"call": "mdl.execute_v2", "hang": True}]).open()
    model, mdl = card.loaded(), card.acl.mdl
    config = mdl.create_exec_config_handle()
    card.ok(mdl.set_exec_config_opt(config, 0, 20))
    assert mdl.set_exec_config_opt(config, 7, 20) == 100000
    assert mdl.execute_v2(model.id, model.ins, model.outs, card.stream, config) == 507046


def test_a_kernel_that_fails_is_507011(emulated: Card) -> None:
    graph = onnx_model(
        emulated.folder / "gather.onnx",
        [("Gather", ["t", "i"], ["y"], {})],
        {"t": ("float32", [4]), "i": ("int64", [2])},
        {"y": ("float32", [2])},
    ).read_bytes()
    convert_onnx(emulated.folder / "gather.om", graph)
    emulated.models["gather"] = str(emulated.folder / "gather.om")
    with loaded(emulated, "gather") as model:
        index = emulated.ok(emulated.acl.mdl.get_input_index_by_name(model.desc, "i"))
        model.feed(np.array([99, 0], np.int64), index)
        assert model.execute() == 507011
        assert "out of data bounds" in emulated.acl.get_recent_err_msg()
        assert model.execute_async(emulated.stream) == 0
        assert model.execute_async(emulated.stream) == 0
        assert emulated.acl.rt.synchronize_stream(emulated.stream) == 507011
        assert "gather" in emulated.acl.get_recent_err_msg()
        model.feed(np.array([3, 0], np.int64), index)
        model.feed(np.arange(4, dtype=np.float32), 1 - index)
        assert model.execute() == 0
        assert model.result((2,)).tolist() == [3, 0]


def test_an_output_without_elements_is_written_nowhere(emulated: Card) -> None:
    path = emulated.folder / "none.om"
    shapes = [OmTensor("x", "float32", (2, 4))], [OmTensor("y", "float32", (2, 0))]
    write_om(path, None, inputs=shapes[0], outputs=shapes[1])
    emulated.models["none"] = str(path)
    with loaded(emulated, "none") as model:
        block = emulated.device(4096)
        buffer = emulated.acl.mdl.get_dataset_buffer(model.outs, 0)
        emulated.ok(emulated.acl.update_data_buffer(buffer, block, 64))
        emulated.ok(model.execute_async(emulated.stream))
        emulated.ok(emulated.acl.rt.memset(block + 64, 64, 0, 64))
        emulated.ok(emulated.acl.rt.synchronize_stream(emulated.stream))
        emulated.ok(emulated.acl.update_data_buffer(buffer, model.at_out[0], 64))


def test_a_graph_that_cannot_be_computed_is_507011_with_the_reason(emulated: Card) -> None:
    path, tensor = emulated.folder / "junk.om", OmTensor("x", "float32", (2, 4))
    write_om(path, b"junk", inputs=[tensor], outputs=[tensor])
    emulated.models["junk"] = str(path)
    with loaded(emulated, "junk") as model:
        assert model.execute_async(emulated.stream) == 0
        assert emulated.acl.rt.synchronize_stream(emulated.stream) == 507011
        assert "ONNX Runtime cannot load the graph" in emulated.acl.get_recent_err_msg()
        assert model.execute() == 507011


def test_a_buffer_may_be_larger_than_needed(card: Card) -> None:
    with loaded(card) as model:
        large, (ptr,) = model.dataset([4096])
        card.write(ptr, X.tobytes())
        assert card.acl.mdl.execute(model.id, large, model.outs) == 0
        np.testing.assert_allclose(model.result((2, 4)), 2 * X + 1, atol=1e-2)
        model.drop(large)


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


def test_an_output_without_memory_is_100000_for_an_asynchronous_execution(card: Card) -> None:
    with loaded(card) as model:
        buffer = card.acl.mdl.get_dataset_buffer(model.outs, 0)
        card.ok(card.acl.update_data_buffer(buffer, 0, 0))
        assert model.execute_async(card.stream) == 100000
        card.ok(card.acl.update_data_buffer(buffer, model.at_out[0], 32))


def test_models_that_share_memory_to_work_in_run_one_after_the_other(emulated: Card) -> None:
    acl, path = emulated.acl, emulated.models["static"]
    work, weight = emulated.ok(acl.mdl.query_size(path))
    shared, weights = emulated.device(work), emulated.device(weight)
    load = acl.mdl.load_from_file_with_mem
    models = [
        Loaded(emulated, emulated.ok(load(path, shared, work, weights, weight))) for _ in range(2)
    ]
    other = emulated.ok(acl.rt.create_stream())
    emulated.ok(models[0].execute_async(emulated.stream))
    with pytest.raises(EmulatorError, match="not ordered after"):
        models[1].execute_async(other)
    emulated.ok(acl.rt.synchronize_stream(emulated.stream))
    emulated.ok(models[1].execute_async(other))
    emulated.ok(acl.rt.synchronize_stream(other))


def test_models_that_share_weights_run_at_once(emulated: Card) -> None:
    acl, path = emulated.acl, emulated.models["static"]
    _, weight = emulated.ok(acl.mdl.query_size(path))
    weights, other = emulated.device(weight), emulated.ok(acl.rt.create_stream())
    load = acl.mdl.load_from_file_with_mem
    for stream in (emulated.stream, other):
        model = Loaded(emulated, emulated.ok(load(path, 0, 0, weights, weight)))
        emulated.ok(model.execute_async(stream))
    for stream in (emulated.stream, other):
        emulated.ok(acl.rt.synchronize_stream(stream))


def test_outputs_that_no_memory_is_left_for_are_245000(make: Callable[..., Card]) -> None:
    card = make(memory="8MiB").open()
    path = card.folder / "large.om"
    small, large = OmTensor("x", "float32", (1,)), OmTensor("y", "float32", (1, 1 << 20))
    write_om(path, None, inputs=[small], outputs=[large], work_bytes=64)
    model = Loaded(card, card.ok(card.acl.mdl.load_from_file(str(path))))
    buffer = card.acl.mdl.get_dataset_buffer(model.outs, 0)
    card.ok(card.acl.update_data_buffer(buffer, 0, 0))
    assert model.execute() == 245000


def test_an_execution_that_races_with_a_stream_is_an_emulator_error(
    make: Callable[..., Card],
) -> None:
    card = make(latency_ms=30).open()
    model = card.loaded("timing")
    card.ok(model.execute_async(card.stream))
    with pytest.raises(EmulatorError, match=r"mdl\.execute at .* is not ordered after"):
        model.execute()


def test_a_call_fails_or_loses_its_card_as_the_profile_says(make: Callable[..., Card]) -> None:
    faults = [
        {"call": "mdl.execute", "code": 507011},
        {"call": "rt.malloc", "at": 4, "code": 207001},
        {"call": "mdl.execute", "at": 3, "lost": True},
    ]
    card = make(faults=faults).open()
    model = card.loaded()
    assert model.execute() == 507011
    assert "injected" in card.acl.get_recent_err_msg()
    card.device(64)
    assert card.acl.rt.malloc(64, 0) == (0, 207001)
    assert model.execute() == 0
    assert model.execute() == 507010
    assert card.acl.rt.get_device() == (0, 0)
    assert card.acl.mdl.get_num_inputs(model.desc) == 1  # the host knows that by itself
    assert card.acl.rt.synchronize_stream(card.stream) == 507010


def test_host_memory_as_an_input_is_an_emulator_error(emulated: Card) -> None:
    model, host = emulated.loaded(), emulated.pinned(32)
    buffer = emulated.acl.mdl.get_dataset_buffer(model.ins, 0)
    emulated.ok(emulated.acl.update_data_buffer(buffer, host, 32))
    with pytest.raises(EmulatorError, match="must be device memory"):
        model.execute()


def test_an_input_off_a_64_byte_boundary_is_an_error_in_strict_mode(
    emulated: Card, lenient: Card
) -> None:
    for card in (emulated, lenient):
        model, ptr = card.loaded(), card.device(128)
        card.write(ptr + 16, X.tobytes())
        buffer = card.acl.mdl.get_dataset_buffer(model.ins, 0)
        card.ok(card.acl.update_data_buffer(buffer, ptr + 16, 32))
        if card is emulated:
            with pytest.raises(EmulatorError, match=r"input 0 .* 64-byte boundary"):
                model.execute()
        else:
            assert model.execute() == 0
            assert (model.result((2, 4)) == 2 * X + 1).all()


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
        (card.acl.destroy_data_buffer, card.acl.mdl.get_dataset_buffer(model.outs, 0)),
        (
            lambda buffer: card.acl.update_data_buffer(buffer, 0, 0),
            card.acl.mdl.get_dataset_buffer(model.ins, 0),
        ),
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
    began_s = time.monotonic()
    card.ok(rt.record_event(start, card.stream))
    for _ in range(3):
        card.ok(model.execute_async(card.stream))
    card.ok(rt.record_event(end, card.stream))
    card.ok(rt.synchronize_stream(card.stream))
    passed = (time.monotonic() - began_s) * 1000
    assert 45 <= card.ok(rt.event_elapsed_time(start, end)) <= passed


def test_copies_overlap_executions(make: Callable[..., Card]) -> None:
    card = make().open()
    model, rt = card.loaded("timing"), card.acl.rt
    copy = card.ok(rt.create_stream())
    ptr, host = card.device(64), card.pinned(64)
    with card.held():
        card.ok(model.execute_async(card.stream))
        card.ok(rt.memcpy_async(ptr, 64, host, 64, H2D, copy))
        begun = card.machine.devices[0].began_s
        wait_until(lambda: {"compute", "up"} <= begun.keys())  # and neither has ended
    for stream in (card.stream, copy):
        card.ok(rt.synchronize_stream(stream))
