"""The process that makes files beside a run, as its sink sees it."""

from __future__ import annotations

import os
import signal
import threading

from gepipe.errors import GepipeError
from gepipe.video.sinkprocess import SinkProcess, serve


class Nothing:
    """A body that makes nothing."""

    def do(self, *_message):
        return iter(())

    def finish(self):
        return iter(())

    def rest(self) -> None:
        pass

    def drop(self) -> None:
        pass


def work(sock) -> None:
    serve(sock, Nothing())


def reason_of_each(process: SinkProcess) -> list[str]:
    """Return what threads are told that ask for the reason of an end, or give more to do."""
    told: list[str] = []

    def ask() -> None:
        told.append(str(process.gone()))

    def send() -> None:
        try:
            while True:
                process.send(("more",))
        except GepipeError as error:
            told.append(str(error))

    threads = [threading.Thread(target=each) for each in (ask, send, ask, send)]
    for thread in threads:
        thread.start()
    os.kill(process._child.process.pid, signal.SIGKILL)
    for thread in threads:
        thread.join()
    return told


def test_all_threads_are_told_alike_why_it_ended():
    for _ in range(10):
        process = SinkProcess("test", work, ())

        told = reason_of_each(process)

        assert len(told) == 4
        assert len(set(told)) == 1
        assert "killed by SIGKILL" in told[0]
        process.close()
