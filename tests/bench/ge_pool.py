"""Device memory for the tensors of BERT-large: the engine's pool, a malloc of the device, glibc.

The trace is that of one pass of BERT-large, batch 8, 128 tokens, float16: each tensor is taken when
it is computed and given back after its last use. All allocators run the same trace from Python. The
device's malloc is the emulator's, which is far faster than a card's, where a call takes
milliseconds. glibc is called through ctypes, whose own cost, that of a function that does nothing,
is taken off; the memory is not touched, so page faults do not count either.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

import harness
from harness import Figure

NAME = "ge_pool"
PASSES = 40
BATCH, TOKENS, WIDTH, HEADS, LAYERS = 8, 128, 1024, 16, 24


def trace() -> list[tuple[int, int]]:
    """Return steps: (tensor, bytes) to take one, (tensor, 0) to give it back."""
    hidden = 2 * BATCH * TOKENS * WIDTH
    scores = 2 * BATCH * HEADS * TOKENS * TOKENS
    steps: list[tuple[int, int]] = []
    number = 0

    def take(nbytes: int) -> int:
        nonlocal number
        number += 1
        steps.append((number, nbytes))
        return number

    def give(*tensors: int) -> None:
        steps.extend((tensor, 0) for tensor in tensors)

    ids = [take(4 * BATCH * TOKENS) for _ in range(3)]
    flow = take(hidden)
    give(*ids)
    for _ in range(LAYERS):
        query, key, value = take(hidden), take(hidden), take(hidden)
        raw = take(scores)
        give(query, key)
        weights = take(scores)
        give(raw)
        context = take(hidden)
        give(weights, value)
        projected = take(hidden)
        give(context)
        attended = take(hidden)
        give(projected, flow)
        wide = take(4 * hidden)
        active = take(4 * hidden)
        give(wide)
        narrow = take(hidden)
        give(active)
        flow = take(hidden)
        give(narrow, attended)
    pooled = take(2 * BATCH * WIDTH)
    give(flow)
    logits = take(2 * BATCH * 2)
    give(pooled, logits)
    return steps


def replay(
    steps: list[tuple[int, int]], malloc: Callable[[int], int], free: Callable[[int], Any]
) -> float:
    """Return the seconds that the allocator takes for one pass."""
    held: dict[int, int] = {}
    clock = time.perf_counter
    spent = 0.0
    for tensor, nbytes in steps:
        if nbytes:
            begin = clock()
            address = malloc(nbytes)
            spent += clock() - begin
            held[tensor] = address
        else:
            address = held.pop(tensor)
            begin = clock()
            free(address)
            spent += clock() - begin
    assert not held
    return spent


def trial(variant: str, passes: int = PASSES) -> dict[str, float]:
    """Measure one allocator, after two passes to get warm."""
    steps = trace()
    malloc, free, close = _ALLOCATORS[variant]()
    for _ in range(2):
        replay(steps, malloc, free)
    times = sorted(replay(steps, malloc, free) for _ in range(passes))
    close()
    return {"us": 1e6 * times[len(times) // 2], "calls": float(len(steps))}


def _acl() -> Any:
    from gepipe.emulator import install
    from gepipe.engines.ge.runtime import Acl

    acl = Acl(install("default", "strict", quiet=True))
    acl.init()
    acl.set_device(0)
    return acl


def _pool() -> Any:
    from gepipe.engines.ge.memory import DevicePool

    pool = DevicePool(_acl(), 1 << 28)
    return pool.allocate, pool.free, pool.close


def _device() -> Any:
    acl = _acl()
    return (lambda nbytes: acl.malloc(nbytes, 0)), acl.free, lambda: None


def _glibc() -> Any:
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_size_t
    libc.malloc.argtypes = [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_size_t]
    return libc.malloc, libc.free, lambda: None


def _ctypes() -> Any:
    libc = ctypes.CDLL(None)
    libc.labs.restype = ctypes.c_size_t
    libc.labs.argtypes = [ctypes.c_size_t]
    return libc.labs, libc.labs, lambda: None


_ALLOCATORS: dict[str, Callable[[], Any]] = {
    "pool": _pool,
    "device": _device,
    "glibc": _glibc,
    "ctypes": _ctypes,
}


def measure(rounds: int, passes: int = PASSES) -> list[Figure]:
    """Measure what the pool saves."""
    results = harness.interleave(NAME, list(_ALLOCATORS), rounds, passes=passes)
    pairs = zip(results["glibc"], results["ctypes"], strict=True)
    theirs = {
        "the device's malloc and free, emulated": results["device"],
        "glibc's malloc and free": [{"us": both["us"] - only["us"]} for both, only in pairs],
    }
    figures = []
    for what, costs in theirs.items():
        saved = 1 - harness.ratio(results["pool"], costs, "us")
        details = {name: harness.medians(each) for name, each in results.items()}
        text = f"BERT-large trace: share of time that the pool saves against {what}"
        figures.append(Figure(NAME, text, saved, 0.73, True, details))
    return figures
