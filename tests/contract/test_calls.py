"""How pyACL's functions take arguments and return results."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gepipe.emulator.api import CALLS
from gepipe.emulator.errors import EmulatorError, OutOfScopeError
from tests.contract.card import H2D, Card


def test_the_module_exports_functions_only_and_no_constants(card: Card) -> None:
    with pytest.raises(AttributeError):
        card.acl.ACL_MEMCPY_HOST_TO_DEVICE  # noqa: B018 - the access is what is tested


def test_functions_are_positional_only(card: Card) -> None:
    with pytest.raises(TypeError):
        card.acl.rt.malloc(size=4, policy=0)


@pytest.mark.parametrize(
    "args",
    [(1,), (1, 2, 3, 4, 5, 6), (b"a", 1, 1, 1, 1), (None, 1, 1, 1, 1), (1.0, 1, 1, 1, 1)],
    ids=["few", "many", "bytes", "None", "float"],
)
def test_bad_arguments_are_a_type_error_with_the_function_s_name(
    card: Card, args: tuple[object, ...]
) -> None:
    with pytest.raises(TypeError, match=r"acl\.rt\.memcpy args parse failed"):
        card.acl.rt.memcpy(*args)


def test_model_functions_add_an_exclamation_mark(card: Card) -> None:
    with pytest.raises(TypeError, match=r"acl\.mdl\.load_from_file args parse failed!"):
        card.acl.mdl.load_from_file(b"x.om")


def test_a_numpy_integer_is_no_pointer_and_no_size(card: Card) -> None:
    with pytest.raises(TypeError):
        card.acl.rt.malloc(np.int64(64), 0)


def test_a_numpy_integer_is_no_batch_size_and_no_height(card: Card) -> None:
    with pytest.raises(TypeError):
        card.acl.mdl.set_dynamic_batch_size(1, 1, 1, np.int64(2))
    with pytest.raises(TypeError):
        card.acl.mdl.set_dynamic_hw_size(1, 1, 1, np.int64(2), 2)


def test_a_text_is_no_number(card: Card) -> None:
    with pytest.raises(TypeError):
        card.acl.float_to_float16("1.5")


def test_a_numpy_integer_is_a_model_id(card: Card) -> None:
    assert card.acl.mdl.unload(np.int64(999)) == 145003


def test_minus_one_is_the_largest_size(card: Card) -> None:
    ptr, code = card.acl.rt.malloc(-1, 0)

    assert (ptr, code) == (0, 207001)


def test_enums_are_range_checked(card: Card) -> None:
    with pytest.raises(TypeError):
        card.acl.rt.set_device(2**31)


@pytest.mark.parametrize("path", ["a\0b", "\udc80", None, b"x", 3])
def test_a_path_is_valid_text_without_nul(card: Card, path: object) -> None:
    with pytest.raises(TypeError):
        card.acl.mdl.load_from_file(path)


def test_none_is_no_handle(card: Card) -> None:
    with pytest.raises(TypeError):
        card.acl.rt.synchronize_stream(None)


def test_functions_that_ignore_their_arguments_take_any(card: Card) -> None:
    assert isinstance(card.acl.get_soc_name(1, 2), str)
    dataset = card.acl.mdl.create_dataset("x")
    assert card.acl.mdl.destroy_dataset(dataset) == 0


def test_handles_are_plain_ints(card: Card) -> None:
    for handle in (card.context, card.stream):
        assert type(handle) is int
        assert handle


def test_codes_come_last_and_pure_getters_return_no_code(card: Card) -> None:
    assert card.acl.rt.get_device() == (0, 0)
    assert card.acl.rt.get_run_mode() == (1, 0)
    assert card.acl.rt.get_device_count()[1] == 0
    assert len(card.acl.rt.get_mem_info(0)) == 3
    assert type(card.acl.get_soc_name()) is str
    assert len(card.acl.get_version()) == 4


def test_a_failing_call_still_has_its_return_form(card: Card) -> None:
    assert card.acl.rt.malloc(0, 0) == (0, 100000)
    assert card.acl.mdl.load_from_file("/nonexistent.om") == (0, 145002)
    desc = card.acl.mdl.create_desc()
    assert card.acl.mdl.get_input_dims(desc, 0) == ({}, 100000)
    assert card.acl.mdl.get_input_dynamic_dims(desc, -1, 1) == ([], 100000)
    assert card.acl.mdl.destroy_desc(desc) == 0


def test_messages_are_returned_once_and_belong_to_a_thread(card: Card) -> None:
    card.acl.rt.malloc(0, 0)

    assert card.elsewhere(card.acl.get_recent_err_msg) is None
    assert card.acl.get_recent_err_msg()
    assert card.acl.get_recent_err_msg() is None


def test_messages_begin_with_the_code_of_a_report(card: Card) -> None:
    def said(call: Callable[[], object]) -> str:
        call()
        return card.acl.get_recent_err_msg() or ""

    path = card.folder / "bad.om"
    path.write_bytes(b"none")
    assert said(lambda: card.acl.mdl.load_from_file(str(path))).startswith("E10001: ")
    assert said(lambda: card.acl.rt.malloc(-1, 0)).startswith("EL")
    assert said(lambda: card.acl.rt.set_device(4711)).startswith("E")


def test_the_last_failure_of_the_runtime_is_peeked_at_and_taken(card: Card) -> None:
    rt = card.acl.rt
    rt.get_last_error(0)
    assert rt.set_device(4711) == 107001
    assert rt.peek_at_last_error(0) == 107001
    assert rt.get_last_error(0) == 107001
    assert rt.get_last_error(0) == 0


def test_calls_that_only_set_or_tell_something(card: Card) -> None:
    acl = card.acl
    assert acl.app_log(1, "text") is None
    assert acl.rt.set_op_wait_timeout(10) == 0
    assert acl.rt.set_op_execute_timeout(10) == 0
    assert acl.rt.get_thread_last_task_id()[-1] == 0
    assert acl.rt.device_get_stream_priority_range()[-1] == 0
    assert acl.rt.query_device_status(0) == (0, 0)


def test_other_texts_of_type_errors(card: Card) -> None:
    with pytest.raises(TypeError, match="parameter must be callable"):
        card.acl.util.start_thread(1, [])
    with pytest.raises(TypeError, match="exactly 2 arguments"):
        card.acl.util.start_thread(len)
    with pytest.raises(TypeError, match="argument 2 is not list"):
        card.acl.create_tensor_desc(0, (1, 2), 2)
    with pytest.raises(TypeError, match="argument 4 is not dict"):
        card.acl.mdl.set_input_dynamic_dims(1, 1, 1, [1])
    with pytest.raises(TypeError):
        card.acl.rt.launch_callback("f", [], 0, card.stream)
    with pytest.raises(TypeError, match=r"launch_callback args parse failed"):
        card.acl.rt.launch_callback(len, [], card.stream)


def test_dvpp_and_other_parts_are_out_of_scope(emulated: Card) -> None:
    for use in (
        (emulated.acl.media, "dvpp_create_channel_desc"),
        (emulated.acl.himpi, "sys_init"),
        (emulated.acl.op, "create_attr"),
        (emulated.acl.rt, "launch_kernel_with_config"),
    ):
        with pytest.raises(OutOfScopeError, match="out of scope"):
            getattr(*use)
    assert not hasattr(emulated.acl.media, "vpc_resize")


def test_dvpp_memory_is_plain_device_memory(emulated: Card) -> None:
    ptr, code = emulated.acl.media.dvpp_malloc(100)

    assert code == 0
    assert emulated.acl.rt.memset(ptr, 100, 0, 100) == 0
    assert emulated.acl.media.dvpp_free(ptr) == 0


def test_every_function_fails_in_its_return_form_without_a_context(
    make: Callable[..., Card],
) -> None:
    acl = make().acl
    acl.init()
    samples = {"k": 64, "I": 1, "i": 1, "K": 1, "s": "x", "O": 1, "L": [], "D": {}, "f": 0.0}
    checked = 0
    for call in CALLS.values():
        if not call.needs_context:
            continue
        function = acl
        for part in call.name.split("."):
            function = getattr(function, part)
        formats = call.formats.replace("*", "").replace("|", "")
        args = [len if form == "F" else samples[form] for form in formats]
        assert function(*args) == call.failure(107002), call.name
        checked += 1
    assert checked > 40


def test_a_host_pointer_that_leads_nowhere_is_an_error_and_no_crash(emulated: Card) -> None:
    ptr = emulated.device(64)
    with pytest.raises(EmulatorError, match="cannot access"):
        emulated.acl.rt.memcpy(ptr, 64, 0x1000, 64, H2D)


#: The functions that public programs use, single kernels and DVPP apart.
USED = [
    "init",
    "finalize",
    "create_data_buffer",
    "destroy_data_buffer",
    "get_data_buffer_addr",
    "get_data_buffer_size",
    "get_data_buffer_size_v2",
    "update_data_buffer",
    "create_tensor_desc",
    "destroy_tensor_desc",
    "get_tensor_desc_size",
    "get_tensor_desc_dim_v2",
    "get_tensor_desc_num_dims",
    "get_soc_name",
    "data_type_size",
    "set_tensor_const",
    "get_recent_err_msg",
    "get_version",
    "mdl.get_num_outputs",
    "mdl.get_num_inputs",
    "mdl.get_output_data_type",
    "mdl.get_output_dims",
    "mdl.create_desc",
    "mdl.destroy_desc",
    "mdl.get_desc",
    "mdl.get_input_dims",
    "mdl.create_dataset",
    "mdl.add_dataset_buffer",
    "mdl.get_output_size_by_index",
    "mdl.unload",
    "mdl.load_from_file",
    "mdl.destroy_dataset",
    "mdl.get_dataset_buffer",
    "mdl.get_input_data_type",
    "mdl.get_dataset_num_buffers",
    "mdl.execute",
    "mdl.get_input_size_by_index",
    "mdl.get_cur_output_dims",
    "mdl.get_input_index_by_name",
    "mdl.execute_async",
    "mdl.set_input_dynamic_dims",
    "mdl.get_input_dynamic_dims",
    "mdl.get_input_dynamic_gear_count",
    "mdl.set_dynamic_batch_size",
    "mdl.get_dynamic_batch",
    "mdl.load_from_mem",
    "mdl.set_dataset_tensor_desc",
    "mdl.get_dataset_tensor_desc",
    "mdl.get_dynamic_hw",
    "mdl.get_input_format",
    "mdl.set_dynamic_hw_size",
    "mdl.bundle_get_model_id",
    "mdl.bundle_get_model_num",
    "mdl.bundle_load_from_file",
    "mdl.bundle_unload",
    "mdl.get_output_format",
    "mdl.get_output_name_by_index",
    "mdl.query_size",
    "mdl.load_from_file_with_mem",
    "mdl.create_config_handle",
    "mdl.set_config_opt",
    "mdl.load_with_config",
    "mdl.get_desc_from_file",
    "mdl.execute_v2",
    "rt.memcpy",
    "rt.malloc",
    "rt.free",
    "rt.set_device",
    "rt.create_context",
    "rt.malloc_host",
    "rt.reset_device",
    "rt.destroy_context",
    "rt.create_stream",
    "rt.synchronize_stream",
    "rt.destroy_stream",
    "rt.free_host",
    "rt.get_run_mode",
    "rt.set_context",
    "rt.get_context",
    "rt.process_report",
    "rt.memset",
    "rt.launch_callback",
    "rt.subscribe_report",
    "rt.unsubscribe_report",
    "rt.get_mem_info",
    "rt.memcpy_async",
    "rt.get_device",
    "rt.get_device_count",
    "rt.memset_async",
    "rt.synchronize_device",
    "rt.create_event",
    "rt.record_event",
    "rt.synchronize_event",
    "rt.event_elapsed_time",
    "rt.stream_wait_event",
    "rt.reset_event",
    "rt.destroy_event",
    "rt.get_device_utilization_rate",
    "util.bytes_to_ptr",
    "util.numpy_to_ptr",
    "util.ptr_to_numpy",
    "util.ptr_to_bytes",
    "util.numpy_contiguous_to_ptr",
    "util.start_thread",
    "util.stop_thread",
]


@pytest.mark.parametrize("name", USED)
def test_the_functions_that_programs_use_exist(card: Card, name: str) -> None:
    found = card.acl
    for part in name.split("."):
        found = getattr(found, part)
    assert callable(found)
