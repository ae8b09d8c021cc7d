"""The process of one worker: set up, then serve tickets until the supervisor's end closes.

    supervisor ── ("attach", …) + memfds, then tickets ──▶ worker ──▶ body (user's stage)
    supervisor ◀── ("ready", …) or ("failed", …), then (ticket, busy_ns, results[, shapes]) ──┘

Between tickets, ("memory", nbytes) may come with one more memfd: what payloads point into; or
("lent", nbytes), with that of memory in which the rows of later batches lie, see `lent`. Shapes of
rows travel with tickets and replies where the layout of the slots leaves them open. A worker
without links is one of a run that has nothing but pre: what pre returns is the record.

A worker shares no lock with anybody. The end of its socket is the request to stop, which reaches it
also when the supervisor was killed.
"""

from __future__ import annotations

import logging
import socket
import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gepipe.runtime import tuning
from gepipe.runtime.channel import WorkerChannel
from gepipe.runtime.tickets import leave, serve, text_of

if TYPE_CHECKING:
    from gepipe.runtime.events import Role

log = logging.getLogger(__name__)


def main(
    sock: socket.socket, role: Role, place: int, body: bytes, environ: Mapping[str, str]
) -> None:
    """Run a worker. The target of its process; does not return."""
    tuning.begin_process(environ)
    channel = WorkerChannel(sock)
    try:
        import dill

        stage = dill.loads(body)
        info = stage.setup()
    except BaseException as error:  # noqa: BLE001 - whatever it is, the supervisor must hear of it
        channel.send(("failed", type(error).__name__, text_of(error), traceback.format_exc()))
        leave()
    if not channel.send(("ready", info.to_plain() if role == "infer" else None)):
        leave()
    attach = channel.receive()
    if attach is not None:
        serve(channel, role, place, stage, attach)
    if role == "infer":
        try:
            stage.close()
        except Exception as error:  # noqa: BLE001 - nothing is lost by it: all results are out
            log.warning("the model did not close: %s", text_of(error))
    leave()
