"""A step of the ensemble layout that runs operators: one model of the server, many processes.

    execute ─▶ RequestQueue ─▶ thread ─▶ its worker process ─▶ rows in shared memory ─▶ server

An item that crashes an operator takes one worker with it and fails alone; Triton would not replace
a process of its own. The queue has two classes, which Triton's has only together with a batcher.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gepipe.errors import ConfigError, GepipeError
from gepipe.pipeline.crews import pickled
from gepipe.pipeline.preload import PRELOAD
from gepipe.runtime.forkserver import start_server
from gepipe.serving.dispatcher import Dispatcher
from gepipe.serving.merging import Query
from gepipe.serving.metrics import OpenRequests
from gepipe.serving.replies import RowFailed, reply_error
from gepipe.serving.request import wants_realtime
from gepipe.serving.request_queue import RequestQueue
from gepipe.serving.stageprocess import ROWS, StageProcess
from gepipe.serving.stub import leave, settle

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gepipe.runtime.events import Role
    from gepipe.tensors import TensorSpec

#: How long rows that are worked on together may take; a few are, however long they take.
_TURN_S: Final = 0.005
_QUICK_S: Final = 1e-6


class Step(ABC):
    """What is alike before and behind the model."""

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
            query = Query(request=request, began=time.monotonic())
            query.sender = request.get_response_sender()
            try:
                query.arrays, query.rows = self._read(request)
                self._dispatcher.take(query, realtime=wants_realtime(request.parameters()))
            except Exception as error:  # noqa: BLE001 - one bad request must not fail the others
                self._dispatcher.reply(query, reply_error(self._stage, error))

    def finalize(self) -> None:
        """Answer what waits, within a limit, and stop the workers."""
        self._dispatcher.close(self._interrupt)
        for process in self._processes:
            process.close()
        leave(self)

    # --- what the steps differ in -----------------------------------------------------------------

    @abstractmethod
    def _open(self, folder: Path, config: Mapping[str, Any], tell: Callable[[int], None]) -> None:
        """Read what is to be done, and `_start`."""

    @abstractmethod
    def _read(self, request: Any) -> tuple[Mapping[str, Any], int]:
        """Return a request's arrays, and how many rows it has."""

    @abstractmethod
    def _made(
        self, process: StageProcess, arrays: Mapping[str, Any], count: int
    ) -> Mapping[str, NDArray[Any]]:
        """Return the outputs of a request."""

    def _blamed(self, error: BaseException) -> str:  # noqa: ARG002 - post tells two stages apart
        """Return the name of the stage that an error is blamed on."""
        return self._stage

    # --- the workers ------------------------------------------------------------------------------

    def _start(  # noqa: PLR0913 - what workers are made of
        self,
        role: Role,
        stage: str,
        body: Any,
        *,
        specs: Sequence[TensorSpec],
        limit_s: float,
        workers: int,
        queue: int,
        rows: int = ROWS,
        merged: bool = False,
        tell: Callable[[int], None],
    ) -> None:
        self._stage, self._specs, self._rows = stage, specs, rows
        start_server(PRELOAD)
        dumped = pickled(body, stage)
        self._processes: list[StageProcess] = []
        try:
            for _ in range(workers):
                self._processes.append(StageProcess(role, stage, dumped, specs, limit_s, rows=rows))
            for process in self._processes:
                process.open()
        except BaseException:
            for process in self._processes:
                process.close()
            raise
        self._dispatcher = Dispatcher(
            RequestQueue(queue),
            [partial(self._answer, process) for process in self._processes],
            capacity=self._rows_at_once if merged else lambda: 1,
            merged=merged,
            tell=tell,
            senders=0,
        )

    def _rows_at_once(self) -> int:
        """Return how many rows are worked on together: what comes meanwhile waits for them."""
        row_s = max(process.wanted.row_s for process in self._processes)
        return max(ROWS, min(self._rows, int(_TURN_S / max(row_s, _QUICK_S))))

    def _answer(self, process: StageProcess, queries: Sequence[Query]) -> list[Any]:
        return [
            self._reply(process, query, partial(self._made, process, query.arrays, query.rows))
            for query in queries
        ]

    def _reply(
        self, process: StageProcess, query: Query, make: Callable[[], Mapping[str, NDArray[Any]]]
    ) -> Any:
        import triton_python_backend_utils as pb_utils

        try:
            if refusal := process.wanted.refusal(query):
                raise refusal
            made = make()
            wanted = query.request.requested_output_names()
            return pb_utils.InferenceResponse([
                pb_utils.Tensor(name, array) for name, array in made.items() if name in wanted
            ])  # fmt: skip
        except RowFailed as failed:
            return reply_error(self._blamed(failed.error), failed.error, failed.shown)
        except Exception as error:  # noqa: BLE001 - it is this request's answer
            return reply_error(self._stage, error)

    def _interrupt(self) -> None:
        for process in self._processes:
            process.interrupt()


def count_of(texts: Mapping[str, str], name: str, default: int) -> int:
    """Return the number that a parameter is.

    Raises:
        ConfigError: It is none.
    """
    text = texts.get(name) or str(default)
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"parameter {name}: expected a number of at least 1, got {text!r}")
    return int(text)
