"""Memory and time as the C library offers them: reserved addresses, safe copies, exact waiting."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from typing import Final

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_HOLDING_GIL: Final = ctypes.PyDLL(None)

_PROT_NONE, _PROT_READ_WRITE = 0, 3
_MAP_PRIVATE, _MAP_ANONYMOUS, _MAP_NORESERVE = 0x02, 0x20, 0x4000
_MAP_FAILED: Final = 2**64 - 1
_MADV_DONTNEED, _MADV_DONTDUMP = 4, 16
PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_CLOCK_MONOTONIC, _TIMER_ABSTIME = 1, 1
_PR_SET_TIMERSLACK: Final = 29
#: What is not worth letting another thread have the GIL for, as ctypes' own functions do.
_SMALL_BYTES: Final = 1 << 16
_FILL_AT_ONCE: Final = _HOLDING_GIL.memset
_FILL_AT_ONCE.argtypes = [ctypes.c_size_t, ctypes.c_int, ctypes.c_size_t]
_MOVE_AT_ONCE: Final = _HOLDING_GIL.memmove
_MOVE_AT_ONCE.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_size_t]

_LIBC.mmap.restype = ctypes.c_size_t
_LIBC.mmap.argtypes = [ctypes.c_size_t, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_LIBC.mprotect.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
_LIBC.munmap.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
_LIBC.madvise.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
_LIBC.aligned_alloc.restype = ctypes.c_size_t
_LIBC.aligned_alloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
_LIBC.free.argtypes = [ctypes.c_size_t]


class _Timespec(ctypes.Structure):
    _fields_ = (("s", ctypes.c_long), ("ns", ctypes.c_long))


class _Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_size_t), ("length", ctypes.c_size_t))


for _library in (_LIBC, _HOLDING_GIL):
    _library.clock_nanosleep.argtypes = [
        ctypes.c_int,
        ctypes.c_int,
        ctypes.POINTER(_Timespec),
        ctypes.c_void_p,
    ]
_VM: Final = [ctypes.c_int, *[ctypes.c_void_p, ctypes.c_ulong] * 2, ctypes.c_ulong]
for _name in ("process_vm_readv", "process_vm_writev"):
    _call = getattr(_LIBC, _name)
    _call.argtypes = _VM
    _call.restype = ctypes.c_ssize_t


def _map(nbytes: int, protection: int) -> int:
    flags = _MAP_PRIVATE | _MAP_ANONYMOUS | _MAP_NORESERVE
    address: int = _LIBC.mmap(0, nbytes, protection, flags, -1, 0)
    if address == _MAP_FAILED:
        problem = os.strerror(ctypes.get_errno())
        raise MemoryError(
            f"emulator: cannot reserve {nbytes / 2**30:.1f} GiB of addresses: {problem}; "
            "raise `ulimit -v`, or give the profile's devices less memory"
        )
    _LIBC.madvise(address, nbytes, _MADV_DONTDUMP)
    return address


def reserve(nbytes: int) -> int:
    """Reserve addresses that no access survives: touching one is a fault of whoever does it."""
    return _map(nbytes, _PROT_NONE)


def map_lazily(nbytes: int) -> int:
    """Map zeroed memory that costs nothing until it is written."""
    return _map(nbytes, _PROT_READ_WRITE)


def copy(target: int, source: int, nbytes: int) -> None:
    """Copy memory that is known to be accessible."""
    move = _MOVE_AT_ONCE if nbytes <= _SMALL_BYTES else ctypes.memmove
    move(target, source, nbytes)


def fill(target: int, value: int, nbytes: int) -> None:
    """Fill memory that is known to be accessible."""
    fill_ = _FILL_AT_ONCE if nbytes <= _SMALL_BYTES else ctypes.memset
    fill_(target, value, nbytes)


def open_up(address: int, nbytes: int) -> bool:
    """Let accesses to reserved addresses through to zeroes; return whether that worked."""
    return not _LIBC.mprotect(address, nbytes, _PROT_READ_WRITE)


def close_up(address: int, nbytes: int) -> None:
    """Undo `open_up`."""
    _LIBC.madvise(address, nbytes, _MADV_DONTNEED)
    _LIBC.mprotect(address, nbytes, _PROT_NONE)


def unmap(address: int, nbytes: int) -> None:
    """Give back what `reserve` or `map_lazily` returned."""
    _LIBC.munmap(address, nbytes)


def forget(address: int, nbytes: int) -> None:
    """Give the whole pages of a range back to the system; the addresses stay mapped."""
    first = -(-address // PAGE) * PAGE
    last = (address + nbytes) // PAGE * PAGE
    if last > first:
        _LIBC.madvise(first, last - first, _MADV_DONTNEED)


def allocate(nbytes: int) -> int:
    """Allocate host memory on a 64-byte boundary; 0 when there is none."""
    if nbytes > sys.maxsize:  # as C's size_t it would wrap around to a few bytes
        return 0
    address: int = _LIBC.aligned_alloc(64, -(-nbytes // 64) * 64)
    return address


def free(address: int) -> None:
    """Free what `allocate` returned."""
    _LIBC.free(address)


def _safely(name: str, local: int, remote: int, nbytes: int) -> int:
    if not 0 < remote < 1 << 63:
        return 0  # beyond what a process can have; as C's size_t it would wrap around
    mine, other = _Iovec(local, nbytes), _Iovec(remote, nbytes)
    moved: int = getattr(_LIBC, name)(
        os.getpid(), ctypes.addressof(mine), 1, ctypes.addressof(other), 1, 0
    )
    if moved < 0 and ctypes.get_errno() in (1, 38):  # EPERM, ENOSYS: no such luxury here
        source, target = (remote, local) if name == "process_vm_readv" else (local, remote)
        copy(target, source, nbytes)
        return nbytes
    return max(moved, 0)


def read_host(target: int, source: int, nbytes: int) -> int:
    """Copy from host memory of unknown validity; return how many bytes were readable."""
    return _safely("process_vm_readv", target, source, nbytes)


def write_host(target: int, source: int, nbytes: int) -> int:
    """Copy to host memory of unknown validity; return how many bytes were writable."""
    return _safely("process_vm_writev", source, target, nbytes)


def sleep_until(moment_s: float, *, hold_gil: bool = False) -> None:
    """Sleep until a moment of `time.monotonic`.

    Args:
        moment_s: The moment.
        hold_gil: Stall every other Python thread meanwhile, as calls of pyACL do that do not
            release the GIL.
    """
    if moment_s <= time.monotonic():
        return
    whole = int(moment_s)
    until = _Timespec(whole, int((moment_s - whole) * 1e9))
    library = _HOLDING_GIL if hold_gil else _LIBC
    while library.clock_nanosleep(_CLOCK_MONOTONIC, _TIMER_ABSTIME, ctypes.byref(until), None) == 4:
        pass  # EINTR: a signal's handler ran


def wake_exactly() -> None:
    """Let the calling thread wake within microseconds of the moment it sleeps for."""
    _LIBC.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
