"""Hand-written loops over a video: they decode, detect, draw, write an MP4. See `loops`.

They decode with OpenCV, whose way to BGR is the fastest there is in Python, and encode with PyAV,
because what OpenCV writes plays in no browser. The encoder is set as gepipe sets its own.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import av
import cv2
import numpy as np
import onnx_loops
from harness import ROOT
from latency_table import LatencyTable

from gepipe.engines.engine import EngineOptions
from gepipe.runtime import tuning

MODEL = ROOT / "samples" / "models" / "nanodet_g.onnx"
LABELS = ROOT / "samples" / "models" / "coco_labels.json"
SIDE = 416
PLACES = 3549
MEAN = np.array([103.53, 116.28, 123.675], np.float32)
STD = np.array([57.375, 57.12, 58.395], np.float32)
CONFIDENCE, IOU = 0.4, 0.5
PRESET, CRF = "veryfast", "23"
TICK = Fraction(1, 12800)
CORES = 2
_AHEAD = 16  # frames that a thread may be ahead of the next

Found = list[tuple[int, float, list[int]]]
Model = Callable[[np.ndarray], np.ndarray]


class Frame(NamedTuple):
    """A decoded picture, (height, width, 3) BGR, and when it is shown."""

    image: np.ndarray
    time_s: float


def decode(path: str, frames: int) -> Iterator[Frame]:
    """Yield the first frames of a file."""
    capture = cv2.VideoCapture(path)
    for _ in range(frames):
        good, image = capture.read()
        if not good:
            break
        yield Frame(image, capture.get(cv2.CAP_PROP_POS_MSEC) / 1e3)
    capture.release()


def onnx(threads: int) -> Model:
    """Return the detector on ONNX Runtime."""
    session = onnx_loops.session(threads, model=str(MODEL))
    name = session.get_inputs()[0].name
    return lambda batch: session.run(None, {name: batch})[0]


def accelerator(batch: int, latency_s: float, recorded: str) -> Model:
    """Return the detector on the latency table, which gives back what was recorded."""
    shapes = {
        "inputs": {"images": ["float32", 3, SIDE, SIDE]},
        "outputs": {"output0": ["float32", 84, PLACES]},
    }
    extra = {"table": {batch: latency_s}, "recorded": recorded, **shapes}
    engine = LatencyTable(EngineOptions(extra=extra))

    def infer(rows: np.ndarray) -> np.ndarray:
        outputs = np.empty((len(rows), 84, PLACES), np.float32)
        engine.collect(engine.submit({"images": rows}, {"output0": outputs}, len(rows)))
        return outputs

    return infer


class Letterbox:
    """Fits frames into the model's square, and boxes back into the frame."""

    def __init__(self) -> None:
        self._square = np.full((SIDE, SIDE, 3), 114, np.uint8)
        self._work = np.empty((SIDE, SIDE, 3), np.float32)

    def write(self, image: np.ndarray, row: np.ndarray) -> None:
        """Write the tensor of a frame into its row of the batch, (3, 416, 416) float32."""
        height, width, top, left, _ = self.place(image)
        inside = self._square[top : top + height, left : left + width]
        cv2.resize(image, (width, height), dst=inside)
        np.subtract(self._square, MEAN, out=self._work)
        np.divide(self._work, STD, out=self._work)
        row[:] = self._work.transpose(2, 0, 1)

    @staticmethod
    def place(image: np.ndarray) -> tuple[int, int, int, int, float]:
        """Return height, width, top, left of the frame in the square, and its scale."""
        high, wide = image.shape[:2]
        scale = min(SIDE / high, SIDE / wide)
        height, width = round(high * scale), round(wide * scale)
        return height, width, (SIDE - height) // 2, (SIDE - width) // 2, scale


def objects(output: np.ndarray, image: np.ndarray) -> Found:
    """Return class, score and corners of what the detector found in a frame; (84, places)."""
    best = output[4:].max(axis=0)
    places = np.flatnonzero(best >= CONFIDENCE)
    classes = output[4:, places].argmax(axis=0)
    scores, centres = best[places], output[:4, places]
    _, _, top, left, scale = Letterbox.place(image)
    corners = np.concatenate([centres[:2] - centres[2:] / 2, centres[2:]])
    corners[:2] -= [[left], [top]]
    boxes = (corners / scale).T
    kept = cv2.dnn.NMSBoxesBatched(
        boxes.tolist(), scores.tolist(), classes.tolist(), CONFIDENCE, IOU
    )
    return [
        (int(classes[at]), float(scores[at]), [round(value) for value in boxes[at]]) for at in kept
    ]


class Artist:
    """Draws what was found, as much as gepipe does: what a picture holds is to be encoded."""

    def __init__(self) -> None:
        self._names = json.loads(Path(LABELS).read_text(encoding="utf-8"))
        random = np.random.default_rng(0)
        self._colors = random.integers(64, 255, (80, 3)).tolist()

    def draw(self, image: np.ndarray, found: Found) -> None:
        """Draw boxes with a dark edge, and labels on plates, into a frame."""
        for number, _, (x, y, width, height) in found:
            corners = (x, y), (x + width, y + height)
            cv2.rectangle(image, *corners, (0, 0, 0), 5)
            cv2.rectangle(image, *corners, self._colors[number], 3)
        for number, score, (x, y, _, _) in found:
            words = f"{self._name(number)} {score:.0%}"
            (wide, high), base = cv2.getTextSize(words, cv2.FONT_HERSHEY_SIMPLEX, 0.75, 1)
            top = max(0, y - high - base - 4)
            plate = (x, top), (x + wide, top + high + base + 4)
            cv2.rectangle(image, *plate, self._colors[number], cv2.FILLED)
            place = (x, top + high + 2)
            cv2.putText(
                image, words, place, cv2.FONT_HERSHEY_SIMPLEX, 0.75, (0, 0, 0), 1, cv2.LINE_AA
            )

    def _name(self, number: int) -> str:
        names = self._names
        return names[number] if isinstance(names, list) else names[str(number)]


class Mp4:
    """An MP4 that plays in a browser, with a line of JSON a frame beside it."""

    def __init__(self, path: Path, threads: int = 0) -> None:
        self._container = av.open(str(path), "w")
        self._lines = path.with_suffix(".jsonl").open("w", encoding="utf-8")
        self._stream: Any = None
        self._threads = threads

    def write(self, frame: Frame, found: Found) -> None:
        """Append a frame."""
        if self._stream is None:
            self._stream = self._container.add_stream("libx264", rate=10)
            self._stream.height, self._stream.width = frame.image.shape[:2]
            self._stream.pix_fmt = "yuv420p"
            self._stream.options = {"preset": PRESET, "crf": CRF}
            self._stream.thread_count = self._threads
            self._stream.codec_context.time_base = TICK
        picture = cv2.cvtColor(frame.image, cv2.COLOR_BGR2YUV_I420)
        encoded = av.VideoFrame.from_ndarray(picture, format="yuv420p")
        encoded.time_base, encoded.pts = TICK, round(frame.time_s / TICK)
        self._container.mux(self._stream.encode(encoded))
        self._lines.write(json.dumps({"time": frame.time_s, "detections": found}) + "\n")

    def close(self) -> None:
        """Write what the encoder still holds."""
        if self._stream is not None:
            self._container.mux(self._stream.encode())
        self._container.close()
        self._lines.close()


class Thread:
    """A thread that works ahead of whoever iterates over it, by a bounded number of things."""

    def __init__(self, things: Iterator[Any], ahead: int = _AHEAD) -> None:
        self._queue: queue.Queue[Any] = queue.Queue(ahead)
        self._thread = threading.Thread(target=self._work, args=(things,), daemon=True)
        self._thread.start()

    def _work(self, things: Iterator[Any]) -> None:
        for thing in things:
            self._queue.put(thing)
        self._queue.put(None)

    def __iter__(self) -> Iterator[Any]:
        while (thing := self._queue.get()) is not None:
            yield thing
        self._thread.join()


def _batches(frames: Iterator[Frame], size: int) -> Iterator[list[Frame]]:
    iterator = iter(frames)
    while part := list(islice(iterator, size)):
        yield part


def decode_thread(
    path: str, out: Path, frames: int, model: Model, batch: int
) -> Iterator[Sequence[Any]]:
    """A thread decodes ahead; the main one infers, draws and writes."""
    tuning.keep_freed_memory()
    letterbox, artist = Letterbox(), Artist()
    rows = np.zeros((batch, 3, SIDE, SIDE), np.float32)
    model(rows)
    yield ()
    target = Mp4(out)
    for part in _batches(iter(Thread(decode(path, frames))), batch):
        for frame, row in zip(part, rows, strict=False):
            letterbox.write(frame.image, row)
        for frame, output in zip(part, model(rows[: len(part)]), strict=True):
            found = objects(output, frame.image)
            artist.draw(frame.image, found)
            target.write(frame, found)
            yield found
    target.close()


def thread_a_stage(
    path: str, out: Path, frames: int, model: Model, batch: int
) -> Iterator[Sequence[Any]]:
    """Threads decode, letterbox, infer, and draw; the main one writes."""
    tuning.keep_freed_memory()
    cv2.setNumThreads(1)
    artist = Artist()
    model(np.zeros((batch, 3, SIDE, SIDE), np.float32))
    yield ()

    def prepared(decoded: Iterator[Frame]) -> Iterator[tuple[list[Frame], np.ndarray]]:
        letterbox = Letterbox()
        memory = [np.zeros((batch, 3, SIDE, SIDE), np.float32) for _ in range(4)]
        for number, part in enumerate(_batches(decoded, batch)):
            rows = memory[number % len(memory)][: len(part)]
            for frame, row in zip(part, rows, strict=True):
                letterbox.write(frame.image, row)
            yield part, rows

    def inferred(batches: Iterator[tuple[list[Frame], np.ndarray]]) -> Iterator[Any]:
        for part, rows in batches:
            yield part, model(rows)

    def drawn(batches: Iterator[Any]) -> Iterator[tuple[Frame, Found]]:
        for part, outputs in batches:
            for frame, output in zip(part, outputs, strict=True):
                found = objects(output, frame.image)
                artist.draw(frame.image, found)
                yield frame, found

    decoded = Thread(decode(path, frames))
    batches = Thread(prepared(iter(decoded)), ahead=1)
    answered = Thread(inferred(iter(batches)), ahead=1)
    target = Mp4(out)
    for frame, found in Thread(drawn(iter(answered))):
        target.write(frame, found)
        yield found
    target.close()


def thread_a_core(path: str, out: Path, frames: int) -> Iterator[Sequence[Any]]:
    """A thread a core, each with all the work on its frames; the main one decodes and writes."""
    tuning.keep_freed_memory()
    cv2.setNumThreads(1)
    artist, local = Artist(), threading.local()

    def prepare() -> None:
        local.model, local.letterbox = onnx(1), Letterbox()
        local.rows = np.zeros((1, 3, SIDE, SIDE), np.float32)

    def work(frame: Frame) -> tuple[Frame, Found]:
        local.letterbox.write(frame.image, local.rows[0])
        found = objects(local.model(local.rows)[0], frame.image)
        artist.draw(frame.image, found)
        return frame, found

    with ThreadPoolExecutor(CORES, initializer=prepare) as pool:
        barrier = threading.Barrier(CORES)
        warm = list(decode(path, CORES))
        list(pool.map(lambda frame: (barrier.wait(), work(frame)), warm))
        yield ()
        target = Mp4(out)
        waiting: list[Any] = []
        decoded = decode(path, frames)
        while True:
            waiting += [pool.submit(work, frame) for frame in islice(decoded, 8 - len(waiting))]
            if not waiting:
                break
            frame, found = waiting.pop(0).result()
            target.write(frame, found)
            yield found
        target.close()
