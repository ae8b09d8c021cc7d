import json
import re
from collections import namedtuple
from importlib import metadata

import pytest

from gepipe.errors import ConfigError
from gepipe.triton import interpreter, preflight
from gepipe.triton.kit import Kit

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


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("0.0.1", f"gepipe 0.0.1, but this is {metadata.version('gepipe')}"),
        (metadata.version("gepipe"), "another copy of gepipe .* than this one"),
    ],
)
def test_another_gepipe_in_the_python_of_the_models_is_said(
    tmp_path, monkeypatch, version: str, said: str
) -> None:
    monkeypatch.setattr(interpreter, "own", lambda: "3.11")
    here = {"own": metadata.version("gepipe")}
    here["record"] = metadata.distribution("gepipe").read_text("RECORD")
    there = here | {"own": version, "record": "gepipe/older.py,,\n"}
    kit = Kit(tmp_path, "2.51.0", tmp_path, tmp_path, tmp_path / "python3", "3.11", ())

    def notes(report: dict[str, str]) -> list[str]:
        (tmp_path / "report").write_text(
            json.dumps({"python": "3.11", "version": "1.26.4", **report})
        )
        kit.python.write_text(f"#!/bin/sh\ncat {tmp_path / 'report'}\n")
        kit.python.chmod(0o755)
        return preflight.check_imports(kit)

    assert notes(here) == []
    (note,) = notes(there)
    assert re.search(f"python3: {said}; .*: gepipe triton install$", note)
    monkeypatch.setattr(interpreter, "own", lambda: "3.12")
    assert notes(there)[0].endswith(": gepipe triton install --python 3.11")
