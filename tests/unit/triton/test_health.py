import http.client
import json

from gepipe.triton.health import Health, Report
from gepipe.triton.ports import free_ports


def ask(port: int, path: str, method: str = "GET") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_it_answers_with_the_last_report() -> None:
    port = free_ports("127.0.0.1", {"health": 0})["health"]
    with Health("127.0.0.1", port) as subject:
        assert ask(port, "/healthz")[0] == 200
        assert ask(port, "/readyz")[0] == 503

        subject.report = Report("serving", {"a": "ready"}, {"a": "an older version"})
        status, body = ask(port, "/readyz")
        assert status == 200
        assert json.loads(body) == {
            "status": "serving",
            "ready": True,
            "models": {"a": "ready"},
            "notes": {"a": "an older version"},
        }
        assert ask(port, "/readyz", "HEAD") == (200, b"")

        subject.report = Report("serving", {"a": "ready", "b": "restarting"})
        assert ask(port, "/healthz")[0] == 200
        assert ask(port, "/readyz")[0] == 503

        subject.report = Report("lost", {"a": "the server does not answer"})
        assert ask(port, "/healthz")[0] == 503
        assert ask(port, "/readyz?x")[0] == 404
