"""Accesses that go wrong: addresses and sizes that lead nowhere, and the host on device memory."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gepipe.emulator.errors import EmulatorError
from tests.contract.card import H2D, H2H, Card
from tests.contract.test_programs import run

HUGE = (1 << 40, 2**64 - 1, -1)


@pytest.mark.parametrize("size", HUGE)
@pytest.mark.filterwarnings("ignore::Warning")
def test_a_size_that_no_memory_has_is_an_emulator_error(emulated: Card, size: int) -> None:
    array = np.zeros(64, np.uint8)
    ptr, acl = array.ctypes.data, emulated.acl
    calls: tuple[Callable[[], Any], ...] = (
        lambda: acl.rt.memcpy(ptr, size, ptr, size, H2H),
        lambda: acl.rt.memcpy(emulated.device(64), size, ptr, size, H2D),
        lambda: acl.rt.memset(emulated.device(64), size, 0, size),
        lambda: acl.util.ptr_to_bytes(ptr, size),
        lambda: acl.util.ptr_to_numpy(ptr, (size % 2**64,), 2),
        lambda: acl.mdl.load_from_mem(ptr, size) if size < 0 else acl.util.ptr_to_bytes(ptr, size),
    )
    for call in calls:
        with pytest.raises(EmulatorError, match=r"cannot access|beyond the end"):
            call()


@pytest.mark.filterwarnings("ignore::Warning")
def test_an_array_has_no_negative_extent(card: Card) -> None:
    array = np.zeros(64, np.uint8)
    with pytest.raises(ValueError, match="negative"):
        card.acl.util.ptr_to_numpy(array.ctypes.data, (-2, -4), 2)


def test_copies_between_host_arrays_of_any_size(card: Card) -> None:
    source = np.arange(3_000_001, dtype=np.uint32)
    target = np.zeros_like(source)
    size = source.nbytes
    assert card.acl.rt.memcpy(target.ctypes.data, size, source.ctypes.data, size, H2H) == 0
    assert (target == source).all()


TOUCH = """\
import acl, ctypes, sys, threading
import numpy as np
acl.init(); acl.rt.set_device(0)
stream, ret = acl.rt.create_stream()
ptr, ret = acl.rt.malloc(1 << 20, 0)
def view(at):
    return np.frombuffer((ctypes.c_char * (1 << 19)).from_address(ptr + at), np.uint8)
ways = {
    "read": lambda: ctypes.string_at(ptr, 4),
    "again": lambda: ctypes.string_at(ptr, 4),
    "write": lambda: ctypes.memmove(ptr + 100, b"abc", 3),
    "array": lambda: view(5000).copy(),
    "sum": lambda: int(view(64).sum()),
    "handle": lambda: ctypes.string_at(stream, 8),
}
def attempt(name):
    try:
        ways[name]()
        done = "was possible"
    except Exception as error:
        done = f"{type(error).__name__} {error}"
    print(name, done)
for name in ways:
    attempt(name)
thread = threading.Thread(target=attempt, args=("read",))
thread.start(); thread.join()
acl.rt.memset(ptr, 64, 7, 64)
host, ret = acl.rt.malloc_host(64)
acl.rt.memcpy(host, 64, ptr, 64, 2)
print(acl.util.ptr_to_bytes(host, 2))
if len(sys.argv) > 1:
    ctypes.string_at(8)
"""


def test_the_host_on_device_memory_is_an_error_and_no_crash(tmp_path: Path) -> None:
    program = tmp_path / "touch.py"
    program.write_text(TOUCH)
    done = run(program)

    lines = done.stdout.splitlines()
    names = ["read", "again", "write", "array", "sum", "handle", "read"]
    assert [line.split()[0] for line in lines[:-1]] == names
    for name, line in zip(names, lines, strict=False):
        assert line.startswith(f"{name} TrespassError the host at {program}:"), line
        assert "which the host cannot touch" in line
        where = "inside a handle" if name == "handle" else f"device memory of {program}"
        assert where.split(maxsplit=1)[0] in line
    assert lines[-1] == repr(b"\x07\x07")
    assert done.returncode == 0
    assert "rule broken: the host at " in done.stderr


def test_other_faults_end_the_program_as_ever(tmp_path: Path) -> None:
    program = tmp_path / "touch.py"
    program.write_text(TOUCH)
    done = run(program, "null")

    assert done.returncode == -11


def test_a_thousand_lives_leave_nothing_behind(make: Callable[..., Card]) -> None:
    card = make("compatible")

    def live(number: int) -> None:
        card.open()
        model, rt = card.loaded(), card.acl.rt
        model.feed(np.full((2, 4), number, np.float32))
        event = card.ok(rt.create_event())
        card.ok(model.execute_async(card.stream))
        card.ok(rt.record_event(event, card.stream))
        card.ok(rt.synchronize_event(event))
        card.ok(rt.destroy_event(event))
        assert model.result((2, 4))[0, 0] == 2 * number + 1
        model.close()
        card.close()

    def things() -> tuple[int, int, int]:
        gc.collect()
        files = len(list(Path("/proc/self/fd").iterdir()))
        return len(gc.get_objects()), threading.active_count(), files

    for number in range(300):  # fills the tables of what is gone
        live(number)
    objects, threads, files = things()
    for number in range(700):
        live(number)
    after = things()
    assert after[0] - objects < 100
    assert after[1:] == (threads, files)


def test_what_is_undefined_is_an_error_in_compatible_mode_too(lenient: Card) -> None:
    acl = lenient.acl
    ptr, host, dataset = lenient.device(64), lenient.pinned(64), acl.mdl.create_dataset()
    stream = lenient.ok(acl.rt.create_stream())
    for destroy, what in (
        (acl.rt.free, ptr),
        (acl.rt.free_host, host),
        (acl.mdl.destroy_dataset, dataset),
        (acl.rt.destroy_stream, stream),
    ):
        assert destroy(what) == 0
        with pytest.raises(EmulatorError, match=r"(freed|destroyed) at"):
            destroy(what)
    for use in (
        lambda: acl.rt.memcpy(ptr, 64, lenient.pinned(64), 64, H2D),
        lambda: acl.rt.memset(host, 64, 0, 64),
        lambda: acl.util.ptr_to_bytes(host, 4),
        lambda: acl.rt.synchronize_stream(stream),
        lambda: acl.mdl.get_dataset_num_buffers(dataset),
    ):
        with pytest.raises(EmulatorError, match=r"(freed|destroyed) at"):
            use()


def test_threads_may_use_everything_at_once(emulated: Card) -> None:
    acl, problems = emulated.acl, []

    def work(number: int) -> None:
        emulated.ok(acl.rt.set_context(emulated.context))
        data = bytes([number]) * 64
        for _ in range(300):
            ptr, host = emulated.device(64), emulated.pinned(64)
            event = emulated.ok(acl.rt.create_event())
            address = acl.util.bytes_to_ptr(data)
            emulated.ok(acl.rt.memcpy(ptr, 64, address, 64, H2D))
            emulated.ok(acl.rt.memcpy(host, 64, ptr, 64, 2))
            if acl.util.ptr_to_bytes(host, 64) != data:
                problems.append(number)
            emulated.ok(acl.rt.destroy_event(event))
            emulated.ok(acl.rt.free(ptr))
            emulated.ok(acl.rt.free_host(host))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert emulated.machine.devices[0].events == 0
    emulated.close()  # finds nothing left
