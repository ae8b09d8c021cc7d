import math

from gepipe.triton.deaths import MOST_DEATHS
from gepipe.triton.processes import Process
from gepipe.triton.watchdog import GiveUp, Kill, Load, Restart, Resume, Watchdog

MODELS = ("ocr", "ocr_0", "sum")


def stub(pid: int, instance: str, state: str = "S") -> Process:
    words = ("1048576", "1048576", "7", "/run/backends/python", "336")
    command = ("/run/triton_python_backend_stub", "/run/m/1/model.py", "gepipe_1_region", *words)
    return Process(pid, state, (*command, instance, "DEFAULT"))


def dead(pid: int) -> Process:
    return Process(pid, "Z", ())


def test_a_stub_that_stays_dead_is_reported_once() -> None:
    subject = Watchdog()

    assert subject.see(0, [stub(1, "sum_0_0")], MODELS) == []
    assert subject.see(1, [dead(1)], MODELS) == []
    assert subject.see(1.25, [dead(1)], MODELS) == [Restart("sum", "sum_0_0", 0)]
    assert subject.see(1.5, [dead(1)], MODELS) == []


def test_a_stub_that_the_server_collects_is_no_news() -> None:
    subject = Watchdog()
    subject.see(0, [stub(1, "sum_0_0")], MODELS)

    assert subject.see(1, [dead(1)], MODELS) == []
    assert subject.see(2, [], MODELS) == []


def test_an_instance_belongs_to_the_model_with_the_longest_name_that_fits() -> None:
    subject = Watchdog()
    subject.see(0, [stub(1, "ocr_0_0_1"), stub(2, "ocr_1_0")], MODELS)
    subject.see(1, [dead(1), dead(2)], MODELS)

    assert subject.see(2, [dead(1), dead(2)], MODELS) == [
        Restart("ocr_0", "ocr_0_0_1", 0),
        Restart("ocr", "ocr_1_0", 0),
    ]


def test_children_that_are_no_stubs_are_left_alone() -> None:
    subject = Watchdog()
    shell = Process(1, "S", ("/bin/sh", "-c", "x"))
    foreign = stub(2, "other_0_0")
    subject.see(0, [shell, foreign], MODELS)

    assert subject.see(9, [dead(1), dead(2)], MODELS) == []
    assert subject.see(10, [dead(1), dead(2)], MODELS) == []


def test_siblings_of_a_dead_stub_are_of_the_past_and_end_later() -> None:
    subject = Watchdog()
    subject.see(0, [stub(1, "sum_0_0"), stub(2, "sum_0_1")], MODELS)
    subject.see(1, [dead(1), stub(2, "sum_0_1")], MODELS)
    assert subject.see(2, [dead(1), stub(2, "sum_0_1")], MODELS)

    subject.replaced(2, "sum")
    subject.serves("sum")
    family = [dead(1), stub(2, "sum_0_1"), stub(3, "sum_0_0")]

    assert subject.see(31, family, MODELS) == []
    assert subject.see(33, family, MODELS) == [Kill(2, "sum", "")]
    assert subject.see(34, [dead(1), dead(2), stub(3, "sum_0_0")], MODELS) == []
    assert subject.see(35, [dead(1), dead(2), stub(3, "sum_0_0")], MODELS) == []


def test_a_stub_that_dies_while_its_model_comes_back_is_news_after_that() -> None:
    subject = Watchdog()
    subject.see(0, [stub(1, "sum_0_0")], MODELS)
    subject.see(1, [dead(1)], MODELS)
    subject.see(2, [dead(1)], MODELS)
    subject.replaced(2, "sum")
    subject.see(3, [dead(1), stub(2, "sum_0_0")], MODELS)

    assert subject.see(4, [dead(1), dead(2)], MODELS) == []
    assert subject.see(5, [dead(1), dead(2)], MODELS) == []
    subject.serves("sum")
    assert subject.see(6, [dead(1), dead(2)], MODELS) == [Restart("sum", "sum_0_0", 1)]


def deaths(subject: Watchdog, count: int, every_s: float = 1) -> list[object]:
    return [subject.failed(number * every_s, "sum") for number in range(count)]


def test_it_waits_longer_each_time_and_gives_up() -> None:
    found = deaths(Watchdog(), MOST_DEATHS + 1)

    delays = [each.delay_s for each in found if isinstance(each, Restart)]
    assert delays == [0, 1, 2, 4, 8]
    assert found[-1] == GiveUp("sum", MOST_DEATHS + 1)


def test_deaths_of_long_ago_do_not_count() -> None:
    found = deaths(Watchdog(), 20, every_s=601)

    assert found == [Restart("sum", "", 0)] * 20


def test_a_model_that_changed_begins_anew() -> None:
    subject = Watchdog()
    deaths(subject, MOST_DEATHS + 1)

    subject.forget("sum")

    assert subject.failed(7, "sum") == Restart("sum", "", 0)


def test_waiting_requests_without_an_answer_are_a_hang() -> None:
    subject = Watchdog(10)
    subject.see(0, [stub(1, "sum_0_0"), stub(2, "ocr_0_0")], MODELS)
    subject.count(0, {"sum": Load(5, 0), "ocr": Load(5, 0)})

    assert subject.count(5, {"sum": Load(5, 2), "ocr": Load(5, 2)}) == []
    assert subject.count(11, {"sum": Load(5, 2), "ocr": Load(6, 9)}) == [
        Kill(1, "sum", "2 waiting, none answered for 11 s")
    ]


def test_a_model_that_nobody_calls_does_not_hang() -> None:
    subject = Watchdog(10)
    subject.see(0, [stub(1, "sum_0_0")], MODELS)
    subject.count(0, {"sum": Load(5, 0)})
    subject.count(100, {"sum": Load(5, 0)})

    assert subject.count(101, {"sum": Load(5, 1)}) == []
    assert subject.count(109, {"sum": Load(5, 1)}) == []
    assert subject.count(111, {"sum": Load(5, 1)}) != []


def test_a_stub_that_was_just_stopped_goes_on() -> None:
    subject = Watchdog()
    stopped, running = stub(1, "sum_0_0", "T"), stub(1, "sum_0_0")

    assert subject.see(0, [stopped], MODELS) == [Resume(1, "sum")]
    assert subject.see(0.5, [running], MODELS) == []
    assert subject.see(12, [running], MODELS) == []
    assert subject.see(12.2, [stopped], MODELS) == [Resume(1, "sum")]
    assert subject.see(12.4, [stopped], MODELS) == [Resume(1, "sum")]


def test_a_stub_that_was_stopped_while_its_server_may_have_given_it_up_is_killed() -> None:
    subject = Watchdog()
    subject.see(0, [stub(1, "sum_0_0"), stub(2, "ocr_0_0")], MODELS)

    assert subject.see(0.7, [stub(1, "sum_0_0", "T"), stub(2, "ocr_0_0")], MODELS) == [
        Kill(1, "sum", "stopped for up to 0.7 s")
    ]


def test_without_a_limit_nothing_hangs() -> None:
    subject = Watchdog(math.inf)
    subject.see(0, [stub(1, "sum_0_0")], MODELS)
    subject.count(0, {"sum": Load(5, 2)})

    assert subject.count(1e9, {"sum": Load(5, 2)}) == []
