"""Ports that nobody listens on yet: the server finds a taken one only after loading all models."""

from __future__ import annotations

import errno
import os
import random
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final

from gepipe.errors import ConfigError

#: Where ports are picked from: below those that Linux gives to outgoing connections, one of which
#: could take a port between its choice and the server's start.
_PICKED: Final = range(20_000, 32_768)
_TRIES: Final = 100


def free_ports(host: str, wanted: Mapping[str, int]) -> dict[str, int]:
    """Return the wanted ports, with a free one in place of each 0.

    Args:
        host: The address to listen on.
        wanted: Purpose, such as `http`, to port.

    Raises:
        ConfigError: A port is taken, wanted twice, or not for us; or the address is not ours.
    """
    found: dict[str, int] = {}
    with ExitStack() as held:
        # Those that are named come first, so that none of them is picked for a 0.
        for purpose, port in sorted(wanted.items(), key=lambda each: each[1] == 0):
            found[purpose] = held.enter_context(_bound(host, purpose, port))
    return {purpose: found[purpose] for purpose in wanted}


@contextmanager
def _bound(host: str, purpose: str, port: int) -> Iterator[int]:
    option = f"--{purpose}-port {port}"
    try:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, OverflowError) as error:
        raise ConfigError(f"--host {host}: no such address: {error}") from error
    ports = (*random.SystemRandom().sample(_PICKED, _TRIES), 0) if port == 0 else (port,)
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        if port:  # may be in TIME_WAIT; one that is picked must not be another's that picks, too
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            _bind(listener, address, ports)
            listener.listen(1)
        except OSError as error:
            raise _complaint(host, option, error) from error
        yield listener.getsockname()[1]


def _bind(listener: socket.socket, address: tuple[Any, ...], ports: Sequence[int]) -> None:
    """Bind a socket to the first of some ports that is free."""
    *others, last = ports
    for port in others:
        with suppress(OSError):
            listener.bind((address[0], port, *address[2:]))
            return
    listener.bind((address[0], last, *address[2:]))


def _complaint(host: str, option: str, error: OSError) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        return ConfigError(
            f"{option}: taken on {host}; expected a free port; 0 takes any that is free"
        )
    if error.errno == errno.EACCES:
        return ConfigError(f"{option}: not allowed; expected a port from 1024 on")
    if error.errno == errno.EADDRNOTAVAIL:
        return ConfigError(f"--host {host}: not an address of this machine")
    return ConfigError(f"{option}: {os.strerror(error.errno or 0).lower()}")


def reachable(host: str) -> str:
    """Return the address under which this machine reaches a server that listens on `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)  # noqa: S104


def at(host: str, port: int) -> str:
    """Return `host:port` as a URL writes it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
