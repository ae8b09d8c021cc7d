"""Batches on their way through a device: two at a time, on two streams.

    host         copy stream                          compute stream
    slot ──▶ pinned ──(in k+1)──▶ device   event ──▶  execution of k+1, once k is known to be good
    slot ◀── pinned ◀─(out k)───  device   ◀────────  execution of k

While k is executed, the copies of k+1 to the device and of k-1 from it are made. The failure of an
execution shows only at the synchronisation of its stream, not at an event, so k+1 is handed to the
compute stream when k has been synchronised: a failure is never blamed on a neighbour, a limit holds
for one execution, and nobody gets the outputs of an execution that failed. What lies between two
executions is the time to notice the end of the first, well below a thousandth of a large batch.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from gepipe.engines.ge.buffers import BatchSet, Port
from gepipe.engines.ge.loading import SETS
from gepipe.engines.ge.pinned import Pinned
from gepipe.engines.ge.run import Batch, Run
from gepipe.engines.ge.runtime import DEVICE_TO_HOST
from gepipe.engines.ge.session import Session
from gepipe.engines.ge.shapes import Shapes
from gepipe.engines.ge.warmup import LONG_S, warm_up
from gepipe.engines.gears import portions
from gepipe.errors import BackendError, DeviceError, DeviceTimeoutError, TensorMismatchError
from gepipe.unshaped import UnshapedBuffer

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Of large inputs: what is copied to the device at a time while more is copied to pinned memory.
_PIECE_BYTES: Final = 4 << 20


class Execution:
    """Executes batches of one session in order."""

    def __init__(self, session: Session, timeout_s: float | None = None) -> None:
        self._session = session
        self._acl = session.acl
        self._timeout_s = timeout_s
        if timeout_s is not None and not self._acl.has("rt.synchronize_stream_with_timeout"):
            self._timeout_s = None
            session.notes.append(
                "this CANN release cannot wait with a limit: `timeout` is not exact"
            )
        self._sets: list[BatchSet] = []
        self._runs: deque[Run] = deque()
        self._next = 0
        self._events: list[int] = []  # which could not be destroyed
        #: Why nothing can be executed any more.
        self.lost: BackendError | None = None
        try:
            for _ in range(SETS):
                self._sets.append(BatchSet(session))
        except BaseException:
            self.close()
            raise

    def open_shapes(self, pinned: Pinned) -> Shapes:
        """Read the model's gears, those that `pinned` leaves; before the first batch."""
        self._shapes = self._session.shapes(self._sets[0].input_dataset, pinned)
        unknown = not all(spec.row.is_static for spec in self._shapes.outputs)
        probed = unknown and self._shapes.is_range
        if probed or self._timeout_s is not None:
            limit_s = max(LONG_S, self._timeout_s or 0)
            warm_up(self._session, self._sets[0], self._shapes, limit_s, probed=probed)
        return self._shapes

    def submit(
        self,
        inputs: Sequence[NDArray[Any]],
        outputs: Sequence[NDArray[Any] | UnshapedBuffer],
        count: int,
    ) -> Batch:
        """Start a batch; see `gepipe.engines.engine.Engine.submit`."""
        if self.lost is not None:
            raise self.lost
        rows = tuple([array.shape[1:] for array in inputs])
        arrays = [array for array in outputs if not isinstance(array, UnshapedBuffer)]
        results = tuple([array.shape[1:] for array in arrays])
        opened = len(arrays) < len(outputs)
        group = self._shapes.group(rows, () if opened else results)
        if opened:
            made = next(iter(group.gears.values())).outputs
            arrays = [
                array.open(shape[1:]) if isinstance(array, UnshapedBuffer) else array
                for array, shape in zip(outputs, made, strict=True)
            ]
        batch = Batch(arrays)
        for first, rows_now, size in portions(count, group.sizes):
            place = self._sets[self._next]
            if len(self._runs) == SETS:
                self._finish()
            if batch.error is not None or self.lost is not None:
                batch.error = batch.error or self.lost
                break
            gear = group.gears.get(size)
            if gear is None:
                gear = self._shapes.of_range(group, size, rows, results)
            try:
                self._load(Run(batch, place, gear, first, rows_now), inputs)
            except DeviceError as error:
                batch.error = self._noted(error)
                if self.lost is None:  # copies of the other inputs may still read this memory
                    self._drain(self._session.copy)
                break
        return batch

    def collect(self, batch: Batch) -> None:
        """Wait for a batch.

        Raises:
            BackendError: One of its executions failed.
        """
        while batch.left:
            self._finish()
        if batch.error is not None:
            raise batch.error

    def close(self) -> None:
        """Wait for what is under way, and release all memory. Closing twice is harmless."""
        for stream in (self._session.copy, self._session.compute):
            if self.lost is None:
                self._drain(stream)
        sets, self._sets = self._sets, []
        self._events += [run.loaded for run in self._runs if run.loaded]
        self._runs.clear()
        while self._events and self.lost is None:
            self._acl.destroy_event(self._events.pop())
        for place in sets:
            if self.lost is None:
                place.close()
            else:
                place.abandon()

    def _drain(self, stream: int) -> None:
        """Wait for a stream whose results nobody wants any more."""
        try:
            self._session.synchronize(stream, self._timeout_s or LONG_S)
        except DeviceError as error:
            self._noted(error)

    def _load(self, run: Run, inputs: Sequence[NDArray[Any]]) -> None:
        """Copy a run's inputs: to pinned memory now, to the device in the copy stream."""
        acl, copy = self._acl, self._session.copy
        views = run.place.views(run.gear)[0]
        last = run.first + run.count
        for port, view, array in zip(run.place.inputs, views, inputs, strict=True):
            rows = array[run.first : last]
            sent = 0
            if not self._runs and rows.flags.c_contiguous:
                sent = self._load_ahead(port, view[: run.count], rows)
            else:
                view[: run.count] = rows
            view[run.count :] = 0
            port.upload(sent, view.nbytes, copy)
        run.loaded = acl.create_event()
        run.batch.left += 1
        self._runs.append(run)
        self._next = (self._next + 1) % SETS
        acl.record_event(run.loaded, copy)
        # Everything but the execution itself is done ahead, so that it follows its predecessor at
        # once. The gear set last is that of the execution launched next: there are two sets only.
        session = self._session
        if run.gear.setting:
            session.set_gear(run.place.input_dataset, run.gear.setting)
        elif self._shapes.is_range:
            run.place.describe(run.gear)
        acl.stream_wait_event(session.compute, run.loaded)
        if len(self._runs) == 1:
            self._launch(run)

    def _load_ahead(self, port: Port, view: NDArray[Any], rows: NDArray[Any]) -> int:
        """Copy rows to pinned memory, and all but the last piece of them on to the device.

        The device has nothing to do: it gets a piece while the next one is made ready.

        Returns:
            How many bytes are on their way to the device.
        """
        target, source = view.reshape(-1), rows.reshape(-1)
        step = _PIECE_BYTES // target.itemsize
        sent = 0
        for first in range(0, target.size, step):
            target[first : first + step] = source[first : first + step]
            if first + step < target.size:
                port.upload(sent, sent + _PIECE_BYTES, self._session.copy)
                sent += _PIECE_BYTES
        return sent

    def _launch(self, run: Run) -> None:
        """Hand an execution to the compute stream, which waits for its inputs already."""
        session, place = self._session, run.place
        try:
            self._acl.execute_async(
                session.model_id, place.input_dataset, place.output_dataset, session.compute
            )
        except DeviceError as error:
            run.error = self._noted(error)
        run.started_s = time.monotonic()

    def _finish(self) -> None:
        """Wait for the oldest execution, start the next, and bring the results of this one."""
        run = self._runs[0]
        error: Exception | None = self.lost
        if error is None:
            try:
                self._wait(self._session.compute, run.started_s, run)
            except DeviceError as failure:
                error = self._noted(failure)
                if self.lost is None:  # the call failed, which is not to say that it waited
                    self._drain(self._session.compute)
        self._runs.popleft()
        if self._runs and self.lost is None and self._runs[0].batch.error is None:
            self._launch(self._runs[0])
        error = run.error or error
        if error is None:
            try:
                self._bring(run)
            except TensorMismatchError as failure:
                error = failure
            except DeviceError as failure:
                error = self._noted(failure)
                if self.lost is None:
                    self._drain(self._session.copy)
                for other in self._runs:  # the copy of its inputs may be what failed
                    other.error = other.error or error
        if self.lost is None:
            self._destroy(run.loaded)
        run.batch.left -= 1
        if run.batch.error is None:
            run.batch.error = error
        if not self._runs and self._shapes.is_range:
            self._session.pool.tidy()

    def _destroy(self, event: int) -> None:
        try:
            self._acl.destroy_event(event)
        except DeviceError as error:  # no batch fails for it; `close` tries again
            self._noted(error)
            self._events.append(event)

    def _bring(self, run: Run) -> None:
        """Copy a run's outputs: from the device to pinned memory, and to where they go."""
        acl, copy = self._acl, self._session.copy
        if run.batch.error is not None:
            return
        if self._shapes.is_range:
            run.place.check_outputs(run.gear)
        views = run.place.views(run.gear)[1]
        for port, view in zip(run.place.outputs, views, strict=True):
            nbytes = view.nbytes // run.gear.batch * run.count
            acl.memcpy_async(port.host, port.nbytes, port.device, nbytes, DEVICE_TO_HOST, copy)
        self._wait(copy, time.monotonic(), run)
        last = run.first + run.count
        for view, array in zip(views, run.batch.outputs, strict=True):
            array[run.first : last] = view[: run.count]

    def _wait(self, stream: int, started_s: float, run: Run) -> None:
        """Wait for a stream, but not beyond the limit of an execution."""
        limit_s = self._timeout_s
        if limit_s is None:
            self._acl.synchronize_stream(stream)
            return
        left_ms = max(1, math.ceil((started_s + limit_s - time.monotonic()) * 1000))
        try:
            self._acl.synchronize_stream_with_timeout(stream, left_ms)
        except DeviceTimeoutError as error:
            raise DeviceTimeoutError(
                f"a batch of {run.gear.batch} took longer than {limit_s:g} s on device "
                f"{self._session.device}; raise `timeout:` if it needs more: {error}",
                code=error.code,
                call=error.call,
            ) from error

    def _noted(self, error: BackendError) -> BackendError:
        if error.fatal and self.lost is None:
            self.lost = error
        return error
