"""Runs atc, CANN's compiler of models, and translates its complaints."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gepipe.errors import ConfigError, ModelLoadError
from gepipe.models import cann
from gepipe.models.complaints import complaint_of
from gepipe.models.interruption import put_off
from gepipe.models.options import PRECISIONS, ConvertOptions
from gepipe.models.shapes import Shapes

_ONNX: Final = 5
_GEARS: Final = {
    "batch": ("--dynamic_batch_size", ","),
    "hw": ("--dynamic_image_size", ";"),
    "dims": ("--dynamic_dims", ";"),
}
_GRACE_S: Final = 5.0
#: Becomes the program that it is given, which is killed when the process that waits for it is: an
#: atc that nobody waits for would go on for minutes.
_TIED: Final = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
try:
    os.execv(sys.argv[1], sys.argv[1:])
except OSError as error:
    print(f"{sys.argv[1]} cannot be started: {error.strerror}")
    raise SystemExit(126)
"""
_SHOWN_LINES: Final = 12


@dataclass(frozen=True)
class Atc:
    """An atc that can be run.

    Attributes:
        program: Its path.
        version: Of CANN; empty where no file tells.
        environ: The environment that it needs.
    """

    program: Path
    version: str
    environ: Mapping[str, str]


def find_atc(environ: Mapping[str, str] | None = None, root: Path = Path("/")) -> Atc:
    """Find atc: on PATH, or in an installation of CANN.

    Args:
        environ: The environment; this process's by default.
        root: Where the file system begins.

    Raises:
        ConfigError: There is none.
    """
    environ = dict(os.environ if environ is None else environ)
    on_path = shutil.which("atc", path=environ.get("PATH", ""))
    if on_path is not None:
        program = Path(on_path)
        home = _home_of(program.resolve(), environ)
        found = cann.Cann(home, cann.version_of(home))
        known = bool(found.version) and "ASCEND_OPP_PATH" not in environ
        return Atc(program, found.version, cann.environment(found, environ) if known else environ)
    for install in cann.installs(environ, root):
        for place in ("bin/atc", "compiler/bin/atc"):
            program = install.home / place
            if os.access(program, os.X_OK):
                return Atc(program, install.version, cann.environment(install, environ))
    raise ConfigError(
        "atc is not to be found on PATH or below ASCEND_HOME_PATH; it comes with the CANN toolkit: "
        "install that and run `source /usr/local/Ascend/ascend-toolkit/set_env.sh`; without a "
        "card, convert for the emulator: --soc emulator"
    )


def _home_of(program: Path, environ: Mapping[str, str]) -> Path:
    if named := environ.get("ASCEND_HOME_PATH"):
        return Path(named)
    for folder in program.parents:
        if cann.version_of(folder):
            return folder
    return program.parent.parent


def atc_command(  # noqa: PLR0913, PLR0917 - what a command is made of
    program: Path | str,
    model: Path,
    output: Path,
    soc: str,
    shapes: Shapes,
    options: ConvertOptions,
    aipp: Path | None = None,
) -> list[str]:
    """Return the whole command.

    Args:
        program: atc.
        model: The ONNX file.
        output: Where to, without `.om`.
        soc: The chip.
        shapes: Inputs and gears.
        options: Precision and the rest.
        aipp: The file that describes AIPP.
    """
    command = [
        str(program),
        f"--framework={_ONNX}",
        f"--model={model}",
        f"--output={output}",
        f"--soc_version={soc}",
        f"--input_format={shapes.input_format}",
        f"--input_shape={shapes.text()}",
    ]
    if shapes.kind in _GEARS:
        option, sign = _GEARS[shapes.kind]
        groups = (",".join(map(str, gear)) for gear in shapes.gears)
        command.append(f"{option}={sign.join(groups)}")
    if aipp is not None:
        command.append(f"--insert_op_conf={aipp}")
    if options.output_type:
        command.append(f"--output_type={options.output_type}")
    if (mode := PRECISIONS[options.precision]) is not None:
        command.append(f"--precision_mode={mode}")
    return [*command, "--log=error", *map(_absolute, options.extra)]


def _absolute(arg: str) -> str:
    """Return an argument with the file that it names, if any, as seen from everywhere."""
    option, _, value = arg.partition("=")
    return f"{option}={Path(value).resolve()}" if value and Path(value).is_file() else arg


def shown(command: Sequence[str]) -> str:
    """Return a command as one line that can be pasted into a shell."""
    return shlex.join(command)


def run_atc(
    command: Sequence[str], environ: Mapping[str, str], folder: Path, log: Path, timeout_s: float
) -> None:
    """Run atc.

    Args:
        command: The whole command.
        environ: Its environment.
        folder: Where it may leave its files.
        log: What it prints goes here.
        timeout_s: When it is ended.

    Raises:
        ModelLoadError: It failed, and why, as far as that is known.
    """
    with log.open("wb") as out:
        out.write(f"$ {shown(command)}\n".encode())
        out.flush()
        process: subprocess.Popen[bytes] | None = None
        try:
            with put_off():
                process = subprocess.Popen(  # noqa: S603 - the command that the user asked for
                    [sys.executable, "-ISc", _TIED, *command], cwd=folder, env=dict(environ),
                    stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                    start_new_session=True,
                )  # fmt: skip
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            assert process is not None
            _end(process)
            raise ModelLoadError(
                f"atc did not finish within {timeout_s:g} s and was ended; its output is in {log}; "
                "give it more time with --timeout, or fewer gears"
            ) from None
        except BaseException:  # Ctrl-C: atc has a session of its own and would go on
            if process is not None:
                _end(process)
            raise
    if code:
        raise ModelLoadError(explain(code, log.read_text(errors="replace"), log))


def explain(code: int, output: str, log: Path) -> str:
    """Return why atc failed, and what to do.

    Args:
        code: Its exit code; negative where a signal ended it.
        output: What it printed.
        log: Where that is kept.
    """
    end = f"with exit code {code}" if code > 0 else f"by signal {signal.Signals(-code).name}"
    parts = [f"atc ended {end}"]
    complaint = complaint_of(output)
    if complaint is not None:
        named = f" ({complaint.code})" if complaint.code else ""
        parts = [
            f"atc failed: {complaint.meaning}{named}; {complaint.advice}",
            f"atc said: {complaint.text[:500]}",
        ]
    elif code == -signal.SIGKILL or code == 128 + signal.SIGKILL:
        parts.append(
            "probably memory ran out: atc needs several GiB; raise the container's memory limit, "
            "or use fewer gears"
        )
    else:
        lines = [line for line in output.splitlines()[1:] if line.strip()]
        parts += ["its last words:", *lines[-_SHOWN_LINES:]]
    parts.append(f"all of its output: {log}")
    return "\n".join(parts)


def _end(process: subprocess.Popen[bytes]) -> None:
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
            break
    with suppress(ProcessLookupError):  # what atc itself started may be slower than atc
        os.killpg(process.pid, signal.SIGKILL)
