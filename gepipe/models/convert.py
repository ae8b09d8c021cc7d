"""Converts ONNX models to `.om`: through atc, or for the emulator. What was made is kept."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from gepipe.errors import ConfigError, ModelLoadError
from gepipe.models.aipp import Aipp, fit_model
from gepipe.models.atc import Atc, atc_command, find_atc, run_atc, shown
from gepipe.models.emulated import convert_emulated
from gepipe.models.interruption import tidy_when_stopped
from gepipe.models.kind import kind_of, require_om, require_onnx
from gepipe.models.onnxfile import OnnxFile, read_onnx
from gepipe.models.options import EMULATOR, ConvertOptions
from gepipe.models.shapes import Shapes, plan_shapes
from gepipe.models.soc import detect_soc
from gepipe.models.store import Store

#: atc takes minutes for large models with many gears.
TIMEOUT_S: Final = 3600.0
_FORMAT: Final = 1
_LOG: Final = "convert.log"
_AIPP: Final = "aipp.cfg"
_READ_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class Plan:
    """A conversion, ready to be done.

    Attributes:
        model: The ONNX file.
        soc: The chip.
        shapes: Inputs and gears.
        options: What was asked for.
        aipp: AIPP with the model's image size.
        atc: What compiles it; None for the emulator.
        notes: What was decided for the user.
    """

    model: OnnxFile
    soc: str
    shapes: Shapes
    options: ConvertOptions
    aipp: Aipp | None
    atc: Atc | None
    notes: tuple[str, ...] = field(default=())

    @property
    def key(self) -> str:
        """A hash of the model's contents, the options, and the version of what converts it."""
        maker = version("gepipe") if self.atc is None else f"CANN {self.atc.version}"
        made_of = {
            "format": _FORMAT,
            "model": digest_of(self.model.path, self.model.external),
            "name": "" if self.atc else self.model.path.stem,  # the emulator's carry it
            "soc": self.soc,
            "maker": maker,
            "atc": "" if self.atc is None or self.atc.version else _identity(self.atc.program),
            "shapes": [self.shapes.kind, self.shapes.text(), self.shapes.gears],
            "input_format": self.shapes.input_format,
            "precision": self.options.precision,
            "output_type": self.options.output_type,
            "extra": [_with_contents(arg) for arg in self.options.extra],
            "operators": os.environ.get("ASCEND_CUSTOM_OPP_PATH", ""),
            "aipp": None if self.aipp is None else asdict(self.aipp),
        }
        return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:32]

    def command(self, output: Path, aipp: Path | None = None) -> list[str]:
        """Return the command of atc; empty for the emulator, which needs none.

        Args:
            output: Where to, without `.om`.
            aipp: The file that describes AIPP.
        """
        if self.atc is None:
            return []
        model = self.model.path.resolve()
        return atc_command(
            self.atc.program, model, output, self.soc, self.shapes, self.options, aipp
        )


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


def plan_conversion(
    model: Path,
    options: ConvertOptions | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    only_show: bool = False,
) -> Plan:
    """Settle everything about a conversion without doing it.

    Args:
        model: The ONNX file.
        options: How.
        environ: The environment; this process's by default.
        only_show: It will not be done, so that atc need not be here.

    Raises:
        ModelLoadError: It is no ONNX model.
        ConfigError: The options do not fit it, there is no atc, or the chip is not known.
    """
    options = options or ConvertOptions()
    require_onnx(model)
    source = read_onnx(model)
    for name in source.external:
        if not (model.parent / name).is_file():
            raise ModelLoadError(f"{model}: its weights are in {name}, which is not beside it")
    shapes = plan_shapes(source, options)
    aipp = None
    if options.aipp is not None:
        if len(source.inputs) != 1:
            raise ConfigError(
                f"{model}: AIPP is for models with one input; this has {len(source.inputs)}"
            )
        (shape,) = shapes.inputs.values()
        plain = [each if isinstance(each, int) else -1 for each in shape]
        aipp = fit_model(options.aipp, plain, varies=shapes.kind == "hw")
    soc = detect_soc(environ) if options.soc == "auto" else _spelled(options.soc)
    atc = None
    if soc != EMULATOR:
        try:
            atc = find_atc(environ)
        except ConfigError:
            if not only_show:
                raise
            atc = Atc(Path("atc"), "", {})
    return Plan(source, soc, shapes, options, aipp, atc, shapes.notes)


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
        ConfigError: atc cannot be started, or the cache cannot be written.
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
                    key, f"{plan.model.path.stem}.om", _facts(plan),
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
    """Copy a converted model; others see either nothing new or all of it.

    Raises:
        ConfigError: It cannot be written.
    """
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=output.parent, prefix=".part-", delete=False) as part:
            place = Path(part.name)
        try:
            shutil.copyfile(converted, place)
            place.chmod(0o644)
            place.replace(output)
        finally:
            place.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{output} cannot be written: {error.strerror}") from error


def digest_of(model: Path, external: tuple[str, ...] = ()) -> str:
    """Return a hash of a model's contents, files with weights beside it included.

    Raises:
        ModelLoadError: One of them cannot be read.
    """
    digests = []
    for path in (model, *(model.parent / name for name in external)):
        try:
            stat = path.stat()
            digests.append(_digest(str(path), stat.st_ino, stat.st_size, stat.st_mtime_ns))
        except OSError as error:
            raise ModelLoadError(f"{path}: {error.strerror}") from error
    return digests[0] if len(digests) == 1 else _combined(digests)


def _combined(digests: list[str]) -> str:
    return hashlib.sha256("".join(digests).encode()).hexdigest()


@cache
def _digest(path: str, *_unchanged: int) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:  # noqa: PTH123 - the cache's key is text
        while block := file.read(_READ_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _with_contents(arg: str) -> str:
    """Return an argument, with the contents of the file that it names."""
    file = Path(arg.partition("=")[2])
    return f"{arg} {digest_of(file)}" if "=" in arg and file.is_file() else arg


def _identity(program: Path) -> str:
    """Return what tells one program from another where no version does."""
    stat = program.stat()
    return f"{program.resolve()} {stat.st_size} {stat.st_mtime_ns}"


def _spelled(soc: str) -> str:
    if soc.lower() == EMULATOR:
        return EMULATOR
    if not soc.lower().startswith("ascend"):
        if soc[:3].isdigit():
            return f"Ascend{soc}"
        raise ConfigError(
            f"unknown chip {soc!r}; expected a name such as Ascend310P3, `emulator`, or `auto`"
        )
    return f"Ascend{soc[len('ascend') :]}"


def _facts(plan: Plan) -> dict[str, Any]:
    return {
        "model": str(plan.model.path.resolve()),
        "soc": plan.soc,
        "cann": "" if plan.atc is None else plan.atc.version,
        "shapes": plan.shapes.text(),
        "gears": [list(gear) for gear in plan.shapes.gears],
        "precision": plan.options.precision,
        "aipp": plan.aipp is not None,
        "command": shown(plan.command(Path(plan.model.path.stem), _named(plan))),
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
    stem, log = plan.model.path.stem, folder / _LOG
    aipp = None
    if plan.aipp is not None:
        aipp = folder / _AIPP
        aipp.write_text(plan.aipp.config())
    try:
        if plan.atc is None:
            if say is not None:
                say(f"converting {plan.model.path} for the emulator")
            convert_emulated(
                plan.model, folder / f"{stem}.om", plan.shapes, plan.options, plan.aipp, log,
                timeout_s,
            )  # fmt: skip
        else:
            command = plan.command(folder / stem, aipp)
            if say is not None:
                say(f"converting {plan.model.path} for {plan.soc}, which may take minutes:")
                say(shown(command))
            kept = store.folder / "logs" / f"{plan.key}.log"
            kept.parent.mkdir(parents=True, exist_ok=True)
            run_atc(command, plan.atc.environ, folder, kept, timeout_s)
            kept.replace(log)
            _settle(folder, stem, log)
    finally:
        for name in ("fusion_result.json", "check_result.json"):
            (folder / name).unlink(missing_ok=True)
        shutil.rmtree(folder / "kernel_meta", ignore_errors=True)


def _settle(folder: Path, stem: str, log: Path) -> None:
    """Give the model its name: newer versions of atc add the host's to it."""
    target = folder / f"{stem}.om"
    if not target.is_file():
        made = sorted(folder.glob("*.om"))
        if len(made) != 1:
            text = log.read_text(errors="replace")
            raise ModelLoadError(f"atc reported success, but wrote no model: {text[-500:]}")
        made[0].rename(target)
    with suppress(OSError):
        os.utime(target)
