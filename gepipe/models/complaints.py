"""What atc's messages mean, and what to do about them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Complaint:
    """A message of atc, translated.

    Attributes:
        code: Such as `E10035`; empty where there is none.
        text: atc's own words.
        meaning: What it means.
        advice: What to do.
    """

    code: str
    text: str
    meaning: str
    advice: str


_KERNELS: Final = (
    "use a newer CANN, or another opset or data type at export; look whether ASCEND_OPP_PATH is "
    "right and the kernels package for the chip is installed (gepipe doctor)"
)
_PYTHON: Final = (
    "install what the message names into the Python that atc uses; older CANN needs `numpy<2` "
    "(np.float_ was removed)"
)
_FIT: Final = (
    "the first ERROR in the log tells more; often CANN, driver and chip do not fit together, or "
    "two versions of CANN are mixed (gepipe doctor)"
)
_CODES: Final = {
    "E10001": ("a value of an option is invalid", "look at the value that the message names"),
    "E10003": ("an option has a bad value", "look at the option that the message names"),
    "E10007": ("a required option is missing", "run the shown command with it to find out which"),
    "E10009": (
        "gears of several kinds were asked for at once",
        "give only one of --gears, --image-sizes, --dims, or ranges in --input-shape",
    ),
    "E10011": (
        "a shape has open extents, but no gears were given",
        "give --gears, --image-sizes or --dims, or fix the shape with --input-shape",
    ),
    "E10012": ("a shape has too few extents", "give every axis of the input in --input-shape"),
    "E10016": (
        "there is no such node in the graph",
        "gepipe model inspect lists the names; exporters sometimes change them",
    ),
    "E10018": (
        "only the batch may be open with batch gears",
        "fix the other extents with --input-shape, or use --dims",
    ),
    "E10035": ("there are fewer than 2 gears", "give at least two, or one fixed shape"),
    "E10036": ("there are more than 100 gears", "give at most 100"),
    "E10041": (
        "the model file could not be loaded",
        "check it with `gepipe model inspect`; files with external weights must lie beside it",
    ),
    "E10501": (
        "this CANN has no such operator",
        _KERNELS,
    ),
    "EZ3003": (
        "no kernel of this CANN runs an operator of the model on this chip",
        _KERNELS,
    ),
    "E13000": (
        "a path is invalid",
        "use letters, digits, - and _ in the paths of the model and of GEPIPE_CACHE",
    ),
    "E13001": ("a file could not be opened", "look at its permissions"),
    "E13015": ("a file has an impossible size", "check the model with `gepipe model inspect`"),
    "E13023": (
        "the converted model would be larger than allowed",
        "keep weights outside: `--extra=--external_weight=1`",
    ),
    "E13025": ("an input tensor is invalid", "look at the input that the message names"),
    "EC0010": (
        "a Python module that atc needs does not import",
        _PYTHON,
    ),
}
_ONNX: Final = (
    "the data of the ONNX model is not accepted",
    "export it again with another opset, and check it with `gepipe model inspect`",
)
_INNER: Final = (
    "something failed inside CANN",
    _FIT,
)
#: Messages without a code.
_WORDS: Final = (
    (
        re.compile(r"error while loading shared libraries: (\S+?):"),
        "a library of CANN is not found",
        "run `source /usr/local/Ascend/ascend-toolkit/set_env.sh` first, in services as well",
    ),
    (
        re.compile(r"np\.float_|module 'numpy' has no attribute"),
        "CANN's Python parts do not work with this NumPy",
        "install `numpy<2` into the Python that atc uses",
    ),
    (
        re.compile(r"soc_?version.{0,60}(?:invalid|not support|unsupport)", re.IGNORECASE),
        "this CANN does not know the chip",
        "look at the name with `npu-smi info`; expected one such as Ascend310P3",
    ),
    (
        re.compile(r"No space left on device"),
        "the disk is full",
        "make room, or set GEPIPE_CACHE to another folder",
    ),
    (
        re.compile(r"MemoryError|std::bad_alloc|Cannot allocate memory"),
        "memory ran out",
        "atc needs several GiB: raise the container's memory limit, or use fewer gears",
    ),
)
_CODE: Final = re.compile(r"\b(E\d{5}|E[A-Z]\d{4}|E[A-Z]{2}\d{4})\b")
_INNER_CODE: Final = re.compile(r"E19999|E[A-Z]9999")


def complaint_of(output: str) -> Complaint | None:
    """Return what atc complains about, the most telling message first; None if nothing is known.

    Args:
        output: What atc printed.
    """
    lines = output.splitlines()
    known: list[Complaint] = []
    inner: list[Complaint] = []
    for place, line in enumerate(lines):
        for code in _CODE.findall(line):
            text = _whole(lines, place)
            if _INNER_CODE.fullmatch(code):
                inner.append(Complaint(code, text, *_INNER))
            elif code in _CODES:
                known.append(Complaint(code, text, *_CODES[code]))
            elif "E16001" <= code <= "E16005":
                known.append(Complaint(code, text, *_ONNX))
    if known:
        return known[0]
    for pattern, meaning, advice in _WORDS:
        if found := pattern.search(output):
            line = next(line for line in lines if found[0].splitlines()[0] in line)
            return Complaint("", line.strip(), meaning, advice)
    return inner[0] if inner else None


def _whole(lines: list[str], place: int) -> str:
    """Return a message with the line behind it, where it goes on."""
    text = lines[place].strip()
    if len(text) < 12 and place + 1 < len(lines):
        text = f"{text} {lines[place + 1].strip()}"
    return text
