import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from gepipe.errors import ConfigError
from gepipe.triton.control import Control, ControlError, _varint, library
from gepipe.triton.ports import free_ports


class Answers(BaseHTTPRequestHandler):
    """Answers as the server does when something is wrong."""

    def do_GET(self) -> None:
        status, body = {
            "/v2/models/a%2Fb/config": (404, b'{"error":"unknown model"}'),
            "/v2/models/stats": (500, b""),
            "/metrics": (200, b"nv_x 1"),
        }.get(self.path, (200, b"no JSON"))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_) -> None:
        pass


@pytest.fixture
def control():
    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield Control("127.0.0.1", server.server_port, 0)
        server.shutdown()
        thread.join()


def test_refusals_are_the_servers_own_words(control) -> None:
    with pytest.raises(ControlError, match=r"^unknown model$"):
        control.config("a/b")
    with pytest.raises(ControlError, match="answers with 500"):
        control.statistics()
    with pytest.raises(ControlError, match="no JSON: 'no JSON'"):
        control.config("c")
    assert control.metrics(control.port) == "nv_x 1"


def test_a_server_that_is_not_there_is_an_error_of_the_same_kind() -> None:
    ports = free_ports("127.0.0.1", {"http": 0, "grpc": 0})
    subject = Control("127.0.0.1", ports["http"], ports["grpc"])

    assert not subject.is_live()
    with pytest.raises(ControlError, match="does not answer"):
        subject.unload("a")
    with pytest.raises(ControlError, match="onnect"):
        subject.load("a")


def test_the_library_that_is_missing_is_named_with_its_extra(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)

    with pytest.raises(ConfigError, match=r"pip install 'gepipe\[triton\]'"):
        library()


@pytest.mark.parametrize(("number", "written"), [(1, b"\x01"), (127, b"\x7f"), (300, b"\xac\x02")])
def test_lengths_are_written_as_protobuf_does(number: int, written: bytes) -> None:
    assert _varint(number) == written
