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
from gepipe.pipeline.crews import pickled
from gepipe.pipeline.preload import PRELOAD
from gepipe.runtime.forkserver import start_server
from gepipe.serving.asking import rows_of, wants_realtime
from gepipe.serving.bundle import load_bundle
from gepipe.serving.declared import spec_of
from gepipe.serving.dispatcher import Dispatcher
from gepipe.serving.itemmeta import META, to_json
from gepipe.serving.kinds import CANCELLED, CANCELLED_TEXT
from gepipe.serving.merging import Ask, checked_rows
from gepipe.serving.metrics import OpenRequests
from gepipe.serving.payloads import PayloadReader, to_payload
from gepipe.serving.preparer import ROWS, Preparer
from gepipe.serving.replies import RowFailed, reply_error
from gepipe.serving.request_queue import RequestQueue
from gepipe.serving.settings import parameters_of
from gepipe.serving.stub import settle
from gepipe.spec.profile import QUEUE

if TYPE_CHECKING:
    from numpy.typing import NDArray


log = logging.getLogger(__name__)

#: `workers`: its processes; `max_queue_size`: requests that may wait. Each a text.
_PARAMETERS: Final = ("max_queue_size", "workers")


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
        values = rows_of(request, self._input, is_text=self._given is None)
        if self._given is not None:
            checked_rows({self._input: values}, [self._given])
        return values

    def _answer(self, preparer: Preparer, asks: Sequence[Ask]) -> list[Any]:
        return [self._reply(preparer, ask) for ask in asks]

    def _reply(self, preparer: Preparer, ask: Ask) -> Any:
        import triton_python_backend_utils as pb_utils

        request = ask.request
        try:
            if overdue := ask.overdue():
                raise overdue
            if ask.sender.is_cancelled():
                raise ItemError(CANCELLED, CANCELLED_TEXT)
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
        if count > ROWS or not count:
            made = {each.name: np.empty((count, *each.shape), each.dtype) for each in self._specs}
        for first in range(0, count, ROWS):
            part = values[first : first + ROWS]
            for row, result in enumerate(preparer.write([to_payload(v) for v in part]), first):
                if not isinstance(result, bytes):
                    raise RowFailed(row, count, ItemError(result.kind, result.text))
                texts[row, 0] = to_json(metas.decode(result))
            views = preparer.rows(len(part))
            if count <= ROWS:
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
