"""A repository gets whole models or keeps its old ones, and nobody else's are touched."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gepipe.errors import ExportError
from gepipe.serving import export_folder
from gepipe.serving.export_folder import Repository
from gepipe.serving.stage import stage_for


def config(pipeline: str = "p", backend: str = "python") -> bytes:
    head = f"# Made by gepipe of the pipeline {pipeline!r}; a new export."
    return f"{head}\nbackend: {backend!r}\n".encode()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def files(version: int, text: bytes = b"x", *models: str) -> dict[str, bytes | Path]:
    made: dict[str, bytes | Path] = {}
    for model in models or ("p", "p_pre"):
        made[f"{model}/config.pbtxt"] = config()
        made[f"{model}/{version}/model.py"] = text
    return made


def content(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "models")


def test_a_missing_repository_is_made(repository: Repository, tmp_path: Path) -> None:
    gone = repository.put("p", files(1), 1, keep=True)

    assert gone == ()
    assert content(repository.folder) == files(1)
    assert names(tmp_path) == ["models"]


def test_the_same_version_is_replaced_and_others_stay(repository: Repository) -> None:
    for version, text in ((1, b"one"), (3, b"three"), (3, b"new three"), (2, b"two")):
        repository.put("p", files(version, text), version, keep=True)

    found = content(repository.folder)

    assert repository.versions("p") == [1, 2, 3]
    assert [found[f"p_pre/{n}/model.py"] for n in (1, 2, 3)] == [b"one", b"two", b"new three"]


def test_without_keeping_only_the_new_version_is_there(repository: Repository) -> None:
    repository.put("p", files(1), 1, keep=False)
    repository.put("p", files(2), 2, keep=False)

    assert repository.versions("p") == [2]


def test_versions_of_another_kind_of_model_do_not_stay(repository: Repository) -> None:
    repository.put("p", files(1), 1, keep=True)
    fused = files(2) | {"p/config.pbtxt": config(backend="other")}

    repository.put("p", fused, 2, keep=True)

    assert repository.versions("p") == [2]
    assert repository.versions("p_pre") == [1, 2]


def test_models_of_an_earlier_export_leave(repository: Repository) -> None:
    repository.put("p", files(1, b"x", "p", "p_pre", "p_post"), 1, keep=True)
    (repository.folder / "p_mine").mkdir()

    gone = repository.put("p", files(1, b"y", "p"), 1, keep=True)

    assert gone == ("p_post", "p_pre")
    assert names(repository.folder) == ["p", "p_mine"]


def test_folders_of_others_are_refused_before_anything_is_written(repository: Repository) -> None:
    (repository.folder / "p_pre").mkdir(parents=True)
    (repository.folder / "p_pre" / "config.pbtxt").write_text('backend: "python"\n')
    before = content(repository.folder)

    with pytest.raises(ExportError, match=r"p_pre: is there already, and no export of gepipe"):
        repository.put("p", files(1), 1, keep=True)

    assert content(repository.folder) == before


def test_folders_of_another_pipeline_are_refused(repository: Repository) -> None:
    repository.put("q", {"p_pre/config.pbtxt": config("q"), "p_pre/1/model.py": b""}, 1, keep=True)

    with pytest.raises(ExportError, match=r"p_pre: belongs to the pipeline 'q'"):
        repository.put("p", files(1), 1, keep=True)


def test_a_link_that_leads_nowhere_is_somebodys(repository: Repository) -> None:
    repository.folder.mkdir()
    (repository.folder / "p").symlink_to("nowhere")

    with pytest.raises(ExportError, match="is there already"):
        repository.put("p", files(1), 1, keep=True)


@pytest.mark.parametrize("exchanges", [0, 1])
def test_a_failure_half_way_brings_everything_back(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchanges: int
) -> None:
    repository.put("p", files(1, b"old", "p", "p_pre", "p_gone"), 1, keep=True)
    before = content(repository.folder)
    done: list[Path] = []
    exchange = export_folder._exchange

    def failing(one: Path, other: Path) -> None:
        if len(done) == exchanges:
            done.append(other)
            raise OSError(28, "No space left on device", str(other))
        done.append(other)
        exchange(one, other)

    monkeypatch.setattr(export_folder, "_exchange", failing)
    with pytest.raises(ExportError, match=r"cannot be written: no space left on device"):
        repository.put("p", files(1, b"new"), 1, keep=True)

    assert content(repository.folder) == before
    assert names(tmp_path) == ["models"]


def test_a_model_that_was_new_leaves_again_when_a_later_one_fails(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.put("p", files(1, b"old", "p"), 1, keep=True)
    before = content(repository.folder)

    def failing(_: Path, other: Path) -> None:
        raise OSError(13, "Permission denied", str(other))

    monkeypatch.setattr(export_folder, "_exchange", failing)
    with pytest.raises(ExportError, match="permission denied"):
        repository.put("p", files(1, b"new", "p", "p_pre"), 1, keep=True)

    assert content(repository.folder) == before


def test_a_file_where_the_repository_should_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("")

    with pytest.raises(ExportError, match=r"models: cannot be written: file exists"):
        Repository(tmp_path / "models").put("p", files(1), 1, keep=True)


def test_a_file_that_vanished_leaves_the_old_models(repository: Repository) -> None:
    repository.put("p", files(1, b"old"), 1, keep=True)
    before = content(repository.folder)

    with pytest.raises(ExportError, match=r"gone.onnx: cannot be written: no such file"):
        repository.put("p", files(1) | {"p/1/m.onnx": Path("gone.onnx")}, 1, keep=True)

    assert content(repository.folder) == before


def test_where_folders_cannot_be_exchanged_at_once_they_are_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)

    class Libc:
        def renameat2(self, *_: object) -> int:
            export_folder.ctypes.set_errno(export_folder.errno.ENOSYS)
            return -1

    monkeypatch.setattr(export_folder.ctypes, "CDLL", lambda *_, **__: Libc())
    export_folder._exchange(tmp_path / "one", tmp_path / "other")

    assert content(tmp_path) == {"one/file": b"other", "other/file": b"one"}


def test_scripts_can_be_run_and_nothing_else(repository: Repository) -> None:
    repository.put("p", files(1) | {"p/start.sh": b"#!/bin/sh\n"}, 1, keep=True)

    def mode(name: str) -> int:
        return (repository.folder / name).stat().st_mode & 0o777

    assert (mode("p/start.sh"), mode("p/config.pbtxt")) == (0o755, 0o644)


KILLED = """
import os, signal, sys
from pathlib import Path
from gepipe.serving.stage import stage_for

with stage_for(Path(sys.argv[1])) as stage:
    (stage / "new").mkdir()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_export_left_is_removed_by_the_next_and_what_is_written_is_not(
    tmp_path: Path,
) -> None:
    repository = tmp_path / "models"
    repository.mkdir()
    (tmp_path / ".models-export-of-somebody").mkdir()
    done = subprocess.run([sys.executable, "-c", KILLED, str(repository)], check=False)
    assert done.returncode == -signal.SIGKILL
    (left,) = tmp_path.glob(".models-export-*/new")

    with stage_for(repository) as other, stage_for(repository) as stage:
        assert not left.parent.exists()
        assert other.is_dir()
        assert stage.is_dir()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".models-export-of-somebody", "models"
    ]  # fmt: skip
