"""A model on a device, as the server's Python backend calls it: the class behind `backend/ge`."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gepipe import plugins
from gepipe.engines.gears import portions
from gepipe.errors import ConfigError, GepipeError, InternalError, ItemError
from gepipe.pipeline.bodies import InferBody
from gepipe.pipeline.crews import pickled, worker_environment
from gepipe.runtime.forkserver import start_server
from gepipe.runtime.memory import SlotLayout
from gepipe.serving.declared import ROWS, Declared
from gepipe.serving.dispatcher import Dispatcher
from gepipe.serving.execution import Execution
from gepipe.serving.host import ModelHost
from gepipe.serving.merging import Query, checked_rows
from gepipe.serving.metrics import Metrics, OpenRequests, labels_of
from gepipe.serving.rawrows import elements_of, raw_of, rows_from
from gepipe.serving.replies import kind_of, reply_error
from gepipe.serving.request import wants_realtime
from gepipe.serving.request_queue import RequestQueue
from gepipe.serving.server_memory import ServerMemory, view_of
from gepipe.serving.settings import Settings
from gepipe.serving.stub import settle
from gepipe.serving.textrows import TextRows
from gepipe.serving.wanted import Wanted
from gepipe.tensors import DYNAMIC

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gepipe.engines.engine import EngineOptions

log = logging.getLogger(__name__)

#: What the process of the model would otherwise import each time it is replaced.
_PRELOAD: Final = ("gepipe.pipeline.bodies",)
#: An engine that keeps time itself is killed only if it does not even manage that.
_KILL_FACTOR: Final = 2
_KILL_S: Final = 5.0


class _Place:
    """The model on one device, in a process of its own.

    Attributes:
        host: Where the model is open.
        memory: Where the server puts what requests carry.
        metrics: What is counted there.
        wanted: Looks whether requests are still wanted.
    """

    def __init__(self, args: Mapping[str, str], settings: Settings, options: EngineOptions) -> None:
        self._device = options.device
        self.metrics = Metrics(labels_of(args), [options.device])
        self.host = ModelHost(
            settings.stage,
            pickled(InferBody(settings.engine, settings.model, options), settings.stage),
            worker_environment(),
            self.metrics.changed,
            settings.model,
        )
        self.memory = ServerMemory()
        self.wanted = Wanted()

    def executed(self, began: float, rows: int, at: float, took_s: float, busy_ns: int) -> None:
        """Count an execution; see `Execution`."""
        self.wanted.worked(rows, busy_ns / 1e9)
        self.metrics.executed(
            self._device, rows, wait_s=at - began, took_s=took_s, busy_s=busy_ns / 1e9
        )


def _open_places(args: Mapping[str, str], settings: Settings) -> list[_Place]:
    """Open the model everywhere at the same time, which takes long for a large one.

    Raises:
        GepipeError: It cannot be opened somewhere; it is open nowhere then.
    """
    with ThreadPoolExecutor(len(settings.places)) as pool:
        opening = [pool.submit(_Place, args, settings, each) for each in settings.places]
    errors = [error for each in opening if (error := each.exception()) is not None]
    places = [each.result() for each in opening if each.exception() is None]
    if errors:
        for place in places:
            place.host.close()
        raise errors[0]
    return places


class Backend:
    """One instance of a served model.

    Attributes:
        notes: Facts worth telling the user once.
    """

    def __init__(self, args: Mapping[str, str], config: Mapping[str, Any], folder: Path) -> None:
        """Open the model.

        Args:
            args: What the server hands to `initialize`.
            config: The model's configuration, parsed.
            folder: The version folder.

        Raises:
            GepipeError: The configuration is wrong, or the model cannot be opened.
        """
        if args.get("model_instance_kind") == "GPU":
            raise ConfigError("instance_group: KIND_GPU is for GPUs; expected KIND_MODEL")
        declared = Declared.read(config)
        if declared.is_empty:
            raise ConfigError(
                "neither input nor output is declared; write them, or start the server without "
                "--disable-auto-complete-config"
            )
        settings = Settings.read(
            config, folder, args["model_instance_name"], declared.max_batch_size
        )
        self._stage = settings.stage
        start_server(_PRELOAD)
        self._places = _open_places(args, settings)
        try:
            self._lay_out(declared, settings)
        except BaseException:
            self._close_places()
            raise
        for place in self._places:
            place.metrics.changed(True)
        self._dispatcher: Dispatcher | None = None
        if settings.queue is not None:
            self._dispatcher = Dispatcher(
                RequestQueue(settings.queue, settings.max_wait_s, self._places[0].host.info.gears),
                [partial(self._answer, place, kept=True) for place in self._places],
                capacity=lambda: self._capacity,
                merged=self._merged,
                tell=OpenRequests(args).tell,
            )
        self.notes = tuple(
            dict.fromkeys(note for place in self._places for note in place.host.info.notes)
        )

    def execute(self, requests: Sequence[Any]) -> list[Any] | None:
        """Answer requests: one response for each, in order, or later by their senders."""
        queries = [self._query_of(request) for request in requests]
        if self._dispatcher is None:
            return self._answer(self._places[0], queries, kept=False)
        for query in queries:
            query.sender = query.request.get_response_sender()
            try:
                if query.error is not None:
                    raise query.error
                self._dispatcher.take(query, realtime=wants_realtime(query.request.parameters()))
            except Exception as error:  # noqa: BLE001 - one bad request must not fail the others
                self._places[0].metrics.answered(1, [kind_of(error)])
                self._dispatcher.reply(query, reply_error(self._stage, error))
        return None

    def close(self) -> None:
        """Close the model, within the grace of its process."""
        if self._dispatcher is not None:
            self._dispatcher.close(self._close_places)
        self._close_places()
        for place in self._places:
            place.memory.close()

    def _close_places(self) -> None:
        for place in self._places:
            place.host.close()

    def _answer(self, place: _Place, queries: Sequence[Query], *, kept: bool) -> list[Any]:
        """Execute requests and return their responses. Never raises."""
        try:
            self._execution(place, queries).run(
                [query for query in queries if query.error is None], kept=kept
            )
        except Exception as error:  # one that escaped would fail all requests, with our paths
            log.exception("%s: requests could not be executed", self._stage)
            for query in queries:
                query.error = query.error or InternalError(f"{type(error).__name__}: {error}")
        for query in queries:
            query.error = query.error or self._texts.misfit(query.pieces)
        failures = [kind_of(query.error) for query in queries if query.error is not None]
        place.metrics.answered(len(queries), failures)
        return [self._reply(query) for query in queries]

    def _execution(self, place: _Place, queries: Sequence[Query]) -> Execution:
        began = min((query.began for query in queries), default=0.0)
        return Execution(
            place.host,
            capacity=self._capacity,
            merged=self._merged,
            is_unwanted=place.wanted.refusal,
            report=lambda *what: place.executed(began, *what),
            memory=place.memory if self._is_lent else None,
        )

    def _lay_out(self, declared: Declared, settings: Settings) -> None:
        info = self._places[0].host.info
        inputs, outputs = declared.matched(info.inputs, info.outputs)
        self._merged = declared.max_batch_size > 0
        self._capacity = declared.max_batch_size or (
            declared.rows if declared.rows != DYNAMIC else max(info.gears, default=ROWS)
        )
        self._texts = TextRows((*inputs, *outputs), settings.places[0].text_bytes)
        self._inputs = self._texts.packed(inputs)
        self._raw_inputs = raw_of(declared.inputs, inputs)
        self._raw_outputs = raw_of(declared.outputs, outputs)
        engine = plugins.load("engines", settings.engine)
        self._is_lent = getattr(engine, "copies_inputs", False) and not self._raw_inputs
        wanted = [spec.name for spec in declared.outputs]
        self._outputs = {spec.name: spec for spec in outputs if spec.name in wanted}
        # A row that is a single number has dims [1] in a configuration of batches.
        self._flat = {spec.name for spec in inputs if not spec.shape and self._merged}
        limit_s = math.inf
        timeout_s = settings.places[0].timeout_s
        if timeout_s is not None:
            limit_s = len(list(portions(self._capacity, info.gears))) * timeout_s
            if engine.keeps_time:
                limit_s = _KILL_FACTOR * limit_s + _KILL_S
        first, second = (
            SlotLayout.of(self._texts.packed(side), self._capacity) for side in (inputs, outputs)
        )
        for place in self._places:
            place.host.lay_out(first, second, limit_s)

    def _query_of(self, request: Any) -> Query:
        query = Query(request=request, began=time.monotonic())
        arrays: dict[str, NDArray[Any]] = {}
        try:
            for tensor in request.inputs():
                name = tensor.name()
                arrays[name] = self._read(name, tensor)
            query.rows = checked_rows(arrays, self._inputs)
            query.arrays = arrays
        except ItemError as error:
            query.error = error
        except Exception as error:  # noqa: BLE001 - what cannot be read is the request's fault
            query.error = ItemError("unreadable", f"the tensors cannot be read: {error}")
        return query

    def _read(self, name: str, tensor: Any) -> NDArray[Any]:
        """Return an input as the model takes it."""
        if name in self._raw_inputs:
            (spec,) = (each for each in self._inputs if each.name == name)
            return rows_from(tensor.as_numpy(), spec)
        array = view_of(tensor) if self._is_lent else tensor.as_numpy()
        array = array.reshape(-1) if name in self._flat else array
        return self._texts.rows_from(name, array) if name in self._texts else array

    def _reply(self, query: Query) -> Any:
        if query.error is not None:
            return reply_error(self._stage, query.error)
        import numpy as np
        import triton_python_backend_utils as pb_utils

        tensors = []
        for name in query.request.requested_output_names():
            spec = self._outputs.get(name)
            if spec is None:
                continue
            match query.pieces.get(name, []):
                case []:
                    (empty,) = self._texts.packed([spec])
                    array = np.empty((0, *empty.shape), empty.dtype)
                case [array]:
                    pass
                case pieces:
                    array = np.concatenate(pieces)
            if name in self._texts:
                array = self._texts.elements_of(name, array)
            if name in self._raw_outputs:
                array = elements_of(array, self._raw_outputs[name])
            elif not spec.shape and self._merged:
                array = array[:, None]
            tensors.append(pb_utils.Tensor(name, array))
        return pb_utils.InferenceResponse(output_tensors=tensors)


def open_backend(args: Mapping[str, str]) -> Backend:
    """Open a model in the server's process.

    Raises:
        Exception: `pb_utils.TritonModelException`, whose text the server shows as it is.
    """
    import triton_python_backend_utils as pb_utils

    settle()
    try:
        config = json.loads(args["model_config"])
        opened = Backend(args, config, Path(pb_utils.get_model_dir()))
    except GepipeError as error:
        raise pb_utils.TritonModelException(str(error)) from None
    for note in opened.notes:
        pb_utils.Logger.log_info(f"{args['model_instance_name']}: {note}")
    return opened
