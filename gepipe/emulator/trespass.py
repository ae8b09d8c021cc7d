"""A program that touches device memory on the host gets an error instead of a dead process.

On a real card such an access is a segmentation fault. Here the addresses of cards and handles are
reserved without access, so it is one as well; but its handler lets the access through to zeroes,
and has Python raise `TrespassError` in the thread that made it, behind the call that did. Every
other segmentation fault is what it would be without this module.
"""

from __future__ import annotations

import ctypes
import signal
import threading
from typing import TYPE_CHECKING, Any, Final

from gepipe.emulator import native
from gepipe.emulator.errors import EmulatorError
from gepipe.emulator.handles import Site

if TYPE_CHECKING:
    from gepipe.emulator.machine import Machine

_SA_SIGINFO, _SA_NODEFER = 0x4, 0x40000000
_RAISE_IN: Final = ctypes.pythonapi.PyThreadState_SetAsyncExc
_ADDRESS_IN_SIGINFO: Final = 16
_HANDLER: Final = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t)


class _Action(ctypes.Structure):
    """Linux' `struct sigaction` as C libraries have it on 64-bit machines."""

    _fields_ = (
        ("handler", ctypes.c_size_t),
        ("mask", ctypes.c_uint8 * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_size_t),
    )


class TrespassError(EmulatorError):
    """The host touched an address that only the card may touch."""

    text = ""
    region = (0, 0)

    def __init__(self) -> None:
        super().__init__(self.text)
        native.close_up(*self.region)


class Guard:
    """Watches for accesses to the addresses of a machine's cards and handles."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._libc: Any = ctypes.CDLL(None)
        self._handler = _HANDLER(self._handle)
        self._before = _Action()
        action = _Action(
            handler=ctypes.cast(self._handler, ctypes.c_void_p).value or 0,
            flags=_SA_SIGINFO | _SA_NODEFER,
        )
        self._libc.sigaction(signal.SIGSEGV, ctypes.byref(action), ctypes.byref(self._before))

    def _handle(self, _number: int, info: int, _context: int) -> None:
        address = ctypes.c_size_t.from_address(info + _ADDRESS_IN_SIGINFO).value
        region = self._region(address)
        if region is None or not native.open_up(*region):
            self._libc.sigaction(signal.SIGSEGV, ctypes.byref(self._before), None)
            return  # the access is made again, and what was in place before deals with it
        where = f"the host at {Site()}: "
        on_card = region != self._machine.handles.region
        what = self._machine.host.describe(address) if on_card else "inside a handle"
        text = f"{address:#x} is {what}, which the host cannot touch"
        text += "; copy it with acl.rt.memcpy first" if on_card else ""
        self._machine.report.breaks.add(where, text)
        named = {"__module__": __name__, "text": where + text, "region": region}
        error = ctypes.py_object(type("TrespassError", (TrespassError,), named))
        thread = ctypes.c_ulong(threading.get_ident())
        # Python looks for such an error behind every call, and would find it in this function. It
        # does not look while a sequence is unpacked, nor when a function returns.
        (_,) = map(_RAISE_IN, (thread,), (error,))

    def _region(self, address: int) -> tuple[int, int] | None:
        """Return the guarded addresses that this one is among."""
        regions = [device.memory.region for device in self._machine.devices]
        for base, nbytes in (*regions, self._machine.handles.region):
            if base <= address < base + nbytes:
                return base, nbytes
        return None
