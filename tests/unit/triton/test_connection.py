"""What a call makes of a server that goes away."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

import gevent
import pytest

from gepipe.triton.address import Address
from gepipe.triton.connection import Busy, Connection, ServedModel

gevent.get_hub()  # the client library's; its descriptors stay


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nContent-Le"])
def test_a_server_that_goes_away_during_a_call_may_come_back(said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def go_away() -> None:
            with suppress(OSError):  # nobody is listened to any more
                while True:  # the newest library for Python 3.10 asks once more by itself
                    peer, _ = listener.accept()
                    with peer:
                        asked = b""  # all of it: what is left unread would make the end an abortion
                        while not asked.endswith(b"photo"):
                            asked += peer.recv(1 << 16)
                        peer.sendall(said)

        leaving = threading.Thread(target=go_away)
        leaving.start()
        connection = Connection(Address.parse(f"http://127.0.0.1:{listener.getsockname()[1]}"), 60)
        connection.open()
        with pytest.raises(Busy, match="closed the connection before it answered"):
            connection.call(ServedModel("m", "IMAGE", "BYTES", True, "RESULT"), b"photo")
        connection.close()
        listener.shutdown(socket.SHUT_RDWR)
        leaving.join()
