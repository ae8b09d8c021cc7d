"""Asks a running server about its models, and tells it which to load."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from gepipe.errors import ConfigError, GepipeError
from gepipe.triton.environment import EXTRA
from gepipe.triton.ports import at

_LOAD: Final = "/inference.GRPCInferenceService/RepositoryModelLoad"
_ANSWER_S: Final = 10.0
_UNLOAD_S: Final = 3.0  # a millisecond by itself


class ControlError(GepipeError):
    """The server refused, or did not answer."""

    exit_code = 4


@dataclass(frozen=True)
class Control:
    """The control side of a server.

    Every call has a connection of its own: the server's end would wait for an open one.

    Attributes:
        host: Its address.
        port: Its HTTP port.
        grpc_port: Its gRPC port.
    """

    host: str
    port: int
    grpc_port: int

    def is_live(self) -> bool:
        """Whether it answers at all."""
        try:
            self._call("GET", "/v2/health/live", timeout_s=2.0)
        except ControlError:
            return False
        return True

    def load(self, model: str) -> None:
        """Load a model, or its new version; returns when it serves, which may take any time.

        This one call goes by gRPC: by HTTP it would hold up every client whose connection has
        fallen to the same thread of the server, for as long as it takes.

        Raises:
            ControlError: It does not load; what was loaded before serves on.
        """
        grpc = library()
        name = model.encode()
        request = b"\x12" + _varint(len(name)) + name  # RepositoryModelLoadRequest.model_name
        options = [("grpc.enable_http_proxy", 0)]
        with grpc.insecure_channel(at(self.host, self.grpc_port), options) as channel:
            try:
                channel.unary_unary(_LOAD)(request)
            except grpc.RpcError as error:
                raise ControlError(error.details() or str(error.code())) from error

    def unload(self, model: str) -> None:
        """Unload a model; what it works on comes to its end.

        Raises:
            ControlError: The server does not answer, as while it loads a model.
        """
        path = f"/v2/repository/models/{quote(model, safe='')}/unload"
        self._call("POST", path, {}, timeout_s=_UNLOAD_S)

    def index(self) -> list[dict[str, Any]]:
        """Return name, version, state and reason of every model that the server sees.

        Raises:
            ControlError: The server does not answer.
        """
        found: list[dict[str, Any]] = self._call("POST", "/v2/repository/index", {})
        return found

    def config(self, model: str) -> dict[str, Any]:
        """Return the whole configuration of a loaded model.

        Raises:
            ControlError: It is not loaded, or the server does not answer.
        """
        found: dict[str, Any] = self._call("GET", f"/v2/models/{quote(model, safe='')}/config")
        return found

    def statistics(self) -> list[dict[str, Any]]:
        """Return the statistics of all loaded models.

        Raises:
            ControlError: The server does not answer.
        """
        found: list[dict[str, Any]] = self._call("GET", "/v2/models/stats")["model_stats"]
        return found

    def metrics(self, port: int) -> str:
        """Return what it tells on its port for metrics.

        Raises:
            ControlError: The server does not answer.
        """
        return self._text("GET", "/metrics", port=port)

    def _call(
        self, method: str, path: str, body: Any = None, timeout_s: float | None = _ANSWER_S
    ) -> Any:
        text = self._text(method, path, body, timeout_s)
        try:
            return json.loads(text) if text else None
        except ValueError as error:
            raise ControlError(f"the server's answer is no JSON: {text[:200]!r}") from error

    def _text(
        self,
        method: str,
        path: str,
        body: Any = None,
        timeout_s: float | None = _ANSWER_S,
        port: int | None = None,
    ) -> str:
        connection = http.client.HTTPConnection(self.host, port or self.port, timeout=timeout_s)
        try:
            connection.request(
                method,
                path,
                None if body is None else json.dumps(body),
                {"Connection": "close"},
            )
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            raise ControlError(f"the server does not answer: {error or type(error)}") from error
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise ControlError(_reason(text) or f"the server answers with {answer.status}")
        return text


def _reason(text: str) -> str:
    try:
        found = json.loads(text)
    except ValueError:
        return text.strip()
    return str(found.get("error", text)) if isinstance(found, dict) else text


def library() -> Any:
    """Return the library for gRPC.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        import grpc
    except ImportError as error:
        raise ConfigError(f"{error}; {EXTRA}") from error
    return grpc


def _varint(number: int) -> bytes:
    """Return a number as protobuf writes it."""
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*written, number])
