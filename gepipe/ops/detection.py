"""The operator that turns the raw boxes of a detector into a list of what is in the picture."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from gepipe.errors import ConfigError
from gepipe.ops.labelled import Labelled
from gepipe.ops.op import Meta
from gepipe.plugins import did_you_mean

if TYPE_CHECKING:
    from gepipe.ops.boxes import Layout

_EXPECTED = (
    "[places, 5 + classes] (v5), [4 + classes, places] (v8), [places, 4 + classes] (v8_rows) "
    "or [boxes, 6] (end2end)"
)


@dataclass(frozen=True)
class Yolo(Labelled):
    """List the objects in a picture: `{"detections": [{"class", "label", "score", "box"}, …]}`.

    Reads the output of any detector that is exported as the YOLO families are: boxes in pixels of
    the model's input, and scores from 0 to 1. `box` is `[x1, y1, x2, y2]` in pixels of the
    original picture, upright: the way back through letterbox, resize, crop and pad is taken
    exactly, and what lies outside the picture is cut off. Highest score first.

    Attributes:
        confidence: Lowest score that is kept. Of v5, score is objectness x class.
        iou: Of two boxes that overlap by more than this share of their union, the one with the
            lower score is dropped.
        labels: File with the classes' names, as for top_k.
        layout: How the output is laid out: v5 for [places, 5 + classes]; v8 (also YOLO 9, 11, and
            anchor-free heads) for [4 + classes, places]; v8_rows for its transpose; end2end (also
            YOLO 10, and exports with NMS) for [boxes, 6] of corners, score and class; auto tells
            them apart by the shape and the number of labels.
        nms: class compares boxes of the same class only; agnostic compares all; soft lowers the
            score of what overlaps (Gaussian, within a class) and drops what gets below
            `confidence`; none keeps all. Not used with end2end.
        sigma: Width of the Gaussian of soft; smaller lowers more.
        top_k: Boxes with the highest scores that are compared; bounds the time an item takes.
        max_detections: Most objects that are listed.
        classes: Only these classes, by number or by label; all by default.
        output: Name of the model's output; may be left out if there is only one.
    """

    stage: ClassVar[Literal["pre", "post", "both"]] = "post"
    shorthand: ClassVar[str | None] = "confidence"
    confidence: float = 0.25
    iou: float = 0.5
    labels: Path | None = None
    layout: Literal["auto", "v5", "v8", "v8_rows", "end2end"] = "auto"
    nms: Literal["class", "agnostic", "soft", "none"] = "class"
    sigma: float = 0.5
    top_k: int = 1000
    max_detections: int = 300
    classes: tuple[int | str, ...] | None = None
    output: str | None = None

    def __post_init__(self) -> None:
        for name in ("confidence", "iou"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie between 0 and 1, not {getattr(self, name)}")
        for name in ("top_k", "max_detections"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.sigma <= 0:
            raise ValueError(f"sigma must be above 0, not {self.sigma}")
        if self.classes is not None and not self.classes:
            raise ValueError("classes is empty; leave it out for all")

    def __call__(self, value: Any, meta: Meta) -> Any:
        """Return the record.

        Raises:
            ItemError: `shape` if the output is no table of boxes.
            ConfigError: The layout or the labels do not fit the model.
        """
        from gepipe.ops import boxes, scores

        name, array = scores.pick("yolo", value, self.output)
        table = scores.one_table("yolo", name, array, "a table of boxes", may_be_empty=True)
        layout = self.layout_of(table.shape, name)
        found = boxes.decode(table, layout, self.confidence, self._wanted)
        found = found.take(slice(self.top_k))
        if layout != "end2end" and self.nms != "none":
            if self.nms == "soft":
                found = boxes.soften(found, self.sigma, self.confidence)
            else:
                agnostic = self.nms == "agnostic"
                kept = boxes.suppress(found, self.iou, self.max_detections, agnostic=agnostic)
                found = found.take(kept)
        found = boxes.to_original(found, meta).take(slice(self.max_detections))
        return {"detections": self._entries(found)}

    def layout_of(self, shape: tuple[int, ...], output: str) -> Layout:
        """Return the layout of an output, and check that the labels fit it.

        Args:
            shape: Of one item, two axes.
            output: Its name.

        Raises:
            ConfigError: It is another one, or it cannot be told apart from another.
        """
        rows, columns = shape
        count = self._labels.count if self._labels is not None else None
        layout = self._auto(rows, columns, count) if self.layout == "auto" else self.layout
        if layout is None:
            raise ConfigError(
                f"yolo: the output {output!r} is {list(shape)} for one item: boxes of a model of "
                "one class (v5), or boxes that are final (end2end)? say which: layout: …"
            )
        wide = {"v5": columns - 5, "v8": rows - 4, "v8_rows": columns - 4}
        if (layout == "end2end" and columns != 6) or wide.get(layout, 1) < 1:
            raise ConfigError(
                f"yolo: the output {output!r} is {list(shape)} for one item, which is not of the "
                f"layout {layout}; expected {_EXPECTED}"
            )
        if self._labels is not None and layout in wide:
            self._labels.check(wide[layout], output)
        return layout

    def setup(self) -> None:
        """Read the labels.

        Raises:
            ConfigError: The file cannot be read or understood, or lacks one of `classes`.
        """
        _ = self._wanted

    @staticmethod
    def _auto(rows: int, columns: int, count: int | None) -> Layout | None:
        if rows < columns:
            return "v8"
        if columns == 6 and count != 1:
            return None if count is None else "end2end"
        return "v8_rows" if count is not None and columns == 4 + count else "v5"

    def _entries(self, found: Any) -> list[dict[str, Any]]:
        names = None if self._labels is None else self._labels.names
        return [
            {
                "class": number,
                **({} if names is None else {"label": names.get(number)}),
                "score": score,
                "box": box,
            }
            for number, score, box in found.rows()
        ]

    @cached_property
    def _wanted(self) -> tuple[int, ...] | None:
        """The numbers of the wanted classes; None for all."""
        labels = self._labels
        if self.classes is None:
            return None
        numbers = {} if labels is None else {name: number for number, name in labels.names.items()}
        for each in self.classes:
            if isinstance(each, str) and each not in numbers:
                hint = "give labels" if labels is None else did_you_mean(each, list(numbers))
                raise ConfigError(f"yolo: classes: no class is called {each!r}; {hint}")
        return tuple(numbers[each] if isinstance(each, str) else each for each in self.classes)
