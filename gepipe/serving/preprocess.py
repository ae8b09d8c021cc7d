"""The step before the model in the ensemble layout: one model of the server, many processes.

    execute ─▶ RequestQueue ─▶ thread ─▶ its worker process ─▶ rows in shared memory ─▶ server

A file that crashes a decoder takes one worker with it and fails alone; Triton would not replace a
process of its own. The queue has a bound and two classes, which Triton's has only together with a
batcher, and that would merge requests which are better worked on side by side.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gepipe.errors import ConfigError, GepipeError, ItemError
from gepipe.ops.plan import plan_pre
from gepipe.pipeline import meta as metas
from gepipe.pipeline.bodies import PreBody
from gepipe.pipeline.crews import pickled, worker_environment
from gepipe.pipeline.preload import PRELOAD
from gepipe.runtime.memory import SharedBuffer, SlotLayout, Slots
from gepipe.runtime.process import start_server
from gepipe.serving.asking import wants_realtime
from gepipe.serving.bundle import load_bundle
from gepipe.serving.declared import spec_of
from gepipe.serving.dispatcher import Dispatcher
from gepipe.serving.itemmeta import META, to_json
from gepipe.serving.merging import Ask, checked_rows
from gepipe.serving.metrics import OpenRequests
from gepipe.serving.payloads import PayloadReader, to_payload
from gepipe.serving.replies import RowFailed, reply_error
from gepipe.serving.request_queue import RequestQueue
from gepipe.serving.session import Session, SessionLost
from gepipe.serving.settings import parameters_of
from gepipe.serving.stub import settle
from gepipe.spec.profile import QUEUE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gepipe.runtime.events import Fault
    from gepipe.tensors import TensorSpec

log = logging.getLogger(__name__)

#: `workers`: its processes; `max_queue_size`: requests that may wait. Each a text.
_PARAMETERS: Final = ("max_queue_size", "workers")
#: Rows that a worker writes at a time: most requests have one, and memory is kept small.
_ROWS: Final = 4
#: How long a worker may take to set itself up.
_START_S: Final = 120.0
#: Workers that a request's rows may end.
_TRIES: Final = 2


class Preparer:
    """A pre worker process and its rows, used by one thread. It is replaced when it dies."""

    def __init__(
        self, stage: str, body: bytes, specs: Sequence[TensorSpec], limit_s: float
    ) -> None:
        """Start the process; `open` waits for it.

        Args:
            stage: The stage's name, for messages.
            body: The pickled `gepipe.runtime.worker.Writer`.
            specs: Row specs of what it writes.
            limit_s: How long one item may take.
        """
        self._stage, self._body, self._limit_s = stage, body, limit_s
        layout = SlotLayout.of(tuple(specs), _ROWS)
        self._link = SharedBuffer.create(layout.slot_nbytes), layout
        self._slots = Slots(*self._link)
        self._session: Session | None = self._start()

    def open(self) -> None:
        """Wait until the process is set up.

        Raises:
            GepipeError: It cannot be set up.
        """
        if self._session is None:
            self._session = self._start()
        self._session.open()
        self._session.attach([self._link], self._limit_s)

    def write(self, payloads: Sequence[Any]) -> Sequence[bytes | Fault]:
        """Have items written.

        Args:
            payloads: One an item, `_ROWS` at most.

        Returns:
            Of each item what was noted about it, or what went wrong.

        Raises:
            ItemError: The process ended twice.
            GepipeError: The process cannot be replaced.
        """
        for left in reversed(range(_TRIES)):
            if self._session is None:
                self.open()
            assert self._session is not None
            try:
                return self._session.write(payloads)
            except SessionLost as lost:
                session, self._session = self._session, None
                session.close()
                log.warning("%s: %s; its process is replaced", self._stage, str(lost))
                if not left:
                    raise ItemError(lost.kind, f"{lost}, twice") from None
        raise AssertionError  # the last try returns or raises

    def rows(self, count: int) -> Mapping[str, NDArray[Any]]:
        """Return name to (count, …) array of what was written; views, valid until the next call."""
        return {name: view[:count] for name, view in self._slots[0].items()}

    def interrupt(self) -> None:
        """End the process, whatever it does."""
        if self._session is not None:
            self._session.kill()

    def close(self) -> None:
        """End the process and free the rows."""
        if self._session is not None:
            self._session.close()
        del self._slots
        try:
            self._link[0].close()
        except BufferError:  # somebody holds a view; the end of this process frees it
            log.debug("%s: rows are still in use", self._stage)

    def _start(self) -> Session:
        return Session(self._stage, self._body, worker_environment(), _START_S, role="pre")


class Preprocess:
    """Turns each row of `IMAGE` or `INPUT` into one of the model's inputs, and its meta."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Start the workers of the pipeline file that lies beside the model.

        Raises:
            Exception: `pb_utils.TritonModelException`, whose text the server shows as it is.
        """
        import triton_python_backend_utils as pb_utils

        settle()
        folder = Path(args["model_repository"]) / args["model_version"]
        try:
            self._open(folder, json.loads(args["model_config"]), OpenRequests(args).tell)
        except GepipeError as error:
            raise pb_utils.TritonModelException(str(error)) from None

    def execute(self, requests: Sequence[Any]) -> None:
        """Take requests; they are answered later."""
        for request in requests:
            ask = Ask(request=request, began=time.monotonic())
            ask.sender = request.get_response_sender()
            try:
                ask.arrays = {self._input: self._values(request)}
                ask.rows = len(ask.arrays[self._input])
                self._dispatcher.take(ask, realtime=wants_realtime(request.parameters()))
            except Exception as error:  # noqa: BLE001 - one bad request must not fail the others
                self._dispatcher.reply(ask, reply_error(self._stage, error))

    def finalize(self) -> None:
        """Answer what waits, within a limit, and stop the workers."""
        self._dispatcher.close(self._interrupt)
        for preparer in self._preparers:
            preparer.close()

    def _open(self, folder: Path, config: Mapping[str, Any], tell: Callable[[int], None]) -> None:
        spec = load_bundle(folder)
        pre = spec.pre
        self._stage = pre.name
        self._specs = [
            spec_of("output", entry) for entry in config["output"] if entry["name"] != META
        ]
        for row in self._specs:
            if not row.is_static:
                raise ConfigError(f"output {row} has open extents; expected numbers in its dims")
        (given,) = config["input"]
        self._input = str(given["name"])
        self._given = None if given["data_type"] == "TYPE_STRING" else spec_of("input", given)
        texts = parameters_of(config, _PARAMETERS)
        workers = _count(texts, "workers", 1)
        queue = _count(texts, "max_queue_size", QUEUE)
        start_server(PRELOAD)
        body = pickled(PreBody(PayloadReader(), plan_pre(pre.ops)), pre.name)
        self._preparers: list[Preparer] = []
        try:
            for _ in range(workers):
                self._preparers.append(Preparer(pre.name, body, self._specs, pre.timeout))
            for preparer in self._preparers:
                preparer.open()
        except BaseException:
            for preparer in self._preparers:
                preparer.close()
            raise
        self._dispatcher = Dispatcher(
            RequestQueue(queue),
            [partial(self._answer, preparer) for preparer in self._preparers],
            capacity=1,
            merged=False,
            tell=tell,
            senders=0,
        )

    def _values(self, request: Any) -> Any:
        (values,) = (each.as_numpy() for each in request.inputs() if each.name() == self._input)
        if self._given is not None:
            checked_rows({self._input: values}, [self._given])
            return values
        if values.shape != (len(values), 1):
            shape = list(values.shape)
            raise ItemError("shape", f"input {self._input!r} has shape {shape}; expected [n, 1]")
        return values[:, 0]

    def _answer(self, preparer: Preparer, asks: Sequence[Ask]) -> list[Any]:
        return [self._reply(preparer, ask) for ask in asks]

    def _reply(self, preparer: Preparer, ask: Ask) -> Any:
        import triton_python_backend_utils as pb_utils

        request = ask.request
        try:
            limit_s = request.timeout() / 1e6
            if limit_s and time.monotonic() - ask.began > limit_s:
                raise ItemError("expired", f"the request's timeout of {limit_s:g} s has passed")
            if ask.sender.is_cancelled():
                raise ItemError("cancelled", "the request was cancelled by its client")
            made = self._made(preparer, ask.arrays[self._input])
            wanted = request.requested_output_names()
            return pb_utils.InferenceResponse([
                pb_utils.Tensor(name, array) for name, array in made.items() if name in wanted
            ])  # fmt: skip
        except RowFailed as failed:
            return reply_error(self._stage, failed.error, failed.shown)
        except Exception as error:  # noqa: BLE001 - it is this request's answer
            return reply_error(self._stage, error)

    def _made(self, preparer: Preparer, values: Any) -> Mapping[str, NDArray[Any]]:
        count = len(values)
        texts = np.empty((count, 1), object)
        made: dict[str, NDArray[Any]] = {}
        if count > _ROWS or not count:
            made = {each.name: np.empty((count, *each.shape), each.dtype) for each in self._specs}
        for first in range(0, count, _ROWS):
            part = values[first : first + _ROWS]
            for row, result in enumerate(preparer.write([to_payload(v) for v in part]), first):
                if not isinstance(result, bytes):
                    raise RowFailed(row, count, ItemError(result.kind, result.text))
                texts[row, 0] = to_json(metas.decode(result))
            views = preparer.rows(len(part))
            if count <= _ROWS:
                made = dict(views)
            else:
                for name, view in views.items():
                    made[name][first : first + len(part)] = view
        return {**made, META: texts}

    def _interrupt(self) -> None:
        for preparer in self._preparers:
            preparer.interrupt()


def _count(texts: Mapping[str, str], name: str, default: int) -> int:
    text = texts.get(name) or str(default)
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"parameter {name}: expected a number of at least 1, got {text!r}")
    return int(text)
