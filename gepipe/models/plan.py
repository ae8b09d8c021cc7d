"""Settles everything about a conversion without doing it."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Final

from gepipe.errors import ConfigError, ModelLoadError
from gepipe.models.aipp import Aipp, fit_model
from gepipe.models.atc import Atc, atc_command, find_atc
from gepipe.models.digest import digest_of
from gepipe.models.kind import require_onnx
from gepipe.models.onnxfile import OnnxFile, read_onnx
from gepipe.models.options import EMULATOR, ConvertOptions
from gepipe.models.shapes import Shapes, plan_shapes
from gepipe.models.soc import detect_soc

_FORMAT: Final = 1
#: What the manual of atc does not allow in paths.
UNPLAIN: Final = re.compile(r"[^\w./-]")
#: The part of a chip's name that is upper case, such as P3 of 310P3.
_CHIP: Final = re.compile(r"^\d{3}[a-z]\d?")
_FOR_ATC: Final = (
    "the emulator computes as the ONNX model says: precision, output type and further arguments "
    "are for atc"
)


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
    def file_name(self) -> str:
        """Name of the converted model in the cache."""
        stem = self.model.path.stem
        return f"{stem if self.atc is None else UNPLAIN.sub('_', stem)}.om"

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

    def command(
        self, output: Path, aipp: Path | None = None, model: Path | None = None
    ) -> list[str]:
        """Return the command of atc; empty for the emulator, which needs none.

        Args:
            output: Where to, without `.om`.
            aipp: The file that describes AIPP.
            model: Where the ONNX file is for atc; where the user has it by default.
        """
        if self.atc is None:
            return []
        model = model or self.model.path.absolute()
        return atc_command(
            self.atc.program, model, output, self.soc, self.shapes, self.options, aipp
        )


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
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise ModelLoadError(
                f"{model}: its weights are in {name!r}, outside its folder; save it again with the "
                "weights beside it"
            )
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
    notes = shapes.notes
    if soc == EMULATOR and (options.precision != "auto" or options.output_type or options.extra):
        notes += (_FOR_ATC,)
    return Plan(source, soc, shapes, options, aipp, atc, notes)


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
            return _spelled(f"Ascend{soc}")
        raise ConfigError(
            f"unknown chip {soc!r}; expected a name such as Ascend310P3, `emulator`, or `auto`"
        )
    return f"Ascend{_CHIP.sub(lambda found: found[0].upper(), soc[len('ascend') :])}"
