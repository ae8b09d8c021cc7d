"""Where a server is: `http://host:8000`, `grpc://host:8001`, or a host alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import urlsplit

from gepipe.errors import ConfigError

Protocol = Literal["http", "grpc"]

#: The ports that Triton listens on if it is told nothing else.
PORTS: Final[dict[Protocol, int]] = {"http": 8000, "grpc": 8001}


@dataclass(frozen=True, slots=True)
class Address:
    """A server's address.

    Attributes:
        protocol: `http` or `grpc`.
        host: Name or number; an IPv6 number without its brackets.
        port: The port.
    """

    protocol: Protocol
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read an address; without a protocol it is `http`, except at gRPC's usual port.

        Raises:
            ConfigError: It is none.
        """
        wanted = "expected http://host:8000, grpc://host:8001, or host:port"
        try:
            parts = urlsplit(text if "://" in text else f"//{text}")
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise ConfigError(f"{text!r} is no address of a server: {error}; {wanted}") from None
        if not host or parts.path.strip("/") or parts.query or parts.fragment or parts.username:
            raise ConfigError(f"{text!r} is no address of a server; {wanted}")
        if parts.scheme not in ("", "http", "grpc"):
            raise ConfigError(f"{text!r}: protocol {parts.scheme!r} is not supported; {wanted}")
        protocol: Protocol = "http"
        if parts.scheme == "grpc" or (not parts.scheme and port == PORTS["grpc"]):
            protocol = "grpc"
        return cls(protocol, host, PORTS[protocol] if port is None else port)

    @property
    def netloc(self) -> str:
        """Host and port, as the client libraries take them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.protocol}://{self.netloc}"
