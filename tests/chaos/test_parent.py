"""The supervising process is interrupted and killed: nobody is left, and resuming is exact."""

from __future__ import annotations

import json
import os
import pty
import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from tests.support import (
    doubling_model,
    family_of,
    is_alive,
    pause,
    python,
    script_environment,
    wait_until,
)

pytestmark = pytest.mark.chaos

ROWS = 160
BAD = (7, 50, 51, 120)
OPS = """
import os, threading
def check(row):
    if row[0] in {bad}:
        raise ValueError(f"row {{row[0]:g}} is bad")
    return row
def name(outputs, meta):
    threading.Event().wait(float(os.environ.get("GEPIPE_TEST_DELAY", "0")))
    return {{"sum": float(outputs["y"].sum())}}
def chatty(outputs, meta):
    print("a word")
    os.system("echo a word")
    os.write(1, b"a word\\n")
    return name(outputs, meta)
def hang(outputs, meta):
    threading.Event().wait(600)
"""
YAML = """
pipeline:
  name: chaos
  source: {{npy: rows.npy}}
  stages:
    - {{name: preprocess, threads: 2, batch_size: 4, ops: [{{python: ./ops.py:check}}]}}
    - {{name: inference, model: model.onnx}}
    - {{name: postprocess, stream_count: 1, ops: [{{python: "./ops.py:{post}"}}]}}
  sink: {{jsonl: out.jsonl}}
"""
COMMAND = [sys.executable, "-c", "from gepipe.cli.app import main; main()", "run"]


def make(folder: Path, post: str = "name") -> Path:
    rows = np.zeros((ROWS, 4), np.float32)
    rows[:, 0] = np.arange(ROWS)
    np.save(folder / "rows.npy", rows)
    doubling_model(folder / "model.onnx")
    (folder / "ops.py").write_text(OPS.format(bad=BAD))
    (folder / "chaos.yaml").write_text(YAML.format(post=post))
    return folder


def started(
    folder: Path, *options: str, delay_s: float = 0.004, **extra: str
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*COMMAND, str(folder / "chaos.yaml"), *(options or ["--quiet"])],
        env=script_environment(GEPIPE_TEST_DELAY=str(delay_s), **extra),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
    )


def finished(process: subprocess.Popen[bytes], timeout_s: float = 120) -> tuple[int, str]:
    out, err = process.communicate(timeout=timeout_s)
    assert b"tracker" not in err, err
    assert b"leaked" not in err, err
    return process.returncode, (out + err).decode()


def results(folder: Path) -> tuple[bytes, bytes]:
    return tuple(
        (folder / name).read_bytes() if (folder / name).exists() else b""
        for name in ("out.jsonl", "out.failures.jsonl")
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> tuple[bytes, bytes]:
    folder = make(tmp_path_factory.mktemp("undisturbed"))
    code, text = finished(started(folder, delay_s=0))
    assert code == 3, text
    out, failures = results(folder)
    assert [json.loads(line)["index"] for line in failures.splitlines()] == list(BAD)
    assert len(out.splitlines()) == ROWS - len(BAD)
    return out, failures


def until_some_results(folder: Path, least: int = 1) -> None:
    wait_until(lambda: results(folder)[0].count(b"\n") >= least)


def assert_prefix(folder: Path, whole: tuple[bytes, bytes]) -> None:
    for got, all_of_it in zip(results(folder), whole, strict=True):
        assert all_of_it.startswith(got)


def assert_nobody_is_left(family: set[int]) -> None:
    wait_until(lambda: not any(map(is_alive, family)))


def test_a_normal_run_says_nothing_of_trackers(tmp_path, undisturbed) -> None:
    process = started(make(tmp_path), delay_s=0)

    code, text = finished(process)

    assert code == 3, text
    assert results(tmp_path) == undisturbed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("group", [False, True])
def test_interrupted_run_ends_with_a_prefix_and_is_resumed(
    tmp_path, undisturbed, number, group
) -> None:
    folder = make(tmp_path)
    process = subprocess.Popen(
        [*COMMAND, str(folder / "chaos.yaml"), "--quiet"],
        env=script_environment(GEPIPE_TEST_DELAY="0.05"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        start_new_session=True,
    )
    until_some_results(folder, 10)
    family = family_of(process.pid)

    # A terminal sends Ctrl-C to everybody, the fork server and the workers included.
    (os.killpg if group else os.kill)(process.pid, number)
    code, text = finished(process)

    if number == signal.SIGINT or not group:
        assert code == 130, text
    assert_nobody_is_left(family)
    assert_prefix(folder, undisturbed)
    assert 10 <= results(folder)[0].count(b"\n") < ROWS - len(BAD)
    code, text = finished(started(folder, "--resume", delay_s=0))
    assert code == 3, text
    assert results(folder) == undisturbed


@pytest.mark.parametrize("post", ["name", "hang"])
@pytest.mark.parametrize("gap_s", [0.0, 0.05])
def test_second_interrupt_ends_at_once(tmp_path, post, gap_s) -> None:
    process = started(make(tmp_path, post), delay_s=0.05)
    wait_until(lambda: (tmp_path / "out.job.json").exists())  # noqa: PLW0108
    pause(0.5)
    family = family_of(process.pid)

    process.send_signal(signal.SIGINT)
    pause(gap_s)
    process.send_signal(signal.SIGINT)
    code, _ = finished(process)

    assert code == 130
    assert_nobody_is_left(family)


@pytest.mark.parametrize("seed", range(8))
def test_run_killed_at_a_random_moment_is_resumed_byte_equal(tmp_path, undisturbed, seed) -> None:
    rng = random.Random(seed)
    folder = make(tmp_path)
    code, kills = None, 0
    while code is None:
        process = started(folder, *(["--resume"] * (kills > 0)), delay_s=0.004)
        if kills < 2:
            pause(rng.uniform(0.15, 1.0))
        else:
            process.wait(120)
        family = family_of(process.pid)
        process.kill()
        code, text = finished(process)
        code = None if code == -signal.SIGKILL else code
        kills += 1
        assert_nobody_is_left(family)
        assert_prefix(folder, undisturbed)

    assert code == 3, text
    assert results(folder) == undisturbed


def test_folder_for_temporary_files_may_have_a_long_name(tmp_path, undisturbed) -> None:
    temporary = tmp_path / ("long" * 30)
    temporary.mkdir()

    code, text = finished(started(make(tmp_path), delay_s=0, TMPDIR=str(temporary)))

    assert code == 3, text
    assert results(tmp_path) == undisturbed
    assert not list(temporary.iterdir())


@pytest.mark.parametrize("post", ["name", "hang"])
def test_killed_parent_leaves_nobody_even_when_a_stage_hangs(tmp_path, post) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process = started(make(tmp_path, post), delay_s=0.05, TMPDIR=str(temporary))
    wait_until(lambda: len(family_of(process.pid)) >= 7)
    pause(0.3)
    family = family_of(process.pid)

    process.kill()
    finished(process)

    assert_nobody_is_left(family)
    wait_until(lambda: not list(temporary.iterdir()))


def test_resuming_repeats_no_finished_work(tmp_path, undisturbed) -> None:
    folder = make(tmp_path)
    process = started(folder, delay_s=0.004)
    until_some_results(folder, 40)
    process.kill()
    finished(process)
    done = results(folder)[0].count(b"\n")

    code, text = finished(started(folder, "--resume", delay_s=0))

    assert code == 3, text
    assert done >= 40
    assert results(folder) == undisturbed


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda _: None, None),
        (
            lambda folder: (folder / "chaos.yaml").write_text(
                YAML.format(post="name").replace("batch_size: 4", "batch_size: 5")
            ),
            "batch_size",
        ),
        (
            lambda folder: np.save(folder / "rows.npy", np.zeros((ROWS + 1, 4), np.float32)),
            "input",
        ),
    ],
)
def test_resume_refuses_what_was_changed_and_names_it(tmp_path, undisturbed, change, named) -> None:
    folder = make(tmp_path)
    process = started(folder)
    until_some_results(folder, 4)
    process.kill()
    finished(process)
    before = results(folder)
    change(folder)

    code, text = finished(started(folder, "--resume", delay_s=0))

    if named is None:
        assert (code, results(folder)) == (3, undisturbed)
    else:
        assert code == 2, text
        assert named in text
        assert results(folder) == before


def test_run_that_ends_by_itself_while_workers_crash_is_quiet_about_memory(tmp_path) -> None:
    folder = make(tmp_path)
    process = started(folder, "--json", delay_s=0.02)
    until_some_results(folder, 8)
    server = [p for p in family_of(process.pid) if len(family_of(p)) > 3 and p != process.pid]
    for pid in family_of(server[0]) - set(server):
        os.kill(pid, signal.SIGKILL)

    code, text = finished(process)

    assert code == 3
    assert "killed by SIGKILL" in text
    assert results(folder)[0].count(b"\n") == ROWS - len(BAD)


def test_run_that_was_stopped_for_longer_than_a_limit_goes_on_as_if_nothing_was(
    tmp_path, undisturbed
) -> None:
    folder = make(tmp_path)
    text = (folder / "chaos.yaml").read_text()
    text = text.replace("batch_size: 4", "batch_size: 4, timeout: 2s")
    (folder / "chaos.yaml").write_text(text.replace("count: 1", "count: 1, timeout: 2s"))
    process = started(folder, "--json", delay_s=0.02)
    until_some_results(folder, 8)
    family = family_of(process.pid)

    for pid in family:  # as Ctrl-Z does, or a frozen container
        os.kill(pid, signal.SIGSTOP)
    pause(4.5)
    for pid in sorted(family):  # the supervisor first
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        pause(0.05)
    code, text = finished(process)

    assert code == 3, text
    assert "exceeded" not in text
    assert results(folder) == undisturbed


def test_what_user_code_prints_does_not_get_into_the_results(tmp_path, undisturbed) -> None:
    process = started(make(tmp_path, "chatty"), "--json", delay_s=0)
    out, err = process.communicate(timeout=120)

    assert process.returncode == 3, err
    assert json.loads(out)["results"] == ROWS - len(BAD)
    assert err.count(b"a word") == 3 * (ROWS - len(BAD))
    assert results(tmp_path) == undisturbed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_command_that_ends_at_any_early_moment_leaves_no_folder(tmp_path, number) -> None:
    folder = make(tmp_path)
    # Of a short name: a socket below the test's own folder might have too long a one.
    with TemporaryDirectory(prefix="gepipe-test-", dir="/tmp") as name:
        temporary = Path(name)
        for _ in range(6):
            with started(folder, TMPDIR=name) as process:
                try:
                    wait_until(lambda: list(temporary.glob("pymp-*/*")))  # the server's socket
                    pause(_ * 0.02)
                    family = family_of(process.pid)
                    process.send_signal(number)
                    finished(process)
                finally:
                    process.kill()
            assert_nobody_is_left(family)

            wait_until(lambda: not list(temporary.iterdir()))


def test_cursor_is_shown_after_a_second_interrupt(tmp_path) -> None:
    folder = make(tmp_path, "hang")
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ.update(script_environment(TERM="xterm"))
        os.execv(sys.executable, [*COMMAND, str(folder / "chaos.yaml")])
    shown = b""
    with suppress(OSError):  # the end of a terminal
        while part := os.read(fd, 65536):
            before, shown = shown, shown + part
            if b"\x1b[?25l" in shown and b"\x1b[?25l" not in before:
                os.kill(pid, signal.SIGINT)
                os.kill(pid, signal.SIGINT)
    os.close(fd)

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) in (130, -signal.SIGINT)
    assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"\x1b[?25l")


@pytest.mark.parametrize("limit", [8, 12, 16, 22])
def test_too_few_descriptors_are_told_in_words(tmp_path, limit) -> None:
    folder = make(tmp_path)
    command = ["sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh", *COMMAND]
    done = subprocess.run(
        [*command, str(folder / "chaos.yaml"), "--quiet"],
        env=script_environment(),
        capture_output=True,
        check=False,
        timeout=120,
        cwd=folder,
    )

    assert done.returncode == 4, done.stderr
    assert b"raise `ulimit -n`" in done.stderr
    assert b"bug" not in done.stderr


def test_current_folder_that_is_gone_is_told_in_words(tmp_path) -> None:
    folder = make(tmp_path)
    gone = tmp_path / "gone"
    gone.mkdir()
    script = folder / "command.py"  # with -c, Python 3.13.0 itself looks for the current folder
    script.write_text("from gepipe.cli.app import main\nmain()\n")
    command = [*python(script), "run", str(folder / "chaos.yaml")]
    done = subprocess.run(
        ["sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh", *command],
        env=script_environment(),
        capture_output=True,
        check=False,
        timeout=120,
        cwd=gone,
    )

    assert done.returncode == 4
    assert b"current folder does not exist" in done.stderr
    assert b"Traceback" not in done.stderr


def test_thread_that_cannot_be_started_is_told_in_words(monkeypatch, capsys) -> None:
    from gepipe.cli import app

    def no_thread(_preload) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("gepipe.runtime.forkserver.start_server", no_thread)

    assert app._code_of(["run", "x.yaml"]) == 4
    assert "raise `ulimit -u`" in capsys.readouterr().err


def test_missing_folder_for_temporary_files_is_told_in_words(tmp_path) -> None:
    folder = make(tmp_path)
    script = (
        "import tempfile; tempfile._candidate_tempdir_list = lambda: ['/nowhere']; "
        "from gepipe.cli.app import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "run", str(folder / "chaos.yaml")],
        env=script_environment(),
        capture_output=True,
        check=False,
        timeout=120,
        cwd=folder,
    )

    assert done.returncode == 4
    assert b"set TMPDIR" in done.stderr
    assert b"Traceback" not in done.stderr
