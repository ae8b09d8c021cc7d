"""`gepipe triton serve` in a process of its own, for tests."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gepipe.triton.control import Control, ControlError
from gepipe.triton.processes import children_of
from tests.support import wait_until

GEPIPE = [sys.executable, "-c", "from gepipe.cli.app import main; main()"]
ANY_PORT = [f"--{name}-port=0" for name in ("http", "grpc", "metrics", "health")]


class Serve:
    """The command in a process of its own."""

    def __init__(
        self, repository: Path, tmp_path: Path, *options: str, ports: Sequence[str] = ANY_PORT
    ) -> None:
        self.said = tmp_path / f"said-{len(list(tmp_path.glob('said-*')))}.txt"
        environ = {**os.environ, "TMPDIR": str(tmp_path)}
        environ.pop("TRITON_HOME", None)
        with self.said.open("w") as output:
            self.process = subprocess.Popen(
                [*GEPIPE, "triton", "serve", str(repository), *ports, *options],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environ,
                start_new_session=True,
            )

    @property
    def text(self) -> str:
        return self.said.read_text()

    def wait_for(self, text: str, deadline_s: float = 120) -> str:
        def found() -> bool:
            assert text in self.text or self.process.poll() is None, self.text
            return text in self.text

        wait_until(found, deadline_s, else_raise=False)
        assert text in self.text, self.text
        return self.text

    def wait_ready(self) -> None:
        text = self.wait_for("Ctrl-C stops it")
        self.http = int(re.search(r"HTTP http://127\.0\.0\.1:(\d+)", text)[1])
        self.grpc = int(re.search(r"gRPC 127\.0\.0\.1:(\d+)", text)[1])
        self.health = int(re.search(r"health http://127\.0\.0\.1:(\d+)", text)[1])
        self.prefix = re.search(r"/(gepipe_\d+_\w+)\.log", text)[1]
        self.control = Control("127.0.0.1", self.http, 0)

    @property
    def server_pid(self) -> int:
        for child in children_of(self.process.pid):
            if any("tritonserver" in word for word in child.command[:1]):
                return child.pid
        return 0

    def stubs(self, model: str = "") -> list[int]:
        return [
            child.pid
            for child in children_of(self.server_pid)
            if any(word.startswith(f"{model}_" if model else "") for word in child.command[-2:-1])
        ]

    def regions(self) -> list[Path]:
        return list(Path("/dev/shm").glob(f"{self.prefix}*"))

    def ask(self, port: int, path: str, body: object = None) -> tuple[int, dict]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        try:
            connection.request(
                "GET" if body is None else "POST",
                path,
                None if body is None else json.dumps(body),
                {"Connection": "close"},
            )
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def infer(self, model: str, value: float = 0, pause_s: float = 0) -> float:
        """Return what a model makes of a number."""
        tensor = {"name": "x", "shape": [1, 2], "datatype": "FP64", "data": [value, pause_s]}
        status, answer = self.ask(self.http, f"/v2/models/{model}/infer", {"inputs": [tensor]})
        if status != 200:
            raise ControlError(answer["error"])
        return answer["outputs"][0]["data"][0]

    def is_ready(self) -> bool:
        return self.ask(self.health, "/readyz")[0] == 200

    def answers(self, model: str = "sum") -> bool:
        with suppress(ControlError):
            return self.infer(model, 5) == 16
        return False

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(120)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        print(self.text)  # noqa: T201 - shown where a test fails
        for region in Path("/dev/shm").glob(f"gepipe_{self.process.pid}_*"):
            region.unlink()
