"""Every configuration is one that Triton's own protobuf reads, and reads as it was meant."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import json_format, text_format
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import model_config_pb2

from gepipe.triton.config import (
    DynamicBatching,
    InstanceGroup,
    ModelConfig,
    QueuePolicy,
    Step,
    Tensor,
    config_text,
)

IMAGE = Tensor("IMAGE", "STRING", (1,))
RESULT = Tensor("RESULT", "STRING", (1,))
FULL = ModelConfig(
    8,
    [Tensor("x", "FP32", (3, 224, 224)), Tensor("scalar", "INT64", (1,), ())],
    [Tensor("y", "FP16", (1000,))],
    backend="ge",
    instances=InstanceGroup("KIND_MODEL", 2),
    batching=DynamicBatching((1, 4, 8), 2000, QueuePolicy(64), 2, 2),
    parameters={"timeout": "50ms", "device_ids": "0,1", "engine": "ge"},
    default_model_filename="model.om",
    comment=["Made by gepipe", "", "twice"],
)
ENSEMBLE = ModelConfig(
    8,
    [IMAGE],
    [RESULT],
    steps=[
        Step("e_pre", {"IMAGE": "IMAGE"}, {"x": "input.x", "ITEM_META": "meta"}),
        Step("e_post", {"x": "input.x", "ITEM_META": "meta"}, {"RESULT": "RESULT"}),
    ],
)
BARE = ModelConfig(0, [IMAGE], [RESULT], "python", InstanceGroup("KIND_CPU", 1))


def parsed(config: ModelConfig) -> dict[str, Any]:
    message = text_format.Parse(config_text(config), model_config_pb2.ModelConfig())
    again = text_format.Parse(text_format.MessageToString(message), model_config_pb2.ModelConfig())
    assert again == message
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def test_everything_that_is_described_is_what_the_server_reads() -> None:
    assert parsed(FULL) == {
        "backend": "ge",
        "max_batch_size": 8,
        "default_model_filename": "model.om",
        "input": [
            {"name": "x", "data_type": "TYPE_FP32", "dims": ["3", "224", "224"]},
            {"name": "scalar", "data_type": "TYPE_INT64", "dims": ["1"], "reshape": {}},
        ],
        "output": [{"name": "y", "data_type": "TYPE_FP16", "dims": ["1000"]}],
        "instance_group": [{"kind": "KIND_MODEL", "count": 2}],
        "dynamic_batching": {
            "preferred_batch_size": [1, 4, 8],
            "max_queue_delay_microseconds": "2000",
            "priority_levels": "2",
            "default_priority_level": "2",
            "default_queue_policy": {"allow_timeout_override": True, "max_queue_size": 64},
        },
        "parameters": {
            "device_ids": {"string_value": "0,1"},
            "engine": {"string_value": "ge"},
            "timeout": {"string_value": "50ms"},
        },
    }


def test_an_ensemble_names_its_steps_in_order_and_nothing_that_it_may_not_have() -> None:
    steps = [
        {
            "model_name": "e_pre",
            "model_version": "-1",
            "input_map": {"IMAGE": "IMAGE"},
            "output_map": {"x": "input.x", "ITEM_META": "meta"},
        },
        {
            "model_name": "e_post",
            "model_version": "-1",
            "input_map": {"x": "input.x", "ITEM_META": "meta"},
            "output_map": {"RESULT": "RESULT"},
        },
    ]

    found = parsed(ENSEMBLE)

    assert found.pop("ensemble_scheduling") == {"step": steps}
    assert set(found) == {"platform", "max_batch_size", "input", "output"}
    assert found["platform"] == "ensemble"


def test_no_batching_and_no_parameters_write_nothing_of_them() -> None:
    text = config_text(BARE)

    assert "max_batch_size: 0\n" in text
    assert "dynamic_batching" not in text
    assert "parameters" not in text
    assert parsed(BARE)["instance_group"] == [{"kind": "KIND_CPU", "count": 1}]


def test_parameters_are_sorted_whatever_order_they_are_given_in() -> None:
    turned = dict(reversed(FULL.parameters.items()))
    other = ModelConfig(8, FULL.inputs, FULL.outputs, "ge", FULL.instances, parameters=turned)
    same = ModelConfig(
        8, FULL.inputs, FULL.outputs, "ge", FULL.instances, parameters=FULL.parameters
    )

    assert config_text(other) == config_text(same)


def test_comments_stand_at_the_head() -> None:
    assert config_text(FULL).splitlines()[:3] == ["# Made by gepipe", "#", "# twice"]


@pytest.mark.parametrize("kind", ["FP32", "BOOL", "UINT64", "BF16", "STRING"])
def test_types_are_those_of_the_server(kind: str) -> None:
    config = ModelConfig(1, [Tensor("x", kind, (1,))], [RESULT], "python")

    assert parsed(config)["input"][0]["data_type"] == f"TYPE_{kind}"


@given(st.text(st.characters(exclude_categories=("Cs",)), min_size=1))
def test_any_text_reaches_the_server_as_it_is(text: str) -> None:
    config = ModelConfig(1, [Tensor(text, "FP32", (1,))], [RESULT], parameters={text: text})

    found = parsed(config)

    assert found["input"][0]["name"] == text
    assert found["parameters"] == {text: {"string_value": text}}
