"""What `gepipe triton serve` and `gepipe triton install` do, and how it is shown."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from gepipe.cli.text import harmless_lines, print_error, print_out
from gepipe.cli.triton_linting import describe
from gepipe.errors import ConfigError
from gepipe.spec.units import parse_duration
from gepipe.triton.install import install
from gepipe.triton.options import ServeOptions
from gepipe.triton.serve import serve


def serve_models(  # noqa: PLR0913, PLR0917 - one an option
    models: Path,
    server: Path | None,
    python: str | None,
    host: str,
    ports: Mapping[str, int],
    log: Path | None,
    hang_timeout: str,
    stop_timeout: str,
    *,
    verbose: bool,
    lint: bool,
    reload: bool,
) -> None:
    """Serve until a signal comes."""
    options = ServeOptions(
        models, server, python, host, ports, log, verbose, lint, reload,
        math.inf if hang_timeout == "never" else _seconds("--hang-timeout", hang_timeout),
        _seconds("--stop-timeout", stop_timeout),
    )  # fmt: skip
    gc.freeze()  # what was imported stays for good
    gc.enable()
    serve(options, lambda text: print_out(harmless_lines(text)), _say, describe)


def install_triton(python: str | None, extras: Sequence[str], files: Sequence[Path]) -> None:
    """Make the environment, and say where it is."""
    kit = install(python, extras=extras, requirements=files, say=_say)
    print_out(f"Triton {kit.version} is installed, with Python {kit.python_version} for its models")
    print_out(f"  server {kit.server}")
    print_out(f"  python {kit.python}")
    print_out("serve with it: gepipe triton serve MODELS_DIR")


def _say(text: str) -> None:
    print_error(f"{time.strftime('%H:%M:%S')} {harmless_lines(text)}")


def _seconds(option: str, text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ConfigError(f"{option} {text}: {error}") from None
