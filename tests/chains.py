"""What the tests of chains share: pictures of grey squares, and a pipeline that reads each square.

A picture is a row of squares of 8 by 8 pixels. The first model looks at the whole, a function finds
the squares by the picture's width, and the second model gives the mean of each: its grey value.
Workers import this module, so it imports nothing heavy at its top.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gepipe
from gepipe.errors import ItemError
from gepipe.ops.crop import Crop, Whole
from gepipe.ops.decode import DecodeImage
from gepipe.ops.gather import Gather
from gepipe.ops.resize import Resize
from gepipe.ops.tensor import ToTensor
from gepipe.ops.user import Python
from gepipe.spec.model import PipelineSpec
from tests.support import onnx_model, pause

SIDE = 8
#: Grey values of squares that something happens to, and pictures that are not split, by squares.
BROKEN, DEADLY, SLOW = 13, 66, 77
UNSPLIT = 7


def picture(values: Sequence[int]) -> bytes:
    """Return a PNG of a row of squares; without any it is narrower than one."""
    import cv2
    import numpy as np

    row = np.repeat(np.array(values, np.uint8), SIDE) if values else np.zeros(4, np.uint8)
    pixels = np.repeat(np.tile(row, (SIDE, 1))[..., None], 3, axis=2)
    return bytes(cv2.imencode(".png", pixels)[1].tobytes())


def files(folder: Path, pictures: Sequence[Sequence[int]]) -> list[str]:
    """Write pictures and return their paths."""
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{number:05}.png" for number in range(len(pictures))]
    for path, values in zip(paths, pictures, strict=True):
        path.write_bytes(picture(values))
    return [str(path) for path in paths]


def mean_model(path: Path, width: int | str = 4, batch: int | str = "n") -> Path:
    """Write a model that gives the mean of a picture of any width, or of one."""
    return onnx_model(
        path,
        [("ReduceMean", ["x"], ["y"], {"axes": [1, 2, 3], "keepdims": 0})],
        {"x": ("float32", [batch, 3, 4 if width == 4 else SIDE, width])},
        {"y": ("float32", [batch])},
    )


def squares(outputs: Any, meta: Any) -> Any:
    """Find the squares of a picture."""
    count = meta["width"] // SIDE
    if count == UNSPLIT:
        raise ItemError("unsplit", "on purpose")
    places = [{"box": [SIDE * i, 0, SIDE * i + SIDE, SIDE]} for i in range(count)]
    return {"bright": bool(outputs["y"] > 50), "squares": places}


def heavy_squares(outputs: Any, meta: Any) -> Any:
    """Find the squares, and much to say of each."""
    made = squares(outputs, meta)
    for place in made["squares"]:
        place["note"] = "n" * (15 << 10)
    return made


def light(record: Any) -> Any:
    """Leave out what was said of the squares, in some time."""
    pause(0.1)
    for place in record["squares"]:
        del place["note"]
    return record


def grey(outputs: Any, meta: Any) -> Any:  # noqa: ARG001 - a function of post
    """Read a square."""
    value = round(float(outputs["y"]))
    if value == BROKEN:
        raise ItemError("broken", "on purpose")
    return {"grey": value}


def none_grey(outputs: Any, meta: Any) -> Any:  # noqa: ARG001 - a function of post
    """Read no square."""
    raise ItemError("broken", "on purpose")


def unfindable(record: Any) -> Any:
    """Look for what is not there."""
    return record["nothing"]


def flat(picture: Any, meta: Any) -> Any:  # noqa: ARG001 - a function of pre
    """Return no picture."""
    return picture[0, 0]


def opened_image(content: bytes) -> Any:
    """Decode a picture by itself."""
    import cv2
    import numpy as np

    return cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)


def found(record: Any) -> Any:
    """Say of an item what sinks that draw take."""
    return {
        "detections": [
            {"class": 0, "label": str(part["grey"]), "score": 1.0, "box": part["box"]}
            for part in record["squares"]
        ]
    }


def suffer(picture: Any, meta: Any) -> Any:  # noqa: ARG001 - a function of pre
    """Die or wait over some squares."""
    value = int(picture[0, 0, 0])
    if value == DEADLY:
        os.kill(os.getpid(), signal.SIGKILL)
    if value == SLOW:
        pause(0.02)
    return picture


def hang(picture: Any, meta: Any) -> Any:  # noqa: ARG001 - a function of pre
    """Never end over some squares."""
    if int(picture[0, 0, 0]) == SLOW:
        pause(600)
    return picture


def chain(folder: Path, **keys: Any) -> PipelineSpec:
    """Return the pipeline.

    Args:
        folder: Where its models are written.
        keys: Changes: `batch`, `parts` (rows of a batch of each leg), `widths` for parts of several
            widths, `find` (what finds squares), `post` (operators), `whole` for the second model to
            look at all; and keys of the pipeline.
    """
    widths = keys.pop("widths", ())
    whole = keys.pop("whole", False)
    find = keys.pop("find", "tests.chains:squares")
    cut = Crop(height=SIDE, widths=widths, fill=0) if widths else Crop()
    # What a function makes is not known before it runs, so that sizes could not be told.
    made = [] if widths else [Python("tests.chains:suffer"), Resize((4, 4))]
    first = mean_model(folder / "first.onnx")
    second = mean_model(folder / "second.onnx", "w") if widths else first
    return PipelineSpec(
        stages=[
            {"name": "preprocess", "threads": 1, "batch_size": keys.pop("batch", 4),
             "ops": [DecodeImage(), Resize((4, 4)), ToTensor()]},
            {"name": "look", "role": "infer", "model": keys.pop("first", first), "instances": 1},
            {"name": "cut", "role": "mid", "threads": 1, "stream_count": 1,
             "batch_size": keys.pop("parts", 4),
             "ops": [Python(find), Whole() if whole else cut, *made, ToTensor()]},
            {"name": "read", "role": "infer", "model": keys.pop("second", second), "instances": 1},
            *keys.pop("more", ()),
            {"name": "postprocess", "stream_count": 1,
             "ops": keys.pop("post", [Python("tests.chains:grey"), Gather()])},
        ],
        **keys,
    )  # fmt: skip


def expected(values: Sequence[int]) -> dict[str, Any]:
    """Return what the pipeline makes of a picture."""
    return {
        "bright": bool(values) and sum(values) / len(values) > 50,
        "squares": [
            {"box": [SIDE * i, 0, SIDE * i + SIDE, SIDE], **_part(value)}
            for i, value in enumerate(values)
        ],
    }


def _part(value: int) -> dict[str, Any]:
    if value == BROKEN:
        return {"failure": {"stage": "postprocess", "kind": "broken", "error": "on purpose"}}
    if value == DEADLY:
        killed = "killed by SIGKILL (by hand, or by the kernel when memory ran out)"
        error = f"cut worker {killed}, twice, while on this item"
        return {"failure": {"stage": "cut", "kind": "crash", "error": error}}
    return {"grey": value}


def opened(folder: Path, **keys: Any) -> gepipe.Pipeline:
    """Return the pipeline, to be run."""
    return gepipe.Pipeline(chain(folder, **keys))
