"""Which error stands for a return code of ACL, and what is left of the device after it."""

from __future__ import annotations

from typing import Final

from gepipe.errors import (
    DeviceError,
    DeviceLostError,
    DeviceMemoryError,
    DeviceStateError,
    DeviceTimeoutError,
)

#: The process must be replaced after these: the context, the device or its hardware is gone.
LOST: Final = frozenset(
    (107022, 107023, 507000, 507001, 507010, 507053, 507054, 507899, 507900, 507901)
)
#: The context is usually unusable after these: a kernel or a copy failed while it ran.
BROKEN: Final = frozenset(
    (507011, 507013, 507014, 507015, 507016, 507017, 507018, 507034, 507035, 507036, 545601)
)
#: Waiting took longer than allowed.
TIMEOUTS: Final = frozenset((107019, 107020, 507046, 507047))
_MEMORY: Final = frozenset((200000, 207001, 207018, 245000))
_STATE: Final = frozenset((100001, 107002, 107003, 107004, 107017, 145001, 145003, 200005, 507007))


def error_class(code: int) -> type[DeviceError]:
    """Return the error that stands for a return code of ACL."""
    for codes, kind in (
        (LOST, DeviceLostError),
        (TIMEOUTS, DeviceTimeoutError),
        (_MEMORY, DeviceMemoryError),
        (_STATE, DeviceStateError),
    ):
        if code in codes:
            return kind
    return DeviceError
