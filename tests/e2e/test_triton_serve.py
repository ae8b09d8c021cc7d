"""`gepipe triton serve` with a real server and models that add a number."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import signal
import socket
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from gepipe.triton.control import ControlError
from tests.e2e.serve import Serve
from tests.support import is_alive, wait_until

MODEL = """
import tempfile
import threading
from pathlib import Path
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        replies = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
            if x[0, 1]:
                Path(tempfile.gettempdir(), "begun").touch()
                threading.Event().wait(float(x[0, 1]))
            replies.append(pb_utils.InferenceResponse([pb_utils.Tensor("y", x + [[{add}, 0]])]))
        return replies
"""
BROKEN = """
class TritonPythonModel:
    def initialize(self, args):
        raise ValueError("no weights")

    def execute(self, requests):
        return []
"""
SLOW = f"""{MODEL}
    def initialize(self, args):
        threading.Event().wait(1)
"""
LATE = """
import threading
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy().copy()
            answer = [pb_utils.InferenceResponse([pb_utils.Tensor("y", x)])]
            sender = request.get_response_sender()
            final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
            threading.Timer(float(x[0, 1]), sender.send, answer, {"flags": final}).start()
            pb_utils.Logger.log_error("it has begun")
"""
ENDLESS = """
import threading


class TritonPythonModel:
    def initialize(self, args):
        threading.Event().wait(600)

    def execute(self, requests):
        return []
"""
COUNTING = """
import triton_python_backend_utils as pb_utils
from gepipe.serving.metrics import Metrics, labels_of


class TritonPythonModel:
    def initialize(self, args):
        self.metrics = Metrics(labels_of(args), [0])
        Metrics(labels_of(args), [0])  # of another instance, which ends

    def execute(self, requests):
        answers = []
        for request in requests:
            self.metrics.executed(0, 1, wait_s=0.01, took_s=0.01, busy_s=0.01)
            x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("y", x + 1)]))
        return answers
"""
TENSORS = """
max_batch_size: 4
input [ { name: "x" data_type: TYPE_FP64 dims: [ 2 ] } ]
output [ { name: "y" data_type: TYPE_FP64 dims: [ 2 ] } ]
"""
CONFIG = f"""backend: "python"
{TENSORS}
instance_group [ {{ kind: KIND_CPU count: 1 }} ]
"""
ENSEMBLE = f"""platform: "ensemble"
{TENSORS}
ensemble_scheduling {{ step [
  {{ model_name: "one" model_version: -1
    input_map {{ key: "x" value: "x" }} output_map {{ key: "y" value: "half" }} }},
  {{ model_name: "two" model_version: -1
    input_map {{ key: "x" value: "half" }} output_map {{ key: "y" value: "y" }} }} ] }}
"""


def write_model(repository: Path, name: str, add: float) -> None:
    version = repository / name / "1"
    version.mkdir(parents=True, exist_ok=True)
    part = version / "model.py.part"
    part.write_text(MODEL.format(add=add))
    part.rename(version / "model.py")
    if not (repository / name / "config.pbtxt").exists():
        (repository / name / "config.pbtxt").write_text(CONFIG)


@pytest.fixture
def repository(tmp_path) -> Path:
    """Return a repository in which `sum` adds 1 and then 10; its path has a space."""
    folder = tmp_path / "my models"
    write_model(folder, "one", 1)
    write_model(folder, "two", 10)
    (folder / "sum" / "1").mkdir(parents=True)
    (folder / "sum" / "1" / ".keep").touch()
    (folder / "sum" / "config.pbtxt").write_text(ENSEMBLE)
    return folder


@pytest.fixture
def serve(triton_kit, repository, tmp_path):  # noqa: ARG001 - what the command will find
    """Return what starts a server; all of them are ended."""
    started: list[Serve] = []

    def start(*options: str, ready: bool = True) -> Serve:
        started.append(Serve(repository, tmp_path, *options))
        if ready:
            started[-1].wait_ready()
        return started[-1]

    yield start
    for each in started:
        each.close()


def test_serves_tells_how_and_stops_without_a_trace(serve, tmp_path) -> None:
    subject = serve()

    assert "sum: runs one, two; batches up to 4" in subject.text
    assert "takes x: float64 (batch, 2)" in subject.text
    assert subject.infer("sum", 5) == 16
    assert subject.ask(subject.health, "/healthz") == (
        200,
        {
            "status": "serving",
            "ready": True,
            "models": {"one": "ready", "sum": "ready", "two": "ready"},
        },
    )
    assert subject.is_ready()
    assert subject.ask(subject.health, "/")[0] == 404
    server, stubs = subject.server_pid, subject.stubs()
    assert len(stubs) == 2
    assert len(subject.regions()) == 2

    assert subject.stop() == 0
    assert not any(is_alive(pid) for pid in (server, *stubs))
    assert subject.regions() == []
    assert list((tmp_path / f"gepipe-triton-{os.getuid()}").iterdir()) == []


def test_requests_in_an_ensemble_come_to_their_end_when_it_stops(serve) -> None:
    subject = serve()
    answers: list[float] = []
    requests = [
        threading.Thread(target=lambda: answers.append(subject.infer("sum", 5, 1.5)))
        for _ in range(3)
    ]
    idle = socket.create_connection(("127.0.0.1", subject.http))  # a client that keeps it open
    for request in requests:
        request.start()
    wait_until(lambda: subject.control.metrics(metrics_port(subject)).count('"one"'))
    wait_until(lambda: waiting(subject, "one") == 2)  # one runs in the first step

    began = time.monotonic()
    code = subject.stop()
    took_s = time.monotonic() - began

    for request in requests:
        request.join()
    idle.close()
    assert answers == [16, 16, 16]
    assert code == 0
    assert took_s < 25
    assert subject.regions() == []


def metrics_port(subject: Serve) -> int:
    return int(re.search(r":(\d+)/metrics", subject.text)[1])


def waiting(subject: Serve, model: str) -> int:
    text = subject.control.metrics(metrics_port(subject))
    found = re.search(rf'pending_request_count{{model="{model}"[^}}]*}} (\d+)', text)
    return int(found[1])


def test_what_does_not_end_in_time_is_killed(serve, tmp_path) -> None:
    subject = serve("--stop-timeout", "1s")
    request = threading.Thread(target=lambda: suppress_all(subject))
    request.start()
    wait_until((tmp_path / "begun").exists)

    began = time.monotonic()
    code = subject.stop(signal.SIGINT)

    assert code == 0
    assert time.monotonic() - began < 25
    assert "requests did not end within 1 s" in subject.text
    assert subject.regions() == []
    request.join()


def suppress_all(subject: Serve) -> None:
    with suppress(OSError, ControlError, http.client.HTTPException):
        subject.infer("one", 0, 60)


def test_a_second_signal_ends_it_at_once(serve, tmp_path) -> None:
    subject = serve("--stop-timeout", "60s")
    request = threading.Thread(target=lambda: suppress_all(subject))
    request.start()
    wait_until((tmp_path / "begun").exists)
    subject.process.send_signal(signal.SIGHUP)
    subject.wait_for("stopping")

    began = time.monotonic()
    subject.stop(signal.SIGINT)

    assert time.monotonic() - began < 25
    assert subject.regions() == []
    request.join()


def test_a_model_that_answers_late_is_waited_for(serve, repository) -> None:
    (repository / "one" / "1" / "model.py").write_text(LATE)
    subject = serve()
    answers: list[float] = []
    request = threading.Thread(target=lambda: answers.append(subject.infer("one", 5, 1)))
    request.start()
    subject.wait_for("it has begun")

    assert subject.stop() == 0
    request.join()
    assert answers == [5]


def test_a_stop_does_not_wait_for_a_model_that_never_loads(serve, repository) -> None:
    (repository / "one" / "1" / "model.py").write_text(ENDLESS)
    subject = serve("--stop-timeout", "60s", ready=False)
    wait_until(lambda: subject.stubs("one"))

    began = time.monotonic()
    code = subject.stop()

    assert code == 0
    assert time.monotonic() - began < 25
    assert list(Path("/dev/shm").glob(f"gepipe_{subject.process.pid}_*")) == []


def test_a_stop_does_not_wait_for_a_version_that_never_loads(serve, repository) -> None:
    subject = serve("--stop-timeout", "2s")
    (repository / "one" / "1" / "model.py").write_text(ENDLESS)
    wait_until(lambda: len(subject.stubs("one")) == 2)

    began = time.monotonic()
    code = subject.stop()

    assert code == 0
    assert time.monotonic() - began < 25
    assert subject.regions() == []


def test_a_server_that_ends_by_itself_is_followed_by_another(serve, repository) -> None:
    subject = serve()
    first, stubs = subject.server_pid, subject.stubs()
    write_model(repository, "one", 2)  # is taken in by the next one

    os.kill(first, signal.SIGKILL)

    subject.wait_for("tritonserver: it was ended by SIGKILL")
    subject.wait_for("a new server serves after")
    assert subject.infer("sum", 5) == 17
    wait_until(subject.is_ready)
    assert subject.server_pid not in {0, first}
    assert len(subject.stubs()) == len(stubs) == 2
    assert not set(stubs) & set(subject.stubs())
    assert len(subject.regions()) == 2
    assert subject.text.count("Ctrl-C stops it") == 1
    assert subject.stop() == 0
    assert subject.regions() == []


def test_a_model_that_lint_refuses_does_not_keep_others_down_after_a_crash(
    serve, repository
) -> None:
    subject = serve()
    config = repository / "sum" / "config.pbtxt"
    config.write_text(config.read_text().replace('"two"', '"three"'))

    os.kill(subject.server_pid, signal.SIGKILL)

    subject.wait_for("a new server serves after")
    assert subject.infer("one", 5) == 6
    subject.wait_for("model sum: does not load")
    wait_until(lambda: not subject.is_ready())
    assert subject.stop() == 0


def test_a_model_that_loads_no_more_does_not_keep_others_down_after_a_crash(
    serve, repository
) -> None:
    for name in ("again", "third"):  # with the same steps
        shutil.copytree(repository / "sum", repository / name)
    subject = serve()
    (repository / "two" / "1" / "model.py").write_text(BROKEN)
    subject.wait_for("model two: the new version does not load, the one before serves on")

    os.kill(subject.server_pid, signal.SIGKILL)

    text = subject.wait_for("a new server serves after")
    assert text.count("starting a server again") == 1
    since = text.partition("starting a server again")[2]
    assert since.partition("a new server serves")[0].count("no weights") == 1
    assert subject.infer("one", 5) == 6
    subject.wait_for("model sum: unavailable")
    status, told = subject.ask(subject.health, "/readyz")
    assert status == 503
    assert told["models"]["one"] == "ready"
    assert told["models"]["two"] == "restarting"

    write_model(repository, "two", 20)
    wait_until(subject.is_ready)
    assert subject.infer("sum", 5) == 26
    assert subject.stop() == 0


def test_a_model_is_not_at_fault_where_the_server_ends_while_it_loads(serve, repository) -> None:
    subject = serve()
    (repository / "two" / "1" / "model.py").write_text(SLOW.format(add=20))
    wait_until(lambda: len(subject.stubs("two")) == 2)

    os.kill(subject.server_pid, signal.SIGKILL)

    subject.wait_for("a new server serves after")
    wait_until(subject.is_ready)
    assert subject.infer("sum", 5) == 26
    assert "not load" not in subject.text
    assert subject.stop() == 0


def test_health_tells_of_a_crash_before_the_stubs_have_ended(serve) -> None:
    subject = serve()
    first, stubs = subject.server_pid, subject.stubs()

    os.kill(first, signal.SIGKILL)
    for stub in stubs:
        os.kill(stub, signal.SIGSTOP)  # as one that works on something: it does not leave

    wait_until(lambda: not subject.is_ready(), 20)
    assert any(is_alive(stub) for stub in stubs)
    wait_until(subject.is_ready)
    assert subject.stop() == 0


def test_a_stopped_server_goes_on_and_stops_in_time(serve) -> None:
    subject = serve()
    os.kill(subject.server_pid, signal.SIGSTOP)
    subject.wait_for("the server was stopped, and goes on")
    assert subject.answers()

    began = time.monotonic()
    os.kill(subject.server_pid, signal.SIGSTOP)
    assert subject.stop() == 0
    assert time.monotonic() - began < 25
    assert "did not end within" not in subject.text


def test_a_server_that_ends_again_and_again_is_given_up(serve) -> None:
    subject = serve()
    killed: set[int] = set()

    def is_over() -> bool:
        pid = subject.server_pid
        if pid and pid not in killed:
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
        return subject.process.poll() is not None

    wait_until(is_over, 120)
    assert subject.process.returncode == 4
    assert len(killed) == 6
    assert subject.text.count("starting a server again") == 5
    assert subject.text.count("starting a server again in 8 s") == 1
    assert subject.text.rstrip().splitlines()[-1].startswith("error: tritonserver: ")
    assert subject.regions() == []


def test_an_instance_counts_on_when_another_that_counted_the_same_has_ended(
    serve, repository
) -> None:
    (repository / "one" / "1" / "model.py").write_text(COUNTING)
    subject = serve()

    for value in range(20):
        assert subject.infer("one", value) == value + 1

    text = subject.control.metrics(metrics_port(subject))
    (rows,) = re.findall(r'gepipe_rows_total\{[^}]*model="one"[^}]*\} (\d+)', text)
    assert int(rows) == 20
    assert subject.stop() == 0


def test_a_taken_port_is_found_before_anything_starts(serve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        subject = serve("--grpc-port", str(port), ready=False)

        assert subject.process.wait(60) == 2
        assert f"--grpc-port {port}: taken on 127.0.0.1" in subject.text


def test_a_log_that_cannot_be_written_is_refused(serve, tmp_path) -> None:
    subject = serve("--log", str(tmp_path / "none" / "triton.log"), ready=False)

    assert subject.process.wait(60) == 2
    assert "triton.log: no such file or directory" in subject.text


def test_a_model_that_does_not_load_says_why_and_nothing_stays(serve, repository) -> None:
    (repository / "two" / "1" / "model.py").write_text(BROKEN)
    subject = serve(ready=False)

    assert subject.process.wait(60) == 5
    assert "model two: " in subject.text
    assert "no weights" in subject.text
    assert "model sum" not in subject.text  # it follows from two
    assert list(Path("/dev/shm").glob(f"gepipe_{subject.process.pid}_*")) == []


def test_what_the_server_would_hang_on_is_refused(serve, repository) -> None:
    (repository / "two" / "1" / "model.py").unlink()
    subject = serve(ready=False)

    assert subject.process.wait(60) == 2
    assert str(repository / "two") in subject.text


def test_a_stub_that_cannot_start_is_refused(triton_kit, tmp_path, serve) -> None:
    home = tmp_path / "triton"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "tritonserver").symlink_to(triton_kit.server)
    shutil.copytree(triton_kit.backend, home / "backends" / "python")
    stub = home / "backends" / "python" / "triton_python_backend_stub"
    shutil.copy(triton_kit.stub, stub)  # without the libraries that it needs
    subject = serve("--server", str(home), "--python", str(triton_kit.python), ready=False)

    assert subject.process.wait(60) == 2
    assert f"{stub}: Triton's stub does not start" in subject.text
    assert "libcudart" in subject.text


def test_a_dead_model_serves_again_and_health_says_so_meanwhile(serve) -> None:
    subject = serve()
    (victim,) = subject.stubs("one")

    began = time.monotonic()
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: not subject.is_ready())
    found_s = time.monotonic() - began
    wait_until(lambda: subject.is_ready() and subject.answers())

    assert found_s < 20  # 0.4 s where the machine does nothing else
    assert "model one: its process one_0_0 has died; loading it again" in subject.text
    subject.wait_for("model one: serves again")
    began = time.monotonic()
    assert subject.stop() == 0
    assert time.monotonic() - began < 25
    assert subject.regions() == []


def test_a_hung_model_is_killed_and_serves_again(serve) -> None:
    subject = serve("--hang-timeout", "2s")
    requests = [threading.Thread(target=lambda: suppress_all(subject)) for _ in range(2)]
    for request in requests:
        request.start()

    subject.wait_for("model one: it hangs (1 waiting, none answered for")
    wait_until(subject.answers)

    assert subject.stop() == 0
    for request in requests:
        request.join()


def test_a_new_version_comes_without_a_failed_request(serve, repository) -> None:
    subject = serve()
    seen: set[float] = set()
    faults: list[Exception] = []
    done = threading.Event()

    def call() -> None:
        while not done.is_set():
            try:
                seen.add(subject.infer("sum", 5))
            except Exception as error:  # noqa: BLE001 - none may come
                faults.append(error)

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    wait_until(lambda: seen)
    write_model(repository, "one", 2)
    wait_until(lambda: 17 in seen or faults)
    done.set()
    for caller in callers:
        caller.join()

    assert faults == []
    assert seen == {16, 17}


def test_a_version_beside_another_leaves_it_ready_until_it_serves(serve, repository) -> None:
    subject = serve()
    second = repository / "one" / "2"

    for code, said in (
        (BROKEN, "model one: the new version does not load, the one before serves on"),
        (SLOW.format(add=2), "model one: the new version serves"),
    ):
        second.mkdir(exist_ok=True)
        (second / "model.py").write_text(code)
        wait_until(lambda said=said: said in subject.text or not subject.is_ready())
        assert subject.is_ready()

    assert subject.infer("sum", 5) == 17
    assert "unavailable" not in subject.text
    assert subject.is_ready()


def test_an_ensemble_that_is_added_is_ready_once_its_step_is(serve, repository) -> None:
    subject = serve()
    write_model(repository, "new", 5)
    (repository / "new" / "1" / "model.py").write_text(BROKEN)
    (repository / "both" / "1").mkdir(parents=True)
    (repository / "both" / "1" / ".keep").touch()
    (repository / "both" / "config.pbtxt").write_text(ENSEMBLE.replace('"one"', '"new"'))
    subject.wait_for("model new: does not load")
    subject.wait_for("model both: unavailable")
    assert not subject.is_ready()

    write_model(repository, "new", 5)

    wait_until(subject.is_ready)
    assert subject.infer("both", 5) == 20
    assert subject.stop() == 0


def test_models_come_and_go_and_a_broken_version_is_not_taken(serve, repository) -> None:
    subject = serve()

    write_model(repository, "new", 100)
    wait_until(lambda: "model new: the new version serves" in subject.text)
    assert subject.infer("new", 1) == 101

    (repository / "new" / "1" / "model.py").write_text(BROKEN)
    text = subject.wait_for("model new: the new version does not load, the one before serves on")
    assert "no weights" in text
    assert subject.infer("new", 1) == 101
    told = partial(subject.ask, subject.health, "/readyz")
    wait_until(lambda: "no weights" in told()[1].get("notes", {}).get("new", ""))
    assert told()[0] == 200

    away = repository.with_name("away")
    repository.rename(away)
    subject.wait_for("has no models; what is loaded serves on")
    assert subject.answers()
    away.rename(repository)
    subject.wait_for("is there again")

    shutil.rmtree(repository / "new")
    subject.wait_for("model new: removed, and unloaded")
    wait_until(lambda: "new" not in subject.ask(subject.health, "/readyz")[1]["models"])
    with pytest.raises(ControlError, match="unknown model"):
        subject.infer("new")
    assert subject.answers()


def test_new_versions_that_do_not_fit_or_do_not_load_are_said(serve, repository) -> None:
    subject = serve()

    config = repository / "one" / "config.pbtxt"
    config.write_text(CONFIG.replace('"y" data_type: TYPE_FP64', '"y" data_type: TYPE_INT64'))
    said = r"model sum: unavailable: .*; expected steps whose tensors fit each other"
    wait_until(lambda: re.search(said, subject.text))
    assert not subject.is_ready()
    config.write_text(CONFIG)
    subject.wait_for("model sum: available again")
    assert subject.answers()

    (repository / "one" / "1" / "model.py").write_text(BROKEN)
    write_model(repository, "two", 20)
    (repository / "sum" / "config.pbtxt").write_text(ENSEMBLE + "\n")
    subject.wait_for("model one: the new version does not load, the one before serves on")
    subject.wait_for("model two: the new version serves")
    assert subject.infer("sum", 5) == 26
    assert set(subject.ask(subject.health, "/readyz")[1]["notes"]) == {"one"}


def test_it_listens_on_ipv6_too(serve) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    subject = serve("--host", "::1", ready=False)
    text = subject.wait_for("Ctrl-C stops it")

    for port in re.search(r"HTTP http://\[::1\]:(\d+), gRPC \[::1\]:(\d+)", text).groups():
        socket.create_connection(("::1", int(port))).close()
    assert "sum" in text
    assert subject.stop() == 0


def test_nothing_outlives_a_killed_command_and_the_next_one_cleans_up(serve) -> None:
    subject = serve()
    server, stubs = subject.server_pid, subject.stubs()
    os.kill(stubs[0], signal.SIGSTOP)  # it would not notice that its server has gone
    other = Path("/dev/shm/gepipe_0_other_region")
    other.write_bytes(b"not ours")

    try:
        subject.process.kill()
        subject.process.wait()
        wait_until(lambda: not is_alive(server) and not is_alive(stubs[1]))
        assert subject.regions() != []

        second = serve()
        assert "cleaned up after a server that was killed" in second.text
        assert subject.regions() == []
        assert not is_alive(stubs[0])
        assert other.exists()
        assert second.answers()
    finally:
        other.unlink()
    assert second.stop() == 0
