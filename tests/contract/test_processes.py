"""Processes: forks, and cards that several processes share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gepipe.emulator.errors import EmulatorError
from tests.contract.card import Card


def test_more_processes_than_a_card_allows_are_refused(make: Callable[..., Card]) -> None:
    limits = {"processes": 2}
    first, second, third = (make(limits=limits) for _ in range(3))  # as if processes
    for card in (first, second, third):
        card.acl.init()
    assert first.acl.rt.set_device(0) == 0
    assert second.acl.rt.set_device(0) == 0
    assert third.acl.rt.set_device(0) == 507033
    assert "2 processes" in third.acl.get_recent_err_msg()
    assert first.acl.rt.reset_device(0) == 0
    assert third.acl.rt.set_device(0) == 0


def test_acl_after_a_fork_is_refused(emulated: Card) -> None:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            emulated.acl.rt.get_device()
        except EmulatorError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert b"spawn" in pipe.read()
    assert emulated.acl.rt.get_device() == (0, 0)


def test_a_process_that_forked_before_init_may_use_acl(make: Callable[..., Card]) -> None:
    card = make()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            card.open()
            ptr = card.device(64)
            card.write(ptr, b"q" * 64)
            code = int(card.read(ptr, 64) != b"q" * 64)
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.fixture
def pair(
    make: Callable[..., Card], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> tuple[Card, Card]:
    """Two machines on the same cards, as if in two processes."""
    monkeypatch.setenv("GEPIPE_ACL_MACHINE", f"pair-{tmp_path.name}-{os.getpid()}")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return make(latency_ms=40).open(), make(latency_ms=40).open()


def test_processes_see_each_other_s_memory(pair: tuple[Card, Card]) -> None:
    first, second = pair
    before = second.acl.rt.get_mem_info(0)[0]
    ptr = first.device(1 << 20)
    assert before - second.acl.rt.get_mem_info(0)[0] == (1 << 20) + 32
    model = second.ok(second.acl.mdl.load_from_file(second.models["static"]))
    first.ok(first.acl.rt.free(ptr))
    second.ok(second.acl.mdl.unload(model))
    assert first.acl.rt.get_mem_info(0)[0] == first.acl.rt.get_mem_info(0)[1]


def test_memory_comes_back_when_a_process_ends(pair: tuple[Card, Card], tmp_path: Path) -> None:
    first, second = pair
    first.device(1 << 20)
    first.machine.close()
    free, total, _ = second.acl.rt.get_mem_info(0)
    assert free == total
    second.machine.close()
    assert not list(tmp_path.glob("gepipe-emulator-*/*"))


def test_processes_share_a_card_s_time(pair: tuple[Card, Card]) -> None:
    loaded = [card.loaded("timing") for card in pair]
    began = pair[0].machine.schedule.now()
    for card, model in zip(pair, loaded, strict=True):
        card.ok(model.execute_async(card.stream))
    for card in pair:
        card.ok(card.acl.rt.synchronize_stream(card.stream))
    assert pair[0].machine.schedule.now() - began >= 0.08
