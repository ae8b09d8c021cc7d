"""Hand-written loops around ONNX Runtime, see `loops` for their contract."""

from __future__ import annotations

import multiprocessing
import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cv2
import numpy as np
import onnxruntime
from harness import ROOT
from loops import ROW, fused_pre, fused_program, plain_pre, top

from gepipe.runtime import tuning

MODEL = str(ROOT / "samples" / "models" / "efficientnet_lite0.onnx")
CORES = 2


def session(
    threads: int, *, spinning: bool = False, model: str = MODEL
) -> onnxruntime.InferenceSession:
    """Open a model for a number of threads."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    if not spinning:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


class Whole:
    """All work on a few photos at a time, in one thread."""

    def __init__(self, batch: int, opened: onnxruntime.InferenceSession | None = None) -> None:
        self._session = opened or session(1)
        self._name = self._session.get_inputs()[0].name
        self._program = fused_program()
        self._rows = np.zeros((batch, *ROW), np.float32)

    def __call__(self, paths: list[str]) -> list[list[int]]:
        """Return the top classes of as many photos as a batch holds."""
        rows = self._rows[: len(paths)]
        for path, row in zip(paths, rows, strict=True):
            fused_pre(self._program, path, row)
        return top(self._session.run(None, {self._name: rows})[0])


def whole_threads(paths: list[str], batch: int, *, shared: bool = False) -> Iterator[Any]:
    """A thread a core, each with all the work on its photos: nothing is handed over."""
    tuning.keep_freed_memory()
    cv2.setNumThreads(1)
    opened = session(1) if shared else None
    local = threading.local()

    def prepare() -> None:
        local.whole = Whole(batch, opened)

    def work(part: list[str]) -> list[list[int]]:
        return local.whole(part)

    with ThreadPoolExecutor(CORES, initializer=prepare) as pool:
        portions = [paths[first : first + batch] for first in range(0, len(paths), batch)]
        barrier = threading.Barrier(CORES)
        list(pool.map(lambda part: (barrier.wait(), work(part)), portions[:CORES]))
        yield
        for results in pool.map(work, portions):
            yield from results


def _prepare_process() -> None:
    global _whole  # noqa: PLW0603 - a process pool has no other place
    tuning.keep_freed_memory()
    cv2.setNumThreads(1)
    _whole = Whole(1)


def _in_process(path: str) -> list[int]:
    return _whole([path])[0]


def whole_processes(paths: list[str]) -> Iterator[Any]:
    """A process a core, each with all the work on its photos."""
    with multiprocessing.get_context("spawn").Pool(CORES, _prepare_process) as pool:
        pool.map(_in_process, paths[: 4 * CORES], chunksize=1)
        yield
        yield from pool.imap(_in_process, paths, chunksize=4)


def ahead(paths: list[str], batch: int, *, fused: bool) -> Iterator[Any]:
    """A thread preprocesses the next batch, while a session of two threads executes this one."""
    tuning.keep_freed_memory()
    cv2.setNumThreads(1)
    opened = session(CORES)
    name = opened.get_inputs()[0].name
    program = fused_program()
    buffers = [np.zeros((batch, *ROW), np.float32) for _ in range(2)]
    free: queue.SimpleQueue[Any] = queue.SimpleQueue()
    ready: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def preprocess(chosen: list[str]) -> None:
        for first in range(0, len(chosen), batch):
            buffer, part = free.get(), chosen[first : first + batch]
            for path, row in zip(part, buffer, strict=False):
                if fused:
                    fused_pre(program, path, row)
                else:
                    row[:] = plain_pre(path)
            ready.put((buffer, len(part)))

    def infer() -> list[Any]:
        buffer, count = ready.get()
        results = top(opened.run(None, {name: buffer[:count]})[0])
        free.put(buffer)
        return results

    for buffer in buffers:
        free.put(buffer)
    for chosen in (paths[:batch], paths):
        worker = threading.Thread(target=preprocess, args=(chosen,))
        worker.start()
        for _ in range(0, len(chosen), batch):
            results = infer()
            if chosen is paths:
                yield from results
        worker.join()
        if chosen is not paths:
            yield


def simple(paths: list[str]) -> Iterator[Any]:
    """Make one after the other, with everything at its defaults."""
    opened = onnxruntime.InferenceSession(MODEL, providers=["CPUExecutionProvider"])
    name = opened.get_inputs()[0].name
    yield
    for path in paths:
        yield top(opened.run(None, {name: plain_pre(path)[None]})[0])[0]
