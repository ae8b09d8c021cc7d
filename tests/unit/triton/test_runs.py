import os
import subprocess
import sys
from pathlib import Path

import pytest

from gepipe.errors import ConfigError
from gepipe.triton.runs import leftovers, new_run
from tests.support import wait_until

KILLED = """
import os, signal
from gepipe.triton.runs import new_run
with new_run() as run:
    open(f"/dev/shm/{run.prefix}region", "w").close()
    print(run.folder, run.prefix, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / f"gepipe-triton-{os.getuid()}"


def test_a_run_leaves_neither_folder_nor_regions(home) -> None:
    with new_run() as run:
        region = Path(f"/dev/shm/{run.prefix}region")
        region.touch()
        assert run.regions() == [region]
        assert run.folder.parent == home

    assert not region.exists()
    assert list(home.iterdir()) == []


def test_the_next_run_cleans_up_after_one_that_was_killed_and_after_no_other(tmp_path) -> None:
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    said: list[str] = []
    with new_run() as living:
        done = subprocess.run(
            [sys.executable, "-c", KILLED], env=environ, capture_output=True, text=True, check=False
        )
        folder, prefix = done.stdout.split()
        region = Path(f"/dev/shm/{prefix}region")
        assert region.exists()

        with new_run(said.append) as run:
            left = "cleaned up after a server that was killed; regions in shared memory: 1"
            assert said == [left]
            assert not region.exists()
            assert not Path(folder).exists()
            assert living.folder.exists()
            assert leftovers(run.folder.parent) == []


def test_what_still_runs_of_a_killed_run_is_ended(tmp_path) -> None:
    with new_run() as run:
        program = tmp_path / "triton_python_backend_stub"
        program.symlink_to("/bin/sleep")
        stub = subprocess.Popen([program, "600"])
        other = subprocess.Popen([program, "600"], cwd=run.folder)
        named = subprocess.Popen(["/bin/sh", "-c", f"sleep 600; : {run.prefix}"])
        marked = subprocess.Popen([program, "600", "600s", f"--{run.prefix}x"], stderr=-3)
        try:
            found = wait_until(lambda: run.processes() or marked.poll() is not None)
            assert found in ([marked.pid], True)
            run.clean()
            assert marked.wait(60) != 0
            assert [each.poll() for each in (stub, other, named)] == [None] * 3
        finally:
            for each in (stub, other, named, marked):
                each.kill()
                each.wait()


def test_a_folder_that_somebody_else_could_write_is_refused(home) -> None:
    home.mkdir()
    home.chmod(0o777)

    with pytest.raises(ConfigError, match="somebody else could write there"), new_run():
        pass
