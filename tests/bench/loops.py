"""Loops that people write by hand for the JPEG job, each as good as its kind gets.

All read the files, feed the same accelerator and take the top 5 of its outputs. They are timed from
the moment their threads or processes are ready; `warm` photos were worked on before.
"""

from __future__ import annotations

import multiprocessing
import queue
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cv2
import numpy as np
from latency_table import LatencyTable

from gepipe.engines.engine import EngineOptions
from gepipe.ops.decode import DecodeImage
from gepipe.ops.image import CenterCrop
from gepipe.ops.op import Op
from gepipe.ops.plan import PreProgram, plan_pre
from gepipe.ops.resize import Resize
from gepipe.ops.tensor import Normalize, ToTensor
from gepipe.runtime import tuning

BATCH = 32
ROW = (3, 224, 224)
CLASSES = 1000
TOP = 5

OPS: tuple[Op, ...] = (
    DecodeImage(),
    Resize(short_side=256),
    CenterCrop((224, 224)),
    Normalize(mean=127, std=128),
    ToTensor(),
)


class Accelerator:
    """The latency table without a pipeline around it."""

    def __init__(self, latency_s: float) -> None:
        self._engine = LatencyTable(EngineOptions(extra={"table": {BATCH: latency_s}}))

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        """Return (rows, classes) scores of a batch of up to `BATCH` rows."""
        scores = np.empty((len(batch), CLASSES), np.float32)
        self._engine.collect(self._engine.submit({"x": batch}, {"scores": scores}, len(batch)))
        return scores


def top(scores: np.ndarray) -> list[list[int]]:
    """Return the classes with the highest scores, a list a row."""
    best = np.argpartition(scores, -TOP, axis=1)[:, -TOP:]
    order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1)
    return np.take_along_axis(best, order, axis=1).tolist()


def plain_pre(path: str) -> np.ndarray:
    """Do the preprocessing as it is usually written."""
    image = cv2.cvtColor(cv2.imread(path), cv2.COLOR_BGR2RGB)
    height, width = image.shape[:2]
    scale = 256 / min(height, width)
    image = cv2.resize(image, (round(width * scale), round(height * scale)))
    top_, left = (image.shape[0] - 224) // 2, (image.shape[1] - 224) // 2
    crop = image[top_ : top_ + 224, left : left + 224]
    return ((crop.astype(np.float32) - 127) / 128).transpose(2, 0, 1)


def fused_program() -> PreProgram:
    """Return gepipe's own fused preprocessing, ready."""
    program = plan_pre(OPS)
    program.setup()
    return program


def fused_pre(program: PreProgram, path: str, row: np.ndarray) -> None:
    """Write a photo into its row, with gepipe's own fused preprocessing."""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - the fastest way
        content = file.read()
    program(content, {}, {"x": row})


def serial(paths: list[str], latency_s: float) -> Iterator[Any]:
    """One after the other."""
    accelerator = Accelerator(latency_s)
    yield
    for first in range(0, len(paths), BATCH):
        batch = np.stack([plain_pre(path) for path in paths[first : first + BATCH]])
        yield from top(accelerator(batch))


def plain_threads(paths: list[str], latency_s: float, threads: int = 2) -> Iterator[Any]:
    """Threads preprocess ahead with OpenCV, which releases the GIL; the main thread infers."""
    cv2.setNumThreads(1)
    accelerator = Accelerator(latency_s)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(plain_pre, paths[: 2 * threads]))
        yield
        rows = pool.map(plain_pre, paths)
        for first in range(0, len(paths), BATCH):
            count = min(BATCH, len(paths) - first)
            yield from top(accelerator(np.stack([next(rows) for _ in range(count)])))


def process_pool(paths: list[str], latency_s: float, processes: int = 2) -> Iterator[Any]:
    """Processes preprocess ahead; the rows come through a pipe."""
    accelerator = Accelerator(latency_s)
    with multiprocessing.Pool(processes, cv2.setNumThreads, (1,)) as pool:
        pool.map(plain_pre, paths[: 2 * processes], chunksize=1)
        yield
        rows = pool.imap(plain_pre, paths, chunksize=4)
        for first in range(0, len(paths), BATCH):
            count = min(BATCH, len(paths) - first)
            yield from top(accelerator(np.stack([next(rows) for _ in range(count)])))


def expert_threads(
    paths: list[str], latency_s: float, threads: int = 2, buffers: int = 2
) -> Iterator[Any]:
    """Fused preprocessing in place, two batch buffers, a thread of its own for the accelerator."""
    tuning.keep_freed_memory()
    cv2.setNumThreads(1)
    accelerator = Accelerator(latency_s)
    memory = [np.zeros((BATCH, *ROW), np.float32) for _ in range(buffers)]
    tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
    free: queue.SimpleQueue[int] = queue.SimpleQueue()
    written: queue.SimpleQueue[int] = queue.SimpleQueue()  # buffer, once a row
    scores: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def preprocess() -> None:
        program = fused_program()
        while (task := tasks.get()) is not None:
            path, buffer, row = task
            fused_pre(program, path, memory[buffer][row])
            written.put(buffer)

    def infer() -> None:
        # Batches become whole in order, nearly; count the rows of each.
        counts = [0] * buffers
        for number in range(-(-len(paths) // BATCH)):
            wanted = number % buffers
            size = min(BATCH, len(paths) - number * BATCH)
            while counts[wanted] < size:
                counts[written.get()] += 1
            counts[wanted] = 0
            scores.put(accelerator(memory[wanted][:size]))
            free.put(wanted)

    def feed() -> None:
        for number, first in enumerate(range(0, len(paths), BATCH)):
            buffer = free.get() if number >= buffers else number
            for row, path in enumerate(paths[first : first + BATCH]):
                tasks.put((path, buffer, row))
        for _ in range(threads):
            tasks.put(None)

    workers = [threading.Thread(target=preprocess) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for number in range(2 * threads):
        tasks.put((paths[number], 0, number))
    for _ in range(2 * threads):
        written.get()
    yield
    others = [threading.Thread(target=target) for target in (feed, infer)]
    for other in others:
        other.start()
    for _ in range(-(-len(paths) // BATCH)):
        yield from top(scores.get())
    for thread in (*workers, *others):
        thread.join()


def timed(loop: Iterator[Any]) -> tuple[list[Any], float]:
    """Start a loop, then return its results and the seconds they took."""
    next(loop)
    begin = time.perf_counter()
    results = list(loop)
    return results, time.perf_counter() - begin
