"""The entry point, and the one place where an exception becomes text and an exit code."""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final, NoReturn

from gepipe.cli import signals
from gepipe.cli.text import harmless_lines, occupy_standard_streams, print_error, print_out
from gepipe.errors import ConfigError, GepipeError, InternalError, WorkerStartError

if TYPE_CHECKING:
    import typer

#: Commands in the order of the help. Each is a module here that adds itself to the application;
#: only the one that is asked for is imported.
COMMANDS: Final = (
    "run",
    "check",
    "plan",
    "compare",
    "model",
    "triton",
    "schema",
    "ops",
    "init",
    "samples",
    "doctor",
)


def main() -> NoReturn:
    """Run the command line; exits by itself."""
    signals.end_quietly()
    occupy_standard_streams()
    gc.disable()  # importing makes much and frees nothing; a run enables it again
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    code = _code_of(sys.argv[1:])
    # A tidy end of the interpreter would cost a short run a tenth of its time for nothing.
    signals.leave(code)


def _code_of(asked: list[str]) -> int:
    try:
        if asked[:1] in (["run"], ["check"], ["plan"]) and not (
            {"--help", "-h"} & set(asked) or any(word.startswith("--via") for word in asked)
        ):
            _start_server()
        application(asked[0] if asked and asked[0] in COMMANDS else None)(prog_name="gepipe")
    except SystemExit as ended:  # how typer ends, after a usage error too
        if isinstance(ended.code, str):
            print_error(ended.code)
            return 1
        if ended.code == ConfigError.exit_code and _has_several_inputs(asked):
            print_error("--input takes one path: repeat it, or quote a pattern: --input 'in/*.mp4'")
        return ended.code or 0
    except InternalError as error:
        print_error(f"error: {harmless_lines(str(error))}")
        print_error("this is a bug of gepipe; please report it with the text above")
        return error.exit_code
    except GepipeError as error:
        print_error(f"error: {harmless_lines(str(error))}")
        return error.exit_code
    except Exception as error:  # noqa: BLE001 - the boundary: what arrives here is a bug, or a limit
        return _tell(error)
    return 0


def _has_several_inputs(asked: list[str]) -> bool:
    """Whether two words follow an option of one, as where a shell has expanded a pattern."""
    return any(
        option == "--input" and not {first[:1], second[:1]} & {"-"}
        for option, first, second in zip(asked, asked[1:], asked[2:], strict=False)
    )


def _tell(error: Exception) -> int:
    from gepipe.runtime.limits import is_limit, why

    if is_limit(error):
        print_error(f"error: {harmless_lines(why(error))}")
        return WorkerStartError.exit_code
    import traceback

    print_error(harmless_lines(traceback.format_exc()))
    print_error("this is a bug of gepipe; please report it with the text above")
    return InternalError.exit_code


def _start_server() -> None:
    """Have what the workers import imported while this process imports its own."""
    from gepipe.pipeline.preload import PRELOAD
    from gepipe.runtime.forkserver import start_server

    start_server(PRELOAD)


def application(only: str | None = None) -> typer.Typer:
    """Return the application with all commands, or with the one that is needed."""
    import typer

    app = typer.Typer(
        name="gepipe",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
        rich_markup_mode="markdown",
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    def show_version(wanted: bool) -> None:
        if wanted:
            from importlib.metadata import version as installed

            print_out(f"gepipe {installed('gepipe')}")
            raise typer.Exit

    @app.callback()
    def gepipe(
        version: bool = typer.Option(
            False,
            "--version",
            help="Show the version and exit.",
            is_eager=True,
            callback=show_version,
        ),
    ) -> None:
        """Inference pipelines: pre-processing, model and post-processing in one YAML file."""

    for name in COMMANDS if only is None else (only,):
        import_module(f"gepipe.cli.{name}").add_to(app)
    return app
