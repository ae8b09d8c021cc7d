import gepipe.triton.serverlog as log
from gepipe.triton.serverlog import Follower, complaints, last_complaint, told

LINES = """\
I1129 21:46:57.1 1 server.cc:674] started
W1129 21:46:57.1 1 metrics.cc:798] DCGM unable to start
E1129 21:46:57.1 1 pinned_memory_manager.cc:1] "failed to allocate pinned system memory"
E1129 21:46:57.1 1 model_lifecycle.cc:642] "failed to load 'a' version 1: Internal: no weights"
E1129 21:46:57.1 1 model.py:12] it has begun
[libprotobuf ERROR text_format.cc:335] Error parsing text-format inference.ModelConfig: 1:163: x
error: creating server: Internal - failed to load all models
a print of a model
""".splitlines()


def test_complaints_are_errors_without_the_noise_of_a_machine_without_a_card() -> None:
    assert complaints(LINES) == [
        "model_lifecycle.cc:642] \"failed to load 'a' version 1: Internal: no weights\"",
        "model.py:12] it has begun",
        LINES[5],
        LINES[6],
    ]


def test_told_is_what_nobody_else_tells() -> None:
    assert told(LINES) == ["model.py:12] it has begun", LINES[5]]


def test_the_last_complaint_is_not_of_the_server_before(tmp_path) -> None:
    path = tmp_path / "server.log"
    assert last_complaint(path, 0) == ""

    path.write_text("\n".join(LINES[:5]) + "\n")
    end = path.stat().st_size
    with path.open("a") as file:
        file.write("a print of a model\n")

    assert last_complaint(path, 0) == last_complaint(path, end + 100) == "model.py:12] it has begun"
    assert last_complaint(path, end) == ""


def test_a_log_is_followed_line_by_line(tmp_path) -> None:
    path = tmp_path / "server.log"
    path.write_text("before\n")
    subject = Follower(path, path.stat().st_size)

    with path.open("a") as file:
        assert subject.lines() == []
        file.write("one\ntw")
        file.flush()
        assert subject.lines() == ["one"]
        file.write("o\n")
        file.flush()
        assert subject.lines() == ["two"]


def test_a_long_log_is_turned_and_nothing_of_it_is_missed(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(log, "LONGEST", 100)
    path = tmp_path / "server.log"
    path.touch()
    subject = Follower(path)

    with path.open("a") as file:
        for number in range(40):
            file.write(f"line {number}\n")
            file.flush()
            assert subject.lines() == [f"line {number}"]

    assert path.stat().st_size <= 100
    assert (tmp_path / "server.log.1").stat().st_size > 100
