"""The process that makes files beside a run, as its sink sees it."""

from __future__ import annotations

import os
import signal
import threading

from gepipe.errors import GepipeError
from gepipe.video.maker import Maker, serve


class Nothing:
    """A workshop that makes nothing."""

    def do(self, *_message):
        return iter(())

    def finish(self):
        return iter(())

    def drop(self) -> None:
        pass


def work(sock) -> None:
    serve(sock, Nothing())


def reason_of_each(maker: Maker) -> list[str]:
    """Return what threads are told that ask for the reason of an end, or give more to do."""
    told: list[str] = []

    def ask() -> None:
        told.append(str(maker.gone()))

    def send() -> None:
        try:
            while True:
                maker.send(("more",))
        except GepipeError as error:
            told.append(str(error))

    threads = [threading.Thread(target=each) for each in (ask, send, ask, send)]
    for thread in threads:
        thread.start()
    os.kill(maker._child.process.pid, signal.SIGKILL)
    for thread in threads:
        thread.join()
    return told


def test_all_threads_are_told_alike_why_it_ended():
    for _ in range(10):
        maker = Maker("test", work, ())

        told = reason_of_each(maker)

        assert len(told) == 4
        assert len(set(told)) == 1
        assert "killed by SIGKILL" in told[0]
        maker.close()
