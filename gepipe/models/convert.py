"""Converts ONNX models to `.om`: through atc, or for the emulator. What was made is kept."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gepipe.errors import ConfigError, ModelLoadError
from gepipe.models.atc import run_atc, shown
from gepipe.models.emulated import convert_emulated
from gepipe.models.interruption import tidy_when_stopped
from gepipe.models.kind import kind_of, require_om
from gepipe.models.onnxfile import OnnxFile
from gepipe.models.options import ConvertOptions
from gepipe.models.plan import UNPLAIN, Plan, plan_conversion
from gepipe.models.store import Store

#: atc takes minutes for large models with many gears.
TIMEOUT_S: Final = 3600.0
_LOG: Final = "convert.log"
_AIPP: Final = "aipp.cfg"
#: Where atc leaves weights with `--external_weight=1`: beside the model, where loading looks.
WEIGHTS: Final = "weight"


@dataclass(frozen=True)
class Converted:
    """A converted model.

    Attributes:
        path: The `.om` file, in the cache.
        key: What it was made of, as a hash.
        is_new: Whether it was made now.
        soc: The chip.
        command: What atc was called with; empty for the emulator.
        seconds: How long the conversion took.
        notes: What was decided for the user.
    """

    path: Path
    key: str
    is_new: bool
    soc: str
    command: str
    seconds: float
    notes: tuple[str, ...]


def convert(
    plan: Plan,
    *,
    store: Store | None = None,
    timeout_s: float = TIMEOUT_S,
    say: Callable[[str], None] | None = None,
    mark: bool = False,
) -> Converted:
    """Convert a model, or find that this was done before.

    Args:
        plan: The conversion.
        store: Where it is kept; the default one of this user otherwise.
        timeout_s: When the conversion is ended.
        say: Told what takes long, before it begins.
        mark: Note that this process runs the model, so that the cache keeps it.

    Raises:
        ModelLoadError: It cannot be converted, and why.
        ConfigError: The cache cannot be written.
    """
    store = store or Store()
    key = plan.key
    entry, seconds = store.find(key, mark=mark), 0.0
    is_new = False
    if entry is None:

        def waits() -> None:
            if say is not None:
                say(f"another process is converting {plan.model.path}; waiting for it")

        with tidy_when_stopped(), store.lock(key, waits):
            entry = store.find(key, mark=mark)
            if entry is None:
                start = time.monotonic()
                entry = store.add(
                    key, plan.file_name, _facts(plan),
                    lambda folder: _build(plan, folder, store, timeout_s, say),
                )  # fmt: skip
                seconds, is_new = time.monotonic() - start, True
                if mark:
                    store.find(key, mark=True)
    command = str(entry.facts.get("command", ""))
    return Converted(entry.path, key, is_new, plan.soc, command, seconds, plan.notes)


def ensure_om(
    model: Path,
    options: ConvertOptions | None = None,
    *,
    say: Callable[[str], None] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Path:
    """Return a model as `.om`: itself, or what it was converted to, now or before.

    For `backend: ge` with an ONNX model. The caller's process is noted as a user of the model, so
    that the cache keeps it until the process ends.

    Args:
        model: An `.om` or ONNX file.
        options: How it is converted; `soc="emulator"` for the emulator.
        say: Told what takes long, before it begins.
        timeout_s: When the conversion is ended.

    Raises:
        ModelLoadError: It is neither, or cannot be converted.
        ConfigError: The options do not fit it, there is no atc, or the chip is not known.
    """
    if model.suffix.lower() == ".om":
        require_om(model)  # an ONNX model under this name is a mistake, and many make it
    if kind_of(model)[0] in ("om", "emulator"):
        return model
    plan = plan_conversion(model, options)
    return convert(plan, say=say, timeout_s=timeout_s, mark=True).path


def copy_to(converted: Path, output: Path) -> None:
    """Copy a converted model, with the weights that atc left beside it if it was told to.

    Others see either nothing new or all of a file.

    Raises:
        ConfigError: It cannot be written.
    """
    weights = sorted((converted.parent / WEIGHTS).glob("*"))
    try:
        for file in weights:  # named by their contents
            _copy(file, output.parent / WEIGHTS / file.name)
        _copy(converted, output)
    except OSError as error:
        raise ConfigError(f"{output} cannot be written: {error.strerror}") from error


def _copy(file: Path, output: Path) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=output.parent, prefix=".part-", delete=False) as part:
        place = Path(part.name)
    try:
        shutil.copyfile(file, place)
        place.chmod(0o644)
        place.replace(output)
    finally:
        place.unlink(missing_ok=True)


def _facts(plan: Plan) -> dict[str, Any]:
    return {
        "model": str(plan.model.path.resolve()),
        "soc": plan.soc,
        "cann": "" if plan.atc is None else plan.atc.version,
        "shapes": plan.shapes.text(),
        "gears": [list(gear) for gear in plan.shapes.gears],
        "precision": plan.options.precision,
        "aipp": plan.aipp is not None,
        "command": shown(plan.command(Path(plan.file_name).with_suffix(""), _named(plan))),
        "created": time.time(),
    }


def _named(plan: Plan) -> Path | None:
    return None if plan.aipp is None else Path(_AIPP)


def _build(
    plan: Plan,
    folder: Path,
    store: Store,
    timeout_s: float,
    say: Callable[[str], None] | None,
) -> None:
    """Make the model in a folder; a log of a failure is kept outside it."""
    target, log = folder / plan.file_name, folder / _LOG
    source = folder / "source"
    aipp = None
    if plan.aipp is not None:
        aipp = folder / _AIPP
        aipp.write_text(plan.aipp.config())
    try:
        if plan.atc is None:
            if say is not None:
                say(f"converting {plan.model.path} for the emulator")
            convert_emulated(
                plan.model, target, plan.shapes, plan.options, plan.aipp, log,
                timeout_s,
            )  # fmt: skip
        else:
            command = plan.command(target.with_suffix(""), aipp, _staged(plan.model, source))
            if say is not None:
                say(f"converting {plan.model.path} for {plan.soc}, which may take minutes:")
                say(shown(command))
            kept = store.log_file(plan.key)
            run_atc(command, plan.atc.environ, folder, kept, timeout_s)
            kept.replace(log)
            _settle(target, log)
    finally:
        for name in ("fusion_result.json", "check_result.json"):
            (folder / name).unlink(missing_ok=True)
        for name in ("kernel_meta", source.name):
            shutil.rmtree(folder / name, ignore_errors=True)


def _staged(model: OnnxFile, folder: Path) -> Path:
    """Return where atc finds a model: itself, or a copy that stands as atc needs it.

    atc follows links before it looks for weights beside the model, and takes no blanks in paths.
    """
    files = [model.path, *(model.path.parent / name for name in model.external)]
    real = model.path.resolve()
    linked = bool(model.external) and any(file.is_symlink() for file in files)
    if not linked and not UNPLAIN.search(str(real)):
        return real
    names = [UNPLAIN.sub("_", model.path.name), *model.external]
    for file, name in zip(files, names, strict=True):
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(file.resolve(), place)
        except OSError:  # another disk
            shutil.copyfile(file, place)
    return folder / names[0]


def _settle(target: Path, log: Path) -> None:
    """Give the model its name: newer versions of atc add the host's to it."""
    if not target.is_file():
        made = sorted(target.parent.glob("*.om"))
        if len(made) != 1:
            text = log.read_text(errors="replace")
            raise ModelLoadError(f"atc reported success, but wrote no model: {text[-500:]}")
        made[0].rename(target)
    with suppress(OSError):
        os.utime(target)
