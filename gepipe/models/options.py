"""What a conversion can be asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from gepipe.errors import ConfigError
from gepipe.models.aipp import Aipp
from gepipe.plugins import did_you_mean

#: The chip's name that stands for the emulator.
EMULATOR: Final = "emulator"
#: Our names of precisions, and what atc calls them; None leaves atc its default, which is fp16.
PRECISIONS: Final = {
    "auto": None,
    "fp16": "force_fp16",
    "fp32": "must_keep_origin_dtype",
    "prefer_fp32": "allow_fp32_to_fp16",
    "mixed": "allow_mix_precision",
    **{
        name: name
        for name in (
            "force_fp16", "force_fp32", "cube_fp16in_fp32out", "allow_fp32_to_fp16",
            "must_keep_origin_dtype", "allow_mix_precision", "allow_mix_precision_fp16",
            "allow_mix_precision_bf16",
        )
    },
}  # fmt: skip
_OUTPUT_TYPES: Final = ("FP32", "FP16", "UINT8", "INT8")
_RANGE: Final = re.compile(r"(\d+)~(-1|\d+)")

#: An extent: a number, -1 where it is left open, or (lowest, highest).
Extent = int | tuple[int, int]


@dataclass(frozen=True)
class ConvertOptions:
    """How a model is converted.

    Attributes:
        soc: The chip, such as `Ascend310P3`; `emulator`; `auto` for the one that is here.
        gears: Batch sizes; one makes a static model.
        image_sizes: (height, width) of each image size; the batch size is the only gear, or 1.
        dims: Groups of numbers, one for each open extent of all inputs in order.
        input_shape: (input, extents) in place of what the model says.
        precision: See `PRECISIONS`.
        output_type: FP32, FP16, …, or as atc has it; empty for the model's own.
        aipp: Preprocessing that the card does, so that the input becomes uint8 pixels.
        extra: Further arguments for atc.
        default_gears: Batch sizes of a model whose batch is open, where `gears` says nothing.
        rows: (input, extents of a row, without the batch), for those that the model leaves open.
        row: The same for every input with as many axes, where `rows` says nothing; what the pre
            stage makes.
        choices: In its place, the rows that the pre stage makes, where there are several.
    """

    soc: str = "auto"
    gears: tuple[int, ...] = ()
    image_sizes: tuple[tuple[int, int], ...] = ()
    dims: tuple[tuple[int, ...], ...] = ()
    input_shape: tuple[tuple[str, tuple[Extent, ...]], ...] = ()
    precision: str = "auto"
    output_type: str = ""
    aipp: Aipp | None = None
    extra: tuple[str, ...] = ()
    default_gears: tuple[int, ...] = ()
    rows: tuple[tuple[str, tuple[int, ...]], ...] = ()
    row: tuple[int, ...] = ()
    choices: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            hint = did_you_mean(self.precision, list(PRECISIONS))
            raise ConfigError(f"unknown precision {self.precision!r}; {hint}")
        kind = self.output_type.upper()
        if kind and ":" not in kind and kind not in _OUTPUT_TYPES:
            listed = ", ".join(_OUTPUT_TYPES)
            raise ConfigError(
                f"unknown output type {self.output_type!r}; expected {listed}, or "
                "`node:index:FP16` for single outputs"
            )
        if self.image_sizes and self.dims:
            raise ConfigError(
                "image sizes and dims cannot be combined (atc: E10009); give one of them"
            )
        if len(self.gears) > 1 and (self.image_sizes or self.dims):
            other = "image sizes" if self.image_sizes else "dims"
            raise ConfigError(
                f"several batch sizes and {other} cannot be combined (atc: E10009); give one "
                "batch size, or list both in dims"
            )
        if self.dims and self.aipp:
            raise ConfigError("atc does not combine AIPP with dims; use gears or image sizes")
        for what, values in (
            ("gears", self.gears),
            ("image sizes", self.image_sizes),
            ("dims", self.dims),
        ):
            _check_gears(what, values)


def _check_gears(what: str, values: tuple[int, ...] | tuple[tuple[int, ...], ...]) -> None:
    if len(set(values)) != len(values):
        raise ConfigError(f"{what}: one of them is listed twice: {list(values)}")
    if len(values) > 100:
        raise ConfigError(f"{what}: there are {len(values)}; atc takes 100 at most (E10036)")
    if len(values) == 1 and what != "gears":
        raise ConfigError(
            f"{what}: there is only one, and atc wants 2 to 100 (E10035); fix the shape with "
            "input_shape instead"
        )
    numbers = [n for value in values for n in (value if isinstance(value, tuple) else (value,))]
    if any(number < 1 for number in numbers):
        raise ConfigError(f"{what}: expected numbers from 1, got {list(values)}")


def parse_gears(text: str) -> tuple[int, ...]:
    """Read batch sizes such as `1,4,8`.

    Raises:
        ConfigError: They are something else.
    """
    return tuple(
        sorted(_whole(each, text, "batch sizes such as 1,4,8") for each in text.split(","))
    )


def parse_image_sizes(text: str) -> tuple[tuple[int, int], ...]:
    """Read image sizes such as `416x416,608x608`, or as atc has them: `416,416;608,608`.

    Raises:
        ConfigError: They are something else.
    """
    wanted = "image sizes, height x width, such as 416x416,608x608"
    pairs = text.split(";") if ";" in text or "x" not in text else text.split(",")
    sizes = []
    for each in pairs:
        numbers = [_whole(n, text, wanted) for n in re.split(r"[x,]", each)]
        if len(numbers) != 2:
            raise ConfigError(f"expected {wanted}, got {text!r}")
        sizes.append((numbers[0], numbers[1]))
    return tuple(sizes)


def parse_dims(text: str) -> tuple[tuple[int, ...], ...]:
    """Read groups of dims such as `1,128;8,128`.

    Raises:
        ConfigError: They are something else.
    """
    wanted = "groups of dims such as 1,128;8,128"
    return tuple(
        tuple(_whole(n, text, wanted) for n in group.split(",")) for group in text.split(";")
    )


def parse_input_shape(text: str) -> tuple[tuple[str, tuple[Extent, ...]], ...]:
    """Read shapes such as `ids:-1,128;mask:-1,128`; an extent may be a range such as `1~16`.

    Raises:
        ConfigError: They are something else.
    """
    wanted = "input shapes such as `ids:-1,128;mask:1~16,128`"
    shapes = []
    for each in text.split(";"):
        name, colon, extents = each.rpartition(":")
        if not colon or not name:
            raise ConfigError(f"expected {wanted}, got {text!r}")
        shapes.append((name, tuple(_extent(n, text, wanted) for n in extents.split(","))))
    return tuple(shapes)


def _extent(word: str, text: str, wanted: str) -> Extent:
    if found := _RANGE.fullmatch(word.strip()):
        return int(found[1]), int(found[2])
    return -1 if word.strip() == "-1" else _whole(word, text, wanted)


def _whole(word: str, text: str, wanted: str) -> int:
    if not re.fullmatch(r"\s*\d{1,9}\s*", word):
        raise ConfigError(f"expected {wanted}, got {text!r}")
    return int(word)
