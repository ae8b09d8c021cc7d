"""`python -m gepipe.emulator [--profile P] [--mode M] PROGRAM.py [ARGS]`: run a pyACL program.

The program runs as `python PROGRAM.py ARGS` would run it: its folder first on the path, its own
`__main__` module that lives until the interpreter ends, its arguments and its exit code. Processes
that it starts find the emulator as well.
"""

from __future__ import annotations

import builtins
import os
import sys
import time
from argparse import ArgumentParser
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

from gepipe.emulator.installation import CHOICE, MODE, PROFILE, install
from gepipe.emulator.shared import MACHINE
from gepipe.errors import ConfigError


def main() -> None:
    """Run a program on an emulated card."""
    parser = ArgumentParser(
        prog="python -m gepipe.emulator",
        description="Run a pyACL program on an emulated Ascend NPU.",
    )
    parser.add_argument(
        "--profile", help="YAML file or shipped name: the cards (GEPIPE_ACL_PROFILE)"
    )
    parser.add_argument(
        "--mode", choices=("compatible", "strict"), help="how strict (GEPIPE_ACL_MODE)"
    )
    parser.add_argument("program", metavar="PROGRAM.py")
    parser.add_argument("args", nargs="*", metavar="ARGS")
    ours, its = _split(sys.argv[1:])
    chosen = parser.parse_args(ours)
    program = Path(chosen.program)
    if not program.is_file():
        parser.error(f"{program}: no such file")
    _tell_children(chosen.profile, chosen.mode)
    try:
        install()
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - a command line
        raise SystemExit(error.exit_code) from None
    sys.argv = [chosen.program, *its]
    if not getattr(sys.flags, "safe_path", False):  # Python 3.11: `-P`, which keeps it away
        sys.path[0] = str(program.resolve().parent)
    _execute(chosen.program)


def _split(args: list[str]) -> tuple[list[str], list[str]]:
    """Return the command's own arguments, up to the program, and the program's, untouched."""
    at = 0
    while at < len(args) and args[at].startswith("-"):
        if args[at] == "--":
            at += 1
            break
        at += 1 if "=" in args[at] or args[at] in ("-h", "--help") else 2
    return args[: at + 1], args[at + 1 :]


def _tell_children(profile: str | None, mode: str | None) -> None:
    os.environ[CHOICE] = "emulator"
    os.environ.setdefault(MACHINE, f"{os.getpid()}-{time.time_ns()}")
    if profile is not None:
        path = Path(profile)
        os.environ[PROFILE] = str(path.resolve()) if path.exists() else profile
    if mode is not None:
        os.environ[MODE] = mode
    shim = str(Path(__file__).parent / "path")
    sys.path.append(shim)  # the method `spawn` hands the path to its children
    paths = [shim, *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)


def _execute(file: str) -> None:
    """Run a file as `__main__`."""
    loader = SourceFileLoader("__main__", file)
    module = ModuleType("__main__")
    module.__file__ = file
    module.__loader__ = loader
    vars(module)["__builtins__"] = builtins
    sys.modules["__main__"] = module
    code = loader.source_to_code(Path(file).read_bytes(), file)
    exec(code, vars(module))  # noqa: S102 - what this command is for


if __name__ == "__main__":
    main()
