from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gepipe.emulator.om import OmTensor, write_om
from gepipe.engines.ge.placement import place, survey
from gepipe.errors import BackendError, ModelLoadError

GIB = 2**30


def test_models_go_where_most_memory_is_free() -> None:
    needs = [("a", 2 * GIB), ("b", 5 * GIB), ("c", 2 * GIB), ("d", GIB)]

    assert place(needs, {0: 6 * GIB, 1: 8 * GIB}) == [0, 1, 0, 1]


def test_what_does_not_fit_is_refused_with_the_sums() -> None:
    with pytest.raises(
        ModelLoadError, match=r"b needs 5\.00 GiB.*0: 3\.00 GiB, 1: 4\.00 GiB.*7\.00 GiB of 7\.00"
    ):
        place([("a", 2 * GIB), ("b", 5 * GIB)], {0: 3 * GIB, 1: 4 * GIB})
    with pytest.raises(ModelLoadError, match="no devices"):
        place([("a", 1)], {})


@given(
    st.lists(st.integers(1, 1000), max_size=12),
    st.lists(st.integers(0, 3000), min_size=1, max_size=4),
)
def test_no_device_is_ever_overfilled(sizes, memory) -> None:
    free = dict(enumerate(memory))
    try:
        chosen = place([(str(at), size) for at, size in enumerate(sizes)], free)
    except ModelLoadError:
        return

    for device, room in free.items():
        assert sum(n for n, at in zip(sizes, chosen, strict=True) if at == device) <= room


def test_survey_asks_in_another_process(tmp_path) -> None:
    import sys

    profile = tmp_path / "profile.yaml"
    devices = [{"memory": "2GiB"}, {"memory": "1GiB", "used": "512MiB"}]
    profile.write_text(yaml.safe_dump({"devices": devices}))
    tensor = OmTensor("x", "float32", (1, 4))
    model = tmp_path / "m.om"
    write_om(model, None, inputs=[tensor], outputs=[tensor], weight_bytes=10 << 20)

    found = survey([model], {"device": "emulator", "profile": str(profile)})

    assert [(each.device, each.free, each.total) for each in found.devices] == [
        (0, 2 * GIB, 2 * GIB),
        (1, GIB // 2, GIB),
    ]
    assert found.needs[str(model)] > 10 << 20
    assert "acl" not in sys.modules
    with pytest.raises(BackendError, match="No such file"):
        survey([tmp_path / "missing.om"], {"device": "emulator", "profile": str(profile)})
