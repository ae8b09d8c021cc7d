from collections import namedtuple

import pytest

from gepipe.errors import ConfigError
from gepipe.triton import preflight

Facts = namedtuple("Facts", "f_bavail f_frsize")  # noqa: PYI024 - as os.statvfs answers


@pytest.mark.parametrize(("free_mib", "hints"), [(64, 1), (1024, 0)])
def test_little_shared_memory_is_said(tmp_path, monkeypatch, free_mib: int, hints: int) -> None:
    monkeypatch.setattr(preflight.os, "statvfs", lambda _: Facts(free_mib << 8, 4096))

    found = preflight.check_shared_memory(tmp_path)

    assert len(found) == hints
    assert all(f"{free_mib} MiB are free" in each for each in found)


def test_shared_memory_that_is_full_or_missing_is_refused(tmp_path, monkeypatch) -> None:
    with pytest.raises(ConfigError, match="no such file or directory; expected shared memory"):
        preflight.check_shared_memory(tmp_path / "none")
    monkeypatch.setattr(preflight.os, "statvfs", lambda _: Facts(512, 4096))
    with pytest.raises(ConfigError, match=r"2 MiB are free.*--shm-size=1g"):
        preflight.check_shared_memory(tmp_path)
