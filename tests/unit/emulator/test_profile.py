"""Profiles of emulated machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gepipe.emulator.errors import ProfileError
from gepipe.emulator.profile import Curve, DeviceSpec, Fault, load_profile, parse_profile


def test_the_published_curve_is_shipped() -> None:
    profile = load_profile("published")

    assert len(profile.devices) == 2
    latencies = [profile.latency.seconds(batch) for batch in (1, 8, 32)]
    assert latencies == pytest.approx([0.022, 0.0444, 0.0615])


def test_latencies_lie_on_straight_lines_between_the_points() -> None:
    curve = Curve(((1, 10.0), (3, 20.0), (5, 50.0)))

    assert [curve.seconds(batch) for batch in range(1, 7)] == [10, 15, 20, 35, 50, 65]
    assert Curve().seconds(4) == 0
    assert Curve(((8, 2.0),)).seconds(99) == 2.0


def test_everything_has_a_default() -> None:
    profile = parse_profile({})

    assert profile.devices == (DeviceSpec(24 << 30, 0),)
    assert (profile.soc, profile.seed, profile.faults) == ("Ascend310P3", None, ())


def test_everything_can_be_set() -> None:
    profile = parse_profile(
        {
            "name": "n",
            "soc": "Ascend910B3",
            "devices": [{"memory": "64GiB", "used": "1.5GiB"}, {}],
            "memory": "32GiB",
            "memory_kind": "hbm",
            "run_mode": "device",
            "copy": {"gb_per_s": 20},
            "latency_ms": 5,
            "models": {"bert*": {1: 2, 4: 4}},
            "pace_computing": True,
            "seed": 3,
            "hold_gil": False,
            "limits": {"streams": 2},
            "faults": [{"call": "rt.malloc", "at": 2, "code": 207001, "device": 1}],
        }
    )

    assert profile.devices == (DeviceSpec(64 << 30, 3 << 29), DeviceSpec(32 << 30, 0))
    assert profile.copy.gb_per_s == 20
    assert profile.latency.seconds(7) == 0.005
    assert profile.latency_of("bert-large").seconds(4) == 0.004
    assert profile.latency_of("other").seconds(4) == 0.005
    assert profile.limits.streams == 2
    assert profile.limits.events == 1023
    assert profile.faults == (Fault("rt.malloc", 2, device=1, code=207001),)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ([], "a mapping was expected"),
        ({"speed": 1}, "speed: unknown; known:"),
        ({"memory": "lots"}, "a size such as 24GiB"),
        ({"devices": -1}, "whole number from 0"),
        ({"devices": [{"ram": 1}]}, "ram is unknown"),
        ({"copy": {"gb_per_s": "fast"}}, "a number was expected"),
        ({"latency_ms": {}}, "milliseconds per batch size"),
        ({"latency_ms": {0: 1}}, "batch sizes begin at 1"),
        ({"run_mode": "card"}, "one of host, device"),
        ({"faults": [{"call": "x", "code": 1}]}, "1 is no code of ACL"),
        ({"faults": {}}, "a list was expected"),
        ({"hold_gil": 1}, "true or false"),
        ({"soc": ""}, "a text was expected"),
    ],
)
def test_a_problem_names_its_key(raw: Any, text: str) -> None:
    with pytest.raises(ProfileError, match=text):
        parse_profile(raw)


def test_all_problems_are_listed() -> None:
    with pytest.raises(ProfileError) as caught:
        parse_profile({"speed": 1, "memory": "x"})
    assert "speed" in str(caught.value)
    assert "memory" in str(caught.value)


def test_a_file_that_is_no_yaml_is_told(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("a: [")
    with pytest.raises(ProfileError, match=r"p\.yaml"):
        load_profile(str(path))
    path.write_text("name: mine\ndevices: 3\n")
    assert len(load_profile(str(path)).devices) == 3
