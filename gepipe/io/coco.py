"""The COCO sink: detections as annotation tools and evaluations read them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar

from gepipe.errors import ItemError
from gepipe.io.journal import JournalFile, journal_path
from gepipe.io.jsonl import encode_json
from gepipe.io.source import PLUGIN_CONFIG

if TYPE_CHECKING:
    from gepipe.io.original import Origin
    from gepipe.io.records import RecordFile


#: What the result of a video's frame tells of it, see the source videos.
_OF_FRAME = ("frame", "time")


@dataclass(frozen=True)
class CocoSink:
    """COCO JSON of detections: `images`, `annotations` with `bbox` and `score`, `categories`.

    `bbox` is `[x, y, width, height]` in pixels of the original. All ids count from 1: an image's
    is its input's index + 1, a category's the number of its class + 1. Categories are those that
    were found. The image of a video's frame is called `street.mp4#frame=57`, and has its `frame`
    and `time`; the annotation of an object that is followed has its `track_id`. While the run goes
    on, results lie in `<path>.journal` as JSON lines; the file appears whole when the job is
    complete, and the journal goes.

    Args:
        path: The file to write. Failed inputs are listed beside it, in `<stem>.failures.jsonl`.
    """

    path: str

    shorthand: ClassVar[str] = "path"
    __pydantic_config__: ClassVar[dict[str, str]] = PLUGIN_CONFIG

    @property
    def encoder(self) -> DetectionEncoder:
        """Encodes a result with the size of its picture as JSON, for the journal."""
        return DetectionEncoder()

    @property
    def neighbours(self) -> tuple[Path, ...]:
        """The journal."""
        return (journal_path(self.path),)

    def open(self) -> JournalFile:
        """Open and lock the journal."""
        return JournalFile(Path(self.path), _write_coco)


@dataclass(frozen=True)
class DetectionEncoder:
    """Turns detections into JSON, with the size of the picture."""

    takes_origin: ClassVar[bool] = True

    def __call__(self, result: Any, origin: Origin) -> bytes:
        """Return the record.

        Raises:
            ItemError: `no_detections`: the result is something else.
        """
        found = result.get("detections") if isinstance(result, dict) else None
        if not isinstance(found, list):
            raise ItemError(
                "no_detections",
                "the coco sink takes results with a list of detections, as yolo makes; got "
                f"{sorted(result) if isinstance(result, dict) else type(result).__name__}",
            )
        size = [origin.meta.get("height"), origin.meta.get("width")]
        kept = {key: result[key] for key in _OF_FRAME if key in result}
        return encode_json({"detections": found, "size": size, **kept})


def _write_coco(journal: RecordFile, path: Path) -> None:
    categories: dict[int, str] = {}
    with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
        file.write('{"images": [')
        _write_list(file, _images(journal))
        file.write('],\n"annotations": [')
        _write_list(file, _annotations(journal, categories))
        file.write('],\n"categories": [')
        named = ({"id": number, "name": categories[number]} for number in sorted(categories))
        _write_list(file, named)
        file.write("]}\n")


def _write_list(file: IO[str], entries: Iterator[dict[str, Any]]) -> None:
    separator = "\n"
    for entry in entries:
        file.write(separator + json.dumps(entry, ensure_ascii=False))
        separator = ",\n"


def _records(journal: RecordFile) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line, _ in journal.lines())


def _images(journal: RecordFile) -> Iterator[dict[str, Any]]:
    for record in _records(journal):
        result = record["result"]
        height, width = result["size"]
        image = {"id": record["index"] + 1, "file_name": record["source"]}
        if height is not None:
            image |= {"width": width, "height": height}
        yield image | {key: result[key] for key in _OF_FRAME if key in result}


def _annotations(journal: RecordFile, categories: dict[int, str]) -> Iterator[dict[str, Any]]:
    number = 0
    for record in _records(journal):
        for each in record["result"]["detections"]:
            number += 1
            x1, y1, x2, y2 = each["box"]
            width, height = round(x2 - x1, 2), round(y2 - y1, 2)
            category = each["class"] + 1
            label = each.get("label")
            categories[category] = str(each["class"]) if label is None else label
            track = each.get("track")
            yield {
                "id": number,
                "image_id": record["index"] + 1,
                "category_id": category,
                "bbox": [x1, y1, width, height],
                "area": round(width * height, 2),
                "iscrowd": 0,
                "score": each["score"],
                **({} if track is None else {"track_id": track}),
            }
