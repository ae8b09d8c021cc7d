"""Devices, contexts, and the order of beginning and end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gepipe.emulator.device import visible_devices
from gepipe.emulator.errors import EmulatorError
from tests.contract.card import Card
from tests.support import script_environment


def test_a_second_init_returns_100002(card: Card) -> None:
    assert card.acl.init() == 100002


def test_a_second_finalize_returns_100037(make: Callable[..., Card]) -> None:
    acl = make().acl
    assert acl.init() == 0
    assert acl.finalize() == 0
    assert acl.finalize() == 100037


def test_init_takes_a_json_file(make: Callable[..., Card], tmp_path: Path) -> None:
    config = tmp_path / "acl.json"
    config.write_text("{}")
    assert make().acl.init(str(config)) == 0
    config.write_text("{")
    assert make().acl.init(str(config)) == 100006
    assert make().acl.init(str(tmp_path / "none.json")) == 100003
    with pytest.raises(TypeError):
        make().acl.init(None)


def test_a_device_out_of_range_is_107001(card: Card) -> None:
    assert card.acl.rt.set_device(4711) == 107001
    assert card.acl.rt.set_device(-1) == 107001
    assert card.acl.rt.create_context(4711) == (0, 107001)


def test_a_device_before_init_is_refused_in_strict_mode(make: Callable[..., Card]) -> None:
    assert make().acl.rt.set_device(0) == 100001


def test_a_thread_without_a_context_gets_107002(card: Card) -> None:
    rt = card.acl.rt
    assert card.elsewhere(lambda: rt.malloc(64, 0)) == (0, 107002)
    assert card.elsewhere(lambda: rt.malloc_host(64)) == (0, 107002)
    assert card.elsewhere(lambda: rt.memcpy(1, 1, 1, 1, 1)) == 107002
    assert card.elsewhere(rt.create_stream) == (0, 107002)
    assert card.elsewhere(lambda: card.acl.mdl.load_from_file("x")) == (0, 107002)
    assert card.elsewhere(lambda: card.acl.mdl.execute(1, 1, 1)) == 107002
    assert card.elsewhere(rt.get_context) == (0, 107002)


def test_set_context_lets_another_thread_work(card: Card) -> None:
    def work() -> tuple[int, int]:
        assert card.acl.rt.set_context(card.context) == 0
        return card.acl.rt.malloc(64, 0)

    ptr = card.ok(card.elsewhere(work))
    assert card.acl.rt.free(ptr) == 0


def test_create_context_makes_it_current(card: Card) -> None:
    other = card.ok(card.acl.rt.create_context(0))

    assert card.acl.rt.get_context() == (other, 0)
    assert card.acl.rt.set_context(card.context) == 0
    assert card.acl.rt.get_context() == (card.context, 0)
    assert card.acl.rt.destroy_context(other) == 0


def test_set_device_gives_the_shared_default_context(card: Card) -> None:
    def default() -> int:
        card.ok(card.acl.rt.set_device(0))
        return card.ok(card.acl.rt.get_context())

    first, second = card.elsewhere(default), card.elsewhere(default)
    assert first == second != card.context
    for _ in range(2):
        card.ok(card.acl.rt.reset_device(0))


def test_context_zero_is_100000(card: Card) -> None:
    assert card.acl.rt.set_context(0) == 100000


def test_a_context_is_enough_without_set_device(make: Callable[..., Card]) -> None:
    card = make()
    card.ok(card.acl.init())
    context = card.ok(card.acl.rt.create_context(0))
    assert card.acl.rt.free(card.device(64)) == 0
    assert card.acl.rt.destroy_context(context) == 0
    assert card.acl.finalize() == 0


def test_destroying_a_context_twice_is_an_emulator_error(emulated: Card) -> None:
    other = emulated.ok(emulated.acl.rt.create_context(0))
    emulated.ok(emulated.acl.rt.destroy_context(other))
    with pytest.raises(EmulatorError, match=r"destroyed at .*test_devices\.py"):
        emulated.acl.rt.destroy_context(other)


def test_the_default_context_cannot_be_destroyed(emulated: Card) -> None:
    emulated.ok(emulated.acl.rt.set_device(0))
    default = emulated.ok(emulated.acl.rt.get_context())
    with pytest.raises(EmulatorError, match="belongs to the device"):
        emulated.acl.rt.destroy_context(default)


def test_an_explicit_context_outlives_reset_device(emulated: Card) -> None:
    emulated.ok(emulated.acl.rt.destroy_stream(emulated.stream))
    assert emulated.acl.rt.reset_device(0) == 0
    assert emulated.acl.rt.get_context() == (emulated.context, 0)
    assert emulated.acl.rt.destroy_context(emulated.context) == 0


def test_destroy_context_after_finalize_returns_a_code(make: Callable[..., Card]) -> None:
    card = make("compatible").open()
    card.ok(card.acl.finalize())
    assert card.acl.rt.destroy_context(card.context) == 0
    assert card.acl.rt.destroy_context(card.context) == 107002


def test_reset_device_undoes_one_set_device(emulated: Card) -> None:
    rt = emulated.acl.rt
    emulated.ok(rt.set_device(0))
    emulated.ok(rt.reset_device(0))
    assert rt.get_device() == (0, 0)
    emulated.ok(rt.reset_device(0))
    assert rt.reset_device(0) == 107002


def test_finalize_with_objects_left_is_an_error_that_names_one(emulated: Card) -> None:
    with pytest.raises(EmulatorError, match=r"objects left, such as stream .* made at"):
        emulated.acl.finalize()


def test_leaks_name_what_and_where(emulated: Card) -> None:
    emulated.device(100)
    emulated.pinned(50)

    leaks = "\n".join(emulated.machine.leaks())
    assert "device memory" in leaks
    assert "of 100 bytes made at" in leaks
    assert "pinned memory" in leaks
    assert "card.py:" in leaks


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        ("0,2", [0, 2]),
        ("1,3", [1, 3]),
        ("2,1", [2]),
        ("0, 1", [0]),
        ("0,9,1", [0]),
        ("x", []),
        ("", []),
        ("1,1", [1]),
    ],
)
def test_visible_devices_ascend_and_stop_at_the_first_bad_token(
    text: str, devices: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", text)
    assert visible_devices(4) == devices


def test_visible_devices_are_counted_from_zero(
    make: Callable[..., Card], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "1,3")
    card = make(devices=4).open()
    assert card.acl.rt.get_device_count() == (2, 0)
    assert card.acl.rt.set_device(2) == 107001
    assert [device.card for device in card.machine.devices] == [1, 3]


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


def test_a_device_pointer_that_the_host_touches_is_a_fault(tmp_path: Path) -> None:
    program = tmp_path / "touch.py"
    program.write_text(
        "import acl, ctypes\n"
        "acl.init(); acl.rt.set_device(0)\n"
        "ptr, ret = acl.rt.malloc(64, 0)\n"
        "print('before', flush=True)\n"
        "ctypes.string_at(ptr, 4)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "gepipe.emulator", str(program)],
        capture_output=True,
        text=True,
        env=script_environment(),
        timeout=60,
        check=False,
    )
    assert done.stdout == "before\n"
    assert done.returncode == -11


def test_memory_of_a_card_that_runs_the_program_is_host_addressable(
    make: Callable[..., Card],
) -> None:
    card = make(run_mode="device").open()
    assert card.acl.rt.get_run_mode() == (0, 0)
    ptr = card.device(64)
    card.fill(ptr, b"abcd")
    assert card.acl.util.ptr_to_bytes(ptr, 4) == b"abcd"


# --- cards that processes share ---------------------------------------------------------------


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
