"""Devices, contexts, and the order of beginning and end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gepipe.emulator.device import visible_devices
from gepipe.emulator.errors import EmulatorError
from tests.contract.card import D2D, Card


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


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"a": [{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}]}', 0),
        ("{" * 10 + "}" * 10, 100006),  # not JSON, though not too deep
        ('{"a":' * 10 + "1" + "}" * 10, 0),
        ('{"a":' * 11 + "1" + "}" * 11, 100006),
        ('{"a":' + "[" * 11 + "]" * 11 + "}", 100006),
        ("\udcff", 100006),
        ("", 0),
    ],
)
def test_the_brackets_of_an_init_file_lie_ten_deep_at_most(
    make: Callable[..., Card], tmp_path: Path, text: str, code: int
) -> None:
    config = tmp_path / "acl.json"
    config.write_text(text, errors="surrogateescape")
    assert make().acl.init(str(config)) == code


def test_finalize_reference_undoes_one_init(make: Callable[..., Card]) -> None:
    acl = make().acl
    assert (acl.init(), acl.init()) == (0, 100002)
    assert acl.finalize_reference() == (1, 0)
    assert acl.finalize_reference() == (0, 0)
    assert acl.finalize_reference() == (0, 100037)


def test_finalize_before_init_is_100001(make: Callable[..., Card]) -> None:
    assert make().acl.finalize() == 100001


def test_a_second_life_is_an_error_in_strict_mode(make: Callable[..., Card]) -> None:
    for mode in ("strict", "compatible"):
        acl = make(mode).acl
        assert (acl.init(), acl.finalize()) == (0, 0)
        if mode == "strict":
            with pytest.raises(EmulatorError, match="newer releases only"):
                acl.init()
        else:
            assert acl.init() == 0


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


def test_a_reset_waits_for_the_default_context(make: Callable[..., Card]) -> None:
    for mode in ("strict", "compatible"):
        card = make(mode)
        rt = card.acl.rt
        card.ok(card.acl.init())
        card.ok(rt.set_device(0))
        model = card.loaded("timing")
        with card.held() as go:
            card.ok(model.execute_async(0))
            stream = card.ok(rt.create_stream())
            timer = threading.Timer(0.05, go.set)
            timer.start()
            if mode == "strict":
                with pytest.raises(EmulatorError, match="is reset before stream"):
                    rt.reset_device(0)
            else:
                assert rt.reset_device(0) == 0
            assert go.is_set()
        timer.join()
        if mode == "compatible":
            assert rt.destroy_stream(stream) == 107002


def test_a_reset_tells_what_failed_on_the_default_stream(make: Callable[..., Card]) -> None:
    card = make("compatible", faults=[{"call": "mdl.execute_async", "code": 507011}])
    card.ok(card.acl.init())
    card.ok(card.acl.rt.set_device(0))
    card.ok(card.loaded().execute_async(0))
    assert card.acl.rt.reset_device(0) == 507011


def test_reset_device_undoes_one_set_device(emulated: Card) -> None:
    rt = emulated.acl.rt
    emulated.ok(rt.set_device(0))
    emulated.ok(rt.reset_device(0))
    assert rt.get_device() == (0, 0)
    emulated.ok(rt.reset_device(0))
    assert rt.reset_device(0) == 107002


def test_reset_device_force_undoes_every_set_device(make: Callable[..., Card]) -> None:
    rt = make().open().acl.rt
    assert rt.set_device(0) == 0
    assert rt.reset_device_force(0) == 0
    assert rt.reset_device_force(0) == 107002
    assert rt.reset_device(99) == 107001


def test_without_a_device_get_device_has_a_code(card: Card) -> None:
    assert card.elsewhere(card.acl.rt.get_device)[1] != 0
    assert card.acl.rt.get_device(0) == (0, 0)  # one published program passes an argument


def test_synchronize_device_waits_for_every_stream(make: Callable[..., Card]) -> None:
    card = make(latency_ms=30, faults=[{"call": "mdl.execute_async", "at": 2, "hang": True}]).open()
    model, rt = card.loaded("timing"), card.acl.rt
    card.ok(model.execute_async(card.stream))
    assert rt.synchronize_device("ignored") == 0
    assert rt.stream_query(card.stream) == (0, 0)
    assert rt.synchronize_device_with_timeout(-1) == 0
    card.ok(model.execute_async(card.stream))
    assert rt.synchronize_device_with_timeout(0) == 100000
    assert rt.synchronize_device_with_timeout(20) == 507046
    assert rt.destroy_stream_force(card.stream) == 0


def test_utilization_has_five_keys(card: Card) -> None:
    rates = card.ok(card.acl.rt.get_device_utilization_rate(0))
    assert set(rates) == {
        "cube_utilization",
        "vector_utilization",
        "aicpu_utilization",
        "memory_utilization",
        "utilization_extend",
    }
    assert card.acl.rt.get_device_utilization_rate(4711) == ({}, 107001)


def test_devices_copy_from_each_other_only_with_peer_access(make: Callable[..., Card]) -> None:
    for mode in ("strict", "compatible"):
        card = make(mode, devices=2).open()
        rt = card.acl.rt
        there = card.device(64)
        card.ok(rt.memset(there, 64, 5, 64))
        card.ok(rt.create_context(1))
        here, stream = card.device(64), card.ok(rt.create_stream())
        if mode == "strict":
            with pytest.raises(EmulatorError, match="device_enable_peer_access"):
                rt.memcpy(here, 64, there, 64, D2D)
            assert rt.memcpy_async(here, 64, there, 64, D2D, stream) == 0
            assert rt.synchronize_stream(stream) == 507013
        else:
            assert rt.memcpy(here, 64, there, 64, D2D) == 0
            assert any("device_enable_peer_access" in note for note in card.machine.report.notes)
        assert rt.device_can_access_peer(1, 0) == (1, 0)
        assert rt.device_can_access_peer(1, 1) == (0, 0)
        assert rt.device_enable_peer_access(1, 0) == 100000
        assert rt.device_enable_peer_access(9, 0) == 107001
        assert rt.device_enable_peer_access(0, 0) == 0
        assert rt.memcpy(here, 64, there, 64, D2D) == 0
        assert card.read(here, 2) == b"\x05\x05"


def test_a_context_of_another_device_brings_that_device(make: Callable[..., Card]) -> None:
    card = make(devices=2).open()
    card.ok(card.acl.rt.create_context(1))
    assert card.acl.rt.get_device() == (1, 0)
    card.ok(card.acl.rt.set_context(card.context))
    assert card.acl.rt.get_device() == (0, 0)


def test_finalize_with_objects_left_is_an_error_that_names_one(emulated: Card) -> None:
    with pytest.raises(EmulatorError, match=r"objects left, such as stream .* made at"):
        emulated.acl.finalize()


def test_leaks_name_what_and_where(emulated: Card) -> None:
    emulated.device(100)
    pinned = emulated.pinned(50)
    acl, mdl = emulated.acl, emulated.acl.mdl
    emulated.ok(acl.rt.create_event())
    page = -(-emulated.pinned(8192) // 4096) * 4096
    emulated.ok(acl.rt.host_register(page, 4096, 0))
    mdl.create_desc(), mdl.create_dataset(), mdl.create_config_handle()
    mdl.create_exec_config_handle(), mdl.create_aipp(1), acl.create_data_buffer(pinned, 50)
    acl.create_tensor_desc(0, [1], 2)

    found = emulated.machine.leaks()
    leaks = "\n".join(found)
    for what in (
        "stream",
        "event",
        "dataset",
        "data buffer",
        "model description",
        "load configuration",
        "execution configuration",
        "AIPP parameters",
        "tensor description",
        "host memory",
        "context",
    ):
        assert sum(each.startswith(what) for each in found) == 1, what
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
        ("\uff11", []),
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


def test_memory_of_a_card_that_runs_the_program_is_host_addressable(
    make: Callable[..., Card],
) -> None:
    card = make(run_mode="device").open()
    assert card.acl.rt.get_run_mode() == (0, 0)
    ptr = card.device(64)
    card.fill(ptr, b"abcd")
    assert card.acl.util.ptr_to_bytes(ptr, 4) == b"abcd"
