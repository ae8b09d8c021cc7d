"""`gepipe triton install` where nothing can be fetched, and where everything is there."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from gepipe.triton.install import install

GEPIPE = [sys.executable, "-c", "from gepipe.cli.app import main; main()"]


def run(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*GEPIPE, "triton", "install", *words],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


def test_without_an_index_it_says_what_it_misses_and_is_not_taken_for_installed(tmp_path) -> None:
    offline = {"GEPIPE_CACHE": str(tmp_path), "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull,
               "PIP_FIND_LINKS": ""}  # fmt: skip

    done = run(**offline)

    assert done.returncode == 1
    assert "error: nvidia-pytriton==0.7.0: cannot be fetched: " in done.stderr
    assert "PIP_INDEX_URL or PIP_FIND_LINKS" in done.stderr
    assert list(tmp_path.glob("triton/*/gepipe.json")) == []


def test_what_is_there_is_not_fetched_again_however_many_ask(triton_kit) -> None:
    said: list[str] = []
    found = []

    def ask() -> None:
        found.append(install(say=said.append))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == [triton_kit] * 3
    assert set(said) <= {"another process installs Triton right now; waiting for it"}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--python", "3.9"], "3.9"),
        (["--python", "/bin/true"], "not a Python that runs"),
        (["--with", "parkett"], "did you mean 'parquet'"),
        (["--requirement", "none.txt"], "none.txt: no such file or directory"),
    ],
)
def test_what_cannot_be_is_refused_at_once(tmp_path, words: list[str], complaint: str) -> None:
    done = run(*words, GEPIPE_CACHE=str(tmp_path))

    assert done.returncode == 2
    assert complaint in done.stderr
    assert not (tmp_path / "triton").exists()
