"""A whole pipeline as one served model: what the server finds under `TritonPythonModel`.

    server ─▶ execute ─▶ rows ─submit─▶ Service ─answers─▶ outbox ─▶ senders ─▶ server

`execute` returns at once, so the next requests come while earlier ones are in work; each request
is answered once, by its response sender, as soon as the last of its rows is. A request's parameter
`realtime` (true or false) is its class: Triton's own priorities do not reach a Python model.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from gepipe.errors import GepipeError, ItemError
from gepipe.serving.bundle import load_bundle
from gepipe.serving.metrics import Metrics, OpenRequests, labels_of
from gepipe.serving.replies import kind_of, reply_error
from gepipe.serving.request import OpenRequest, rows_of, wants_realtime
from gepipe.serving.service import Service
from gepipe.serving.stub import leave, settle

log = logging.getLogger(__name__)

#: Threads that send answers: sending one takes 200 µs, most of it waiting for the server.
_SENDERS: Final = 2
_TICK_S: Final = 0.05
#: Requests that are asked at each tick whether their client is gone; asking takes 30 µs.
_LOOKS_A_TICK: Final = 32
#: How long the service may take to finish. The server itself waits for its requests before.
_DRAIN_S: Final = 2.0


class Fused:
    """The pipeline that lies in the version folder."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Start the pipeline's workers.

        Raises:
            Exception: `pb_utils.TritonModelException`, whose text the server shows as it is.
        """
        import triton_python_backend_utils as pb_utils

        settle()
        config = json.loads(args["model_config"])
        folder = Path(args["model_repository"]) / args["model_version"]
        self._input = str(config["input"][0]["name"])
        self._is_text = config["input"][0]["data_type"] == "TYPE_STRING"
        try:
            spec = load_bundle(folder)
            self._stage = spec.pre.name
            self._service = Service(spec)
            info = self._service.start()
        except GepipeError as error:
            raise pb_utils.TritonModelException(str(error)) from None
        for note in info.notes:
            pb_utils.Logger.log_info(f"{args['model_instance_name']}: {note}")
        self._metrics = Metrics(labels_of(args), tuple(dict.fromkeys(self._service.devices)))
        self._metrics.changed(is_open=True)
        self._open_requests = OpenRequests(args)
        self._is_open = True
        self._outbox: SimpleQueue[OpenRequest | None] = SimpleQueue()
        self._open: deque[OpenRequest] = deque()
        self._answered: deque[str] = deque()  # for each request: what kind of failure, or nothing
        self._restarts = 0
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._send, name=f"gepipe sender {n}", daemon=True)
            for n in range(_SENDERS)
        ]
        self._threads.append(threading.Thread(target=self._look, name="gepipe tick", daemon=True))
        for thread in self._threads:
            thread.start()

    def execute(self, requests: Sequence[Any]) -> None:
        """Take requests; they are answered later."""
        for request in requests:
            pending = OpenRequest(request.get_response_sender(), self._outbox.put)
            try:
                rows = rows_of(request, self._input, is_text=self._is_text)
                realtime = wants_realtime(request.parameters())
            except ItemError as error:
                pending.refuse(error)
                continue
            except Exception as error:  # noqa: BLE001 - what cannot be read is the request's fault
                pending.refuse(ItemError("unreadable", f"the request cannot be read: {error}"))
                continue
            limit_us = request.timeout()
            deadline_s = limit_us / 1e6 if limit_us else None
            pending.submit(self._service, rows, realtime=realtime, deadline_s=deadline_s)
            self._open.append(pending)

    def finalize(self) -> None:
        """Finish what is there, within a limit, and stop the workers."""
        self._service.close(_DRAIN_S)
        self._stopping.set()
        for _ in range(_SENDERS):
            self._outbox.put(None)
        for thread in self._threads:
            thread.join()
        leave(self)

    # --- threads ----------------------------------------------------------------------------------

    def _send(self) -> None:
        while (pending := self._outbox.get()) is not None:
            try:
                reply, kind = pending.reply(self._stage)
            except Exception as error:
                log.exception("a request could not be answered")
                reply, kind = reply_error(self._stage, error), kind_of(error)
            self._answered.append(kind)  # first: what a client has is counted at the next tick
            pending.send(reply)

    def _look(self) -> None:
        """Cancel what nobody waits for any more, and count, every now and then."""
        while not self._stopping.wait(_TICK_S):
            try:
                self._cancel_abandoned()
                self._count()
                self._open_requests.tell(len(self._open))
            except Exception:
                log.exception("the service's numbers could not be told")
        self._count()
        self._open_requests.tell(0)

    def _cancel_abandoned(self) -> None:
        left = _LOOKS_A_TICK
        for _ in range(len(self._open)):
            pending = self._open.popleft()
            if pending.is_over:
                continue
            if left and pending.is_abandoned():
                pending.cancel(self._service)
                continue
            left = max(0, left - 1)
            self._open.append(pending)
        self._open.rotate(left - _LOOKS_A_TICK)  # the others come first next time

    def _count(self) -> None:
        # In this order: what was answered is among what was executed.
        kinds = [self._answered.popleft() for _ in range(len(self._answered))]
        for place, items, waited_s, busy_s in self._service.executed():
            device = self._service.devices[place]
            self._metrics.executed(device, items, wait_s=waited_s, took_s=busy_s, busy_s=busy_s)
        if kinds:
            self._metrics.answered(len(kinds), [kind for kind in kinds if kind])
        restarts = sum(self._service.statistics().restarts.values())
        self._metrics.replaced(restarts - self._restarts)
        self._restarts = restarts
        if self._is_open and not self._service.is_open:
            self._is_open = False
            self._metrics.changed(is_open=False)
