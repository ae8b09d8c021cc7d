"""`python -m gepipe.emulator [--profile P] [--mode M] PROGRAM.py [ARGS]`: run a pyACL program."""

from __future__ import annotations

import runpy
import sys
from argparse import REMAINDER, ArgumentParser
from pathlib import Path

from gepipe.emulator.installation import install
from gepipe.errors import ConfigError


def main() -> None:
    """Run a program as `python PROGRAM.py` would, on an emulated card."""
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
    parser.add_argument("args", nargs=REMAINDER, metavar="ARGS")
    chosen = parser.parse_args()
    program = Path(chosen.program)
    if not program.exists():
        parser.error(f"{program}: no such file")
    try:
        install(chosen.profile, chosen.mode)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - a command line
        raise SystemExit(error.exit_code) from None
    sys.argv = [chosen.program, *chosen.args]
    sys.path[0] = str(program.resolve().parent)
    runpy.run_path(str(program), run_name="__main__")


main()
