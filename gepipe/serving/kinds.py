"""Kinds of failures that are a server's own, beside those of items and devices."""

from __future__ import annotations

from typing import Final

CANCELLED: Final = "cancelled"
EXPIRED: Final = "expired"
OVERLOADED: Final = "overloaded"
UNAVAILABLE: Final = "unavailable"

#: Said of a request of kind `CANCELLED`, wherever that is noticed.
CANCELLED_TEXT: Final = "the request was cancelled by its client"
