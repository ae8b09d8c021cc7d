from __future__ import annotations

import pytest

from gepipe.errors import ConfigError
from gepipe.triton.address import Address


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://box:8000", Address("http", "box", 8000)),
        ("http://box:8000/", Address("http", "box", 8000)),
        ("grpc://box", Address("grpc", "box", 8001)),
        ("box", Address("http", "box", 8000)),
        ("box:8001", Address("grpc", "box", 8001)),
        ("127.0.0.1:9000", Address("http", "127.0.0.1", 9000)),
        ("http://[::1]:8000", Address("http", "::1", 8000)),
    ],
)
def test_address_is_read(text, expected) -> None:
    assert Address.parse(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "http://", "http://box:port", "box:99999", "https://box", "http://box/v2", "http://a@box"],
)
def test_what_is_no_address_is_refused_with_what_was_expected(text) -> None:
    with pytest.raises(ConfigError, match=r"expected http://host:8000"):
        Address.parse(text)


def test_address_is_written_as_clients_take_it() -> None:
    assert Address("http", "::1", 8000).netloc == "[::1]:8000"
    assert str(Address("grpc", "box", 8001)) == "grpc://box:8001"
