"""pyACL programs in the style of public samples run unchanged on the emulator."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gepipe.emulator import install
from gepipe.errors import ConfigError
from tests.support import script_environment

PROGRAMS = Path(__file__).parent / "programs"


def run(
    program: Path | str, *args: str, options: tuple[str, ...] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    path = PROGRAMS / program
    return subprocess.run(
        [sys.executable, "-m", "gepipe.emulator", *options, str(path), *args],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=script_environment(**environment),
    )


@pytest.mark.parametrize("mode", ["strict", "compatible"])
def test_everything_may_be_released_in_del_when_the_interpreter_ends(
    mode: str, models: dict[str, str]
) -> None:
    done = run("resources.py", models["static"], options=("--mode", mode))

    assert done.stdout.splitlines() == [
        "[[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]",
        "[[3.0, 3.0, 3.0, 3.0], [3.0, 3.0, 3.0, 3.0]]",
        "released 0",
    ]
    assert done.returncode == 0
    assert len(done.stderr.splitlines()) == 1
    assert f"emulating 1 x Ascend310P3, profile 'default', {mode} mode" in done.stderr


@pytest.mark.parametrize("mode", ["strict", "compatible"])
def test_batch_gears(mode: str, models: dict[str, str]) -> None:
    done = run("dynamic_batch.py", models["batch"], options=("--mode", mode))

    assert done.stdout.splitlines() == [
        "gears [1, 2, 4]",
        "1 1 [3.0]",
        "3 4 [7.0, 7.0, 7.0]",
        "4 4 [9.0, 9.0, 9.0, 9.0]",
        "no gear: 145013",
    ]
    assert (done.returncode, len(done.stderr.splitlines())) == (0, 1)


@pytest.mark.parametrize("mode", ["strict", "compatible"])
def test_callbacks(mode: str, models: dict[str, str]) -> None:
    done = run("callbacks.py", models["static"], "--times", "4", options=("--mode", mode))

    assert done.stdout == "[1.0, 3.0, 5.0, 7.0]\n"
    assert (done.returncode, len(done.stderr.splitlines())) == (0, 1)


@pytest.mark.parametrize("mode", ["strict", "compatible"])
def test_a_pool_of_threads(mode: str, models: dict[str, str]) -> None:
    done = run("pool.py", models["static"], options=("--mode", mode))

    assert done.stdout == "True\n0\n"
    assert (done.returncode, len(done.stderr.splitlines())) == (0, 1)


@pytest.mark.parametrize("way", ["execute", "synchronize"])
def test_ctrl_c_ends_a_wait_that_would_never_end(
    way: str, models: dict[str, str], tmp_path: Path
) -> None:
    profile = tmp_path / "hang.yaml"
    profile.write_text(
        "faults: [{call: mdl.execute, hang: true}, {call: mdl.execute_async, hang: true}]\n"
    )
    command = [sys.executable, "-m", "gepipe.emulator", "--profile", str(profile)]
    with subprocess.Popen(
        [*command, str(PROGRAMS / "hang.py"), models["static"], way],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=script_environment(),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=120)
    assert output == "interrupted 0\n"
    assert process.returncode == 130
    assert "not released: model 1 (static)" in errors


def test_a_seed_repeats_a_program_s_races(tmp_path: Path) -> None:
    program = tmp_path / "race.py"
    program.write_text(
        "import acl, ctypes\n"
        "acl.init(); acl.rt.set_device(0)\n"
        "streams = [acl.rt.create_stream()[0] for _ in range(3)]\n"
        "ptr = acl.rt.malloc(64, 0)[0]; back = acl.rt.malloc_host(64)[0]\n"
        "hosts = [acl.rt.malloc_host(64)[0] for _ in streams]\n"
        "for number, host in enumerate(hosts): ctypes.memset(host, number, 64)\n"
        "for turn in range(20):\n"
        "    for host, stream in zip(hosts, streams):\n"
        "        try: acl.rt.memcpy_async(ptr, 64, host, 64, 1, stream)\n"
        "        except Exception: pass\n"
        "    for stream in streams: acl.rt.synchronize_stream(stream)\n"
        "    acl.rt.memcpy(back, 64, ptr, 64, 2); print(ctypes.string_at(back, 1)[0], end='')\n"
    )

    def race(seed: int) -> str:
        profile = tmp_path / f"{seed}.yaml"
        profile.write_text(f"seed: {seed}\n")
        return run(program, options=("--profile", str(profile))).stdout

    first = race(1)
    assert len(first) == 20
    assert race(1) == first
    assert len(set(first)) > 1
    assert race(2) != first


def test_timing_with_events(models: dict[str, str], tmp_path: Path) -> None:
    profile = tmp_path / "exact.yaml"
    profile.write_text("seed: 1\nlatency_ms: {1: 22, 8: 44.4, 32: 61.5}\n")
    options = ("--profile", str(profile), "--mode", "strict")
    done = run("timing.py", models["timing"], options=options)

    assert done.stdout == "25 ms\n"  # batch 2, between 22 ms at 1 and 44.4 ms at 8
    assert (done.returncode, len(done.stderr.splitlines())) == (0, 1)


def test_liberties_are_noted_in_compatible_mode() -> None:
    done = run("pointers.py", PYTHONWARNINGS="ignore")

    assert done.stdout.splitlines() == ["old True", "contiguous True", "new True"]
    assert done.returncode == 0
    assert done.stderr.count("note: ") == 2  # though the second rule is broken three times
    assert "note: acl.rt.memcpy at " in done.stderr
    assert "after the object was dropped" in done.stderr
    assert "kind 0 means host to host, but the addresses mean device to host" in done.stderr


def test_liberties_are_errors_in_strict_mode() -> None:
    done = run("pointers.py", options=("--mode", "strict"), PYTHONWARNINGS="ignore")

    assert done.returncode == 1
    assert "EmulatorError: acl.rt.memcpy at " in done.stderr
    assert "rule broken: acl.rt.memcpy at " in done.stderr
    assert "not released: pinned memory" in done.stderr


def test_processes_of_a_program_find_the_emulator() -> None:
    done = run("workers.py", options=("--profile", "published"))

    assert done.stdout == "[(0, 'Ascend310P3'), (1, 'Ascend310P3')]\n", done.stderr
    assert done.returncode == 0


def test_a_program_has_its_own_main_path_arguments_and_exit_code(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("where = __file__\n")
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, acl, beside\n"
        "import __main__\n"
        "print(__name__, sys.argv[1:], __main__.__file__ == __file__ == sys.argv[0])\n"
        "print(sys.path[0])\n"
        "sys.exit(7)\n"
    )
    args = ["--", "--profile", "x", "--", "-h"]
    for options in ((), ("--mode=strict",), ("--profile", "published", "--mode", "strict", "--")):
        done = run(program, *args, options=options)

        assert done.stdout.splitlines() == [f"__main__ {args} True", str(tmp_path)]
        assert done.returncode == 7


def test_every_form_of_import_finds_the_emulator(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import acl.rt\n"
        "import acl.mdl as mdl\n"
        "from acl import util\n"
        "import acl\n"
        "print(mdl is acl.mdl, util is acl.util, hasattr(acl.rt, 'nonesuch'), __spec__)\n"
    )
    assert run(program).stdout == "True True False None\n"


def test_a_program_s_traceback_is_its_own(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import acl\nacl.init()\nacl.rt.set_device(0)\nacl.rt.malloc(1.5, 0)\n")
    done = run(program)

    assert done.returncode == 1
    assert "acl.rt.malloc args parse failed" in done.stderr
    assert "not released: device 0" in done.stderr


def test_dvpp_says_that_it_is_out_of_scope(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import acl\nacl.media.dvpp_create_channel_desc()\n")
    done = run(program)

    assert done.returncode == 1
    assert "acl.media.dvpp_create_channel_desc is out of scope" in done.stderr


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--profile", "/nonexistent.yaml"), "No such file"),
        (("--profile", "nothing"), "shipped: default, published"),
    ],
)
def test_a_bad_profile_is_told(options: tuple[str, ...], text: str) -> None:
    done = run("timing.py", options=options)

    assert done.returncode == 2
    assert text in done.stderr


def test_one_import_is_enough_for_a_program_that_others_import() -> None:
    code = "import gepipe.emulator.auto, acl; print(acl.get_soc_name())"
    for choice, output in (("emulator", "Ascend310P3\n"), ("", "")):
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env=script_environment(GEPIPE_ACL=choice),
        )
        assert done.stdout == output
        assert (done.returncode == 0) == bool(output)


def test_nothing_is_installed_over_a_real_acl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "acl", sys)
    with pytest.raises(ConfigError, match="not the emulator"):
        install()
