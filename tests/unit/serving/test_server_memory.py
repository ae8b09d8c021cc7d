"""Requests whose tensors lie in shared memory, as the server's do, are executed where they lie."""

from __future__ import annotations

import math
import mmap
import os
import uuid
from pathlib import Path

import numpy as np
import pytest

from gepipe.pipeline.crews import pickled, worker_environment
from gepipe.runtime.memory import SlotLayout
from gepipe.serving.execution import Execution
from gepipe.serving.host import ModelHost
from gepipe.serving.merging import Query
from gepipe.serving.server_memory import ServerMemory, view_of
from tests.support import INPUT, OUTPUT, WIDTH, Fate, Infer

ODD = 17  # the server puts tensors on any boundary


class Server:
    """A file of /dev/shm that grows, and stays mapped where it was."""

    def __init__(self, path: Path, nbytes: int) -> None:
        self.path = path
        self._file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR)
        self.grow(nbytes)

    def grow(self, nbytes: int) -> None:
        os.ftruncate(self._file, nbytes)
        self._map = mmap.mmap(self._file, nbytes)

    def rows(self, count: int, offset: int, first: int = 0) -> np.ndarray:
        """Return rows of numbers from `first` on that lie there."""
        flat = np.frombuffer(self._map, "float64", count * WIDTH, offset)
        rows = flat.reshape(count, WIDTH)
        rows[...] = np.arange(first, first + count)[:, None]
        return rows

    def close(self) -> None:
        del self._map  # its arrays may still be in use
        os.close(self._file)
        self.path.unlink(missing_ok=True)


@pytest.fixture
def server():
    made = Server(Path("/dev/shm", f"gepipe_test_{uuid.uuid4().hex}"), 1 << 16)
    yield made
    made.close()


@pytest.fixture
def memory():
    found = ServerMemory()
    yield found
    found.close()


def read(lent, rows) -> np.ndarray:
    """Return what lies where rows are said to lie."""
    (offset,) = lent.offsets
    data = os.pread(lent.memory.fd, rows.nbytes, offset)
    return np.frombuffer(data, rows.dtype).reshape(rows.shape)


def test_rows_are_found_in_the_servers_memory_also_after_it_has_grown(server, memory) -> None:
    before = server.rows(2, ODD, 5)
    assert np.array_equal(read(memory.find([before]), before), before)
    first = memory.find([before]).memory

    server.grow(1 << 20)
    after = server.rows(3, (1 << 19) + ODD, 50)

    assert np.array_equal(read(memory.find([after]), after), after)
    assert np.array_equal(read(memory.find([before]), before), before)  # mapped as it was
    grown = memory.find([after]).memory
    assert grown is memory.find([before]).memory
    assert grown is not first


def test_rows_elsewhere_are_not_found(server, memory) -> None:
    there = server.rows(4, ODD)
    assert memory.find([np.zeros((2, WIDTH))]) is None
    assert memory.find([there, np.zeros((2, WIDTH))]) is None
    assert memory.find([there[::2]]) is None  # not contiguous
    assert memory.find([]) is None

    server.path.unlink()
    assert ServerMemory().find([there]) is None


def test_a_tensor_is_seen_where_it_lies(server) -> None:
    rows = server.rows(2, 64, 3)

    class Tensor:
        def __dlpack__(self, **more):
            return rows.__dlpack__(**more)

        def __dlpack_device__(self):
            return rows.__dlpack_device__()

    assert view_of(Tensor()).ctypes.data == rows.ctypes.data


def test_a_tensor_that_cannot_be_seen_is_copied() -> None:
    class Tensor:
        def as_numpy(self):
            return np.ones(3)

    assert view_of(Tensor()).tolist() == [1, 1, 1]


@pytest.fixture
def run(memory):
    """Return a function that executes arrays on a host of 4 rows; hosts close at the end."""
    hosts = []

    def execute(body, arrays, limit_s=math.inf):
        if not hosts:
            hosts.append(ModelHost("m", pickled(body, "m"), worker_environment()))
            hosts[0].lay_out(SlotLayout.of((INPUT,), 4), SlotLayout.of((OUTPUT,), 4), limit_s)
        queries = [Query(arrays={"x": rows}, rows=len(rows)) for rows in arrays]
        Execution(
            hosts[0],
            capacity=4,
            merged=True,
            is_unwanted=lambda _: None,
            report=lambda *_: None,
            memory=memory,
        ).run(queries, kept=True)
        return hosts[0], queries

    yield execute
    for host in hosts:
        host.close()


def is_right(query) -> bool:
    made = np.concatenate(query.pieces["y"])
    return query.error is None and np.array_equal(made, 2 * query.arrays["x"] + 1)


def test_a_request_with_a_slot_to_itself_is_executed_where_it_lies(server, run) -> None:
    host, queries = run(Infer(), [server.rows(3, ODD, 7)])
    assert all(map(is_right, queries))

    server.grow(1 << 18)  # which the worker is told
    _, queries = run(None, [server.rows(11, (1 << 17) + ODD, 70), server.rows(2, 0, 9)])
    assert all(map(is_right, queries))
    assert not host.inputs["x"].any()  # nothing was copied


def test_requests_that_share_a_slot_are_copied_into_it(server, run) -> None:
    host, queries = run(Infer(), [server.rows(1, ODD, 7), server.rows(2, 8192 + ODD, 70)])

    assert all(map(is_right, queries))
    assert host.inputs["x"][:3, 0].tolist() == [7, 70, 71]


def test_a_request_elsewhere_is_copied_into_the_slot(server, run) -> None:
    host, queries = run(Infer(), [server.rows(3, ODD, 7), np.full((2, WIDTH), 3.0)])

    assert all(map(is_right, queries))
    assert host.inputs["x"][:2, 0].tolist() == [3, 3]


def test_a_process_that_replaces_a_lost_one_reads_there_too(server, run, tmp_path) -> None:
    fate = Fate("infer", "mid-write", "SIGKILL", str(tmp_path))

    host, queries = run(Infer(fates=(fate,)), [server.rows(3, ODD, 7)])

    assert all(map(is_right, queries))
    assert host.losses == 1
    assert not host.inputs["x"].any()


class Greedy(Infer):
    """Writes into its inputs."""

    def submit(self, inputs, outputs, count):
        inputs["x"][...] = 0
        return super().submit(inputs, outputs, count)


def test_a_worker_cannot_write_into_the_servers_memory(server, run) -> None:
    rows = server.rows(3, ODD, 7)

    _, (query,) = run(Greedy(), [rows])

    assert "read-only" in str(query.error)
    assert rows[:, 0].tolist() == [7, 8, 9]
