"""A profile fills in what the stages leave open, and nothing else."""

from __future__ import annotations

import jsonschema
import pytest

from gepipe.errors import ConfigError
from gepipe.pipeline.plan import _batch_that_holds
from gepipe.spec.dump import dumps
from gepipe.spec.load import loads
from gepipe.spec.normal import normal_form
from gepipe.spec.profile import PRESETS, complete
from gepipe.spec.schema import json_schema
from gepipe.spec.settled import said_by_profile, settle, wished_batch

STAGES = "stages: [{name: preprocess}, {name: inference}, {name: postprocess}]\n"


def spec(profile: str, stages: str = STAGES, more: str = ""):
    return loads(f"profile: {profile}\n{more}{stages}")


def test_without_a_profile_nothing_is_settled():
    plain = loads(STAGES)

    assert settle(plain) is plain
    assert wished_batch(plain) is None
    assert dict(said_by_profile(plain)) == {}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "latency",
            {
                "batch_size": 4,
                "max_wait": "0ms",
                "instances": 1,
                "queue": 32,
                "priority_levels": 2,
            },
        ),
        ("throughput", {"batch_size": 32, "max_wait": "5ms", "queue": 512, "priority_levels": 1}),
    ],
)
def test_a_preset_says_what_the_reference_shows(name, said):
    assert dict(said_by_profile(spec(name))) == said


def test_keys_of_the_profile_win_over_its_preset():
    profile = complete(spec("{preset: latency, queue: 16, precision: fp16}").profile)

    assert (profile.queue, profile.precision) == (16, "fp16")
    assert profile.batch_size == PRESETS["latency"].batch_size


def test_keys_of_stages_win_over_the_profile():
    stages = (
        "max_wait: 7ms\nstages: [{name: preprocess, batch_size: 3}, "
        "{name: inference, instances: 2, precision: fp32}, {name: postprocess}]\n"
    )
    mine = spec("{preset: latency, precision: fp16}", stages)

    settled = settle(mine)

    assert wished_batch(mine) is None
    assert settled.max_wait == 0.007
    assert (settled.infer.instances, settled.infer.precision) == (2, "fp32")
    assert dict(said_by_profile(mine)) == {"queue": 32, "priority_levels": 2}


def test_what_is_settled_stays_when_it_is_settled_again():
    once = settle(spec("latency"))

    assert settle(once) == once


@pytest.mark.parametrize(
    ("gears", "wanted", "batch"),
    [((), 4, 4), ((8,), 4, 8), ((8,), 32, 32), ((1, 4, 8), 4, 4), ((1, 2, 8), 3, 8), ((3,), 4, 6)],
)
def test_the_batch_is_the_smallest_that_holds_the_wish_without_padding(gears, wanted, batch):
    assert _batch_that_holds(gears, wanted) == batch


def test_a_profile_that_changes_the_batch_makes_another_job():
    plain, tuned = loads(STAGES), spec("throughput")
    explicit = loads(STAGES.replace("preprocess}", "preprocess, batch_size: 32}"))

    assert normal_form(tuned)["stages"][0]["batch_size"] == 32
    assert normal_form(tuned) != normal_form(plain)
    assert normal_form(tuned) == normal_form(explicit)
    assert normal_form(spec("{queue: 7, priority_levels: 2}")) == normal_form(plain)
    assert normal_form(spec("{precision: fp16}")) != normal_form(plain)


@pytest.mark.parametrize(
    "profile", ["latency", "{preset: throughput, queue: 9}", "{max_wait: 2ms}"]
)
def test_a_profile_survives_writing_and_reading(profile):
    mine = spec(profile)

    assert loads(dumps(mine)) == mine


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        ("fast", "profile: expected latency, throughput, or a mapping such as"),
        ("{preset: fast}", "profile.preset: expected one of latency, throughput, got 'fast'"),
        ("{batch: 4}", "unknown key 'batch'; did you mean 'batch_size'?"),
        ("{queue: 0}", "profile.queue: expected a whole number of at least 1, got 0"),
        ("{priority_levels: 3}", "profile.priority_levels: expected one of 1, 2, got 3"),
        ("[latency]", "profile: expected latency, throughput, or a mapping such as"),
    ],
)
def test_mistakes_are_told_with_their_place(profile, message):
    with pytest.raises(ConfigError) as refused:
        spec(profile)

    assert str(refused.value).startswith("pipeline.yaml:1: ")
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("profile", "right"),
    [
        ("latency", True),
        ({"preset": "latency", "queue": 3, "max_wait": "2ms"}, True),
        ("fast", False),
        ({"queue": 0}, False),
        ({"other": 1}, False),
    ],
)
def test_the_schema_takes_what_the_loader_takes(profile, right):
    stages = [{"name": name} for name in ("preprocess", "inference", "postprocess")]
    validator = jsonschema.Draft202012Validator(json_schema())

    assert validator.is_valid({"stages": stages, "profile": profile}) is right
