import socket

import pytest

from gepipe.errors import ConfigError
from gepipe.triton.ports import at, free_ports, reachable


def test_zero_is_any_port_and_they_differ() -> None:
    found = free_ports("127.0.0.1", dict.fromkeys(("http", "grpc", "metrics", "health"), 0))

    assert list(found) == ["http", "grpc", "metrics", "health"]
    assert len(set(found.values())) == 4
    assert all(20_000 <= port < 32_768 for port in found.values())


def test_a_taken_port_is_named_with_its_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            ConfigError, match=f"--grpc-port {port}: taken on 127.0.0.1; .* 0 takes"
        ):
            free_ports("127.0.0.1", {"http": 0, "grpc": port})


def test_one_port_cannot_be_wanted_twice() -> None:
    port = free_ports("127.0.0.1", {"http": 0})["http"]

    with pytest.raises(ConfigError, match=f"--health-port {port}: taken"):
        free_ports("127.0.0.1", {"http": port, "health": port})


def test_a_port_is_free_again_soon_after_its_server_ended() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)), server.accept()[0]:
            pass  # which leaves it in TIME_WAIT

    assert free_ports("127.0.0.1", {"http": port}) == {"http": port}


@pytest.mark.parametrize("host", ["no.such.host.invalid", "203.0.113.7"])
def test_an_address_that_is_not_ours_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match=f"--host {host}: "):
        free_ports(host, {"http": 0})


def test_addresses_are_written_as_urls_want_them() -> None:
    assert reachable("0.0.0.0") == "127.0.0.1"
    assert reachable("10.0.0.1") == "10.0.0.1"
    assert at("127.0.0.1", 80) == "127.0.0.1:80"
    assert at(reachable("::"), 80) == "[::1]:80"
