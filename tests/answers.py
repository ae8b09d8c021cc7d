"""Asks a service and waits for what it says."""

from __future__ import annotations

import json
import threading
from typing import Any

from gepipe.io.failures import Failure
from gepipe.serving.service import Service


class Answers:
    """What callers were told."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.given: dict[int, list[Any]] = {}
        self._changed = threading.Condition()

    def ask(self, payload: Any, **more: Any) -> int:
        box: list[Any] = []

        def answer(result: Any) -> None:
            with self._changed:
                box.append(result)
                self._changed.notify_all()

        token = self.service.submit(payload, answer=answer, **more)
        self.given[token] = box
        return token

    def wait(self, *tokens: int, deadline_s: float = 60.0) -> list[Any]:
        """Return the answers, decoded, once all are given."""
        wanted = tokens or tuple(self.given)
        with self._changed:
            assert self._changed.wait_for(lambda: all(self.given[t] for t in wanted), deadline_s)
        assert all(len(box) == 1 for box in self.given.values() if box), "answered twice"
        results = [self.given[token][0] for token in wanted]
        return [r if isinstance(r, Failure) else json.loads(r) for r in results]
