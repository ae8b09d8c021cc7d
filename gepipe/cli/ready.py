"""The ready pipelines and the samples that ship with gepipe."""

from __future__ import annotations

import importlib
from pathlib import Path

from gepipe import bundle
from gepipe.cli.text import count, harmless, print_error, print_out
from gepipe.errors import ConfigError


def list_pipelines() -> None:
    """List the ready pipelines, with the first line of each."""
    names = bundle.pipeline_names()
    width = max(map(len, names))
    for name in names:
        first = bundle.pipeline_text(name).partition("\n")[0].removeprefix("#").strip()
        print_out(f"{name.ljust(width)}  {first}")
    print_out(f"`gepipe init {names[0]}` writes that one into the current folder")


def write_pipeline(name: str, *, force: bool) -> None:
    """Write a ready pipeline into the current folder.

    Raises:
        ConfigError: There is none of that name, or the file exists or cannot be written.
    """
    text = bundle.pipeline_text(name)
    path = Path(f"{name}.yaml")
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"{path} exists already; --force replaces it") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from error
    print_out(f"written: {path}")
    if name in _samples():
        print_out(f"`gepipe samples fetch {name}` brings its model and inputs, then")
    print_out(f"`gepipe run {path}` runs it")


def fetch_sample(name: str, destination: Path | None) -> None:
    """Fetch a sample and say where its files are.

    Raises:
        ConfigError: There is no such sample.
        GepipeError: It could not be fetched.
    """
    fetcher = bundle.load_fetcher()
    files = fetcher.fetch(name, destination, report=print_error)
    folder = destination or fetcher.default_destination()
    print_out(f"{name}: {count(len(files), 'file')} in {harmless(str(folder))}")


def list_samples() -> None:
    """List the samples, with what each consists of."""
    samples = _samples()
    width = max(map(len, samples))
    for name, summary in samples.items():
        print_out(f"{name.ljust(width)}  {summary}")


def _samples() -> dict[str, str]:
    fetcher = bundle.load_fetcher()
    catalogue = importlib.import_module(f"{fetcher.__package__}.catalogue")
    return {name: sample.summary for name, sample in catalogue.SAMPLES.items()}
