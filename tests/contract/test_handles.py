"""Handles that are 0, or of something else."""

from __future__ import annotations

import pytest

from gepipe.emulator.api import CALLS
from gepipe.emulator.errors import EmulatorError
from tests.contract.card import Card

#: What functions return for handles, pointers and ids of 0, where it is not 100000 in their form.
NULLS = {
    "mdl.load_from_file_with_mem": (0, 145002),
    "mdl.get_aipp_type": (0, 0, 145003),
    "mdl.get_first_aipp_info": (None, 145003),
    "mdl.set_input_aipp": 145003,
    "mdl.set_aipp_by_input_index": 145003,
    "mdl.set_input_dynamic_dims": 145003,
    "mdl.execute": 145003,
    "mdl.execute_async": 145003,
    "mdl.bundle_get_model_id": (0, 148053),
    "mdl.get_input_name_by_index": "",
    "mdl.get_output_name_by_index": "",
    "mdl.get_tensor_real_name": None,
    "mdl.get_input_data_type": -1,
    "mdl.get_output_data_type": -1,
    "mdl.get_input_format": -1,
    "mdl.get_output_format": -1,
    "get_tensor_desc_type": -1,
    "get_tensor_desc_format": -1,
    "get_tensor_desc_dim": -1,
    "get_tensor_desc_name": "",
    "rt.synchronize_stream": 0,  # the default stream
    "rt.stream_query": (0, 0),
    "rt.unsubscribe_report": 107012,
    "rt.launch_callback": 107015,
    "rt.host_unregister": 507911,
    "rt.reduce_async": 207000,
}


def test_null_is_refused_everywhere(emulated: Card) -> None:
    samples = {"I": 0, "i": 0, "K": 0, "k": 0, "s": "", "O": 1, "L": [], "f": 0.0, "F": len}
    samples["D"] = {"dimCount": 0, "dims": []}
    checked = 0
    for call in CALLS.values():
        if "k" not in call.formats or call.name in ("create_data_buffer", "util.ptr_to_numpy"):
            continue
        function = emulated.acl
        for part in call.name.split("."):
            function = getattr(function, part)
        args = [samples[form] for form in call.formats]
        if call.name == "util.ptr_to_bytes":
            with pytest.raises(EmulatorError, match="cannot access"):
                function(*args)
            continue
        assert function(*args) == NULLS.get(call.name, call.failure(100000)), call.name
        checked += 1
    assert checked > 90


def test_a_handle_of_another_kind_is_an_emulator_error(emulated: Card) -> None:
    acl = emulated.acl
    dataset = acl.mdl.create_dataset()
    for call, what in (
        (acl.rt.set_context, "context"),
        (acl.rt.synchronize_stream, "stream"),
        (acl.rt.synchronize_event, "event"),
        (acl.mdl.destroy_desc, "model description"),
        (acl.destroy_data_buffer, "data buffer"),
        (acl.destroy_tensor_desc, "tensor description"),
        (acl.mdl.destroy_config_handle, "configuration"),
        (acl.mdl.destroy_aipp, "AIPP"),
        (acl.rt.free, ""),
        (acl.rt.free_host, ""),
    ):
        with pytest.raises(EmulatorError, match=rf"{what}.*(a dataset|not memory of ACL)"):
            call(dataset)
    with pytest.raises(EmulatorError, match=r"dataset .* is a stream"):
        acl.mdl.destroy_dataset(emulated.stream)
    assert acl.rt.destroy_stream(0) == 100000
