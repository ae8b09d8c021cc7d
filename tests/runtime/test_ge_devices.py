"""Which cards a pipeline is put on: by what they have free, before anything is loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import yaml

import gepipe
from gepipe.emulator.om import Gears, OmTensor, write_om
from gepipe.errors import BackendError, ModelLoadError
from gepipe.pipeline.check import check


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Return a function that writes a pipeline for cards of 1 GiB and a model of half of that."""
    monkeypatch.setenv("GEPIPE_ACL", "emulator")
    monkeypatch.setenv("GEPIPE_ACL_MODE", "strict")

    def write(used: list[str], **infer: Any):
        cards = [{"memory": "1GiB", "used": each} for each in used]
        profile: Mapping[str, Any] = {"name": tmp_path.name, "devices": cards}
        (tmp_path / "profile.yaml").write_text(yaml.safe_dump(profile))
        monkeypatch.setenv("GEPIPE_ACL_PROFILE", str(tmp_path / "profile.yaml"))
        tensors = [OmTensor(name, "float32", (-1, 4)) for name in "xy"]
        write_om(
            tmp_path / "m.om",
            None,
            inputs=tensors[:1],
            outputs=tensors[1:],
            gears=Gears("batch", ((1,), (4,))),
            weight_bytes=512 << 20,
        )
        stages = [
            {"name": "preprocess"},
            {"name": "inference", "model": "m.om", **infer},
            {"name": "postprocess"},
        ]
        path = tmp_path / "p.yaml"
        path.write_text(yaml.safe_dump({"stages": stages}))
        return path

    return write


def run(path) -> int:
    with gepipe.Pipeline.from_yaml(path) as pipeline:
        return len(list(pipeline.run([np.zeros(4, np.float32)] * 10)))


def test_auto_leaves_out_a_card_without_room_and_says_so(written) -> None:
    path = written(["900MiB", "0MiB", "600MiB"])

    found = check(path)

    assert found.errors == []
    assert any("engine ge" in note and "on devices" not in note for note in found.notes)
    assert [note for note in found.notes if note.startswith("device 1: 1 x 513.0 MiB of 1.00 GiB")]
    assert [note for note in found.notes if note.startswith("left out: device 0 has no room")]
    assert [note for note in found.notes if note.startswith("left out: device 2 has no room")]
    assert run(path) == 10


def test_the_second_pipeline_goes_where_the_first_left_room(written, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("GEPIPE_ACL_MACHINE", f"two-{tmp_path.name}-{os.getpid()}")
    rows = [np.zeros(4, np.float32)] * 10
    with gepipe.Pipeline.from_yaml(written(["0MiB", "0MiB"], devices=[1])) as first:
        assert len(list(first.run(rows))) == 10

        with gepipe.Pipeline.from_yaml(written(["0MiB", "0MiB"])) as second:
            assert len(list(second.run(rows))) == 10

            assert any(note.startswith("device 0: 1 x 513.0 MiB") for note in second.notes)
            assert any(note.startswith("left out: device 1 has no room") for note in second.notes)


def test_auto_is_refused_with_the_sums_where_no_card_has_room(written) -> None:
    path = written(["900MiB", "600MiB"])

    with pytest.raises(
        ModelLoadError,
        match=r"m\.om fits on no device: device 0 has no room: 1 x 513\.0 MiB of 0\.12 GiB.*"
        r"device 1 has no room: .* of 0\.41 GiB",
    ):
        run(path)
    assert "fits on no device" in "".join(check(path).errors)


def test_all_instances_of_a_named_card_are_added_up(written) -> None:
    path = written(["0MiB", "0MiB"], devices=[1], instances=2)

    with pytest.raises(
        ModelLoadError, match=r"device 1: m\.om needs .*all 2 models together need 1\.00 GiB of 1\."
    ):
        run(path)
    assert "all 2 models together" in "".join(check(path).errors)


def test_a_card_that_there_is_not_is_refused(written) -> None:
    path = written(["0MiB"], devices=[0, 3])

    with pytest.raises(BackendError, match="device 3 cannot be used: there is only one"):
        run(path)
