"""Draws invoices, to have pages whose text is known.

The same number always gives the same invoice, of made-up people and sums that add up.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

WIDTH_PX, HEIGHT_PX = 736, 928
_LEFT, _RIGHT, _ROW = 48, 690, 46
#: Where the columns of the table begin; numbers in the last two end there.
_COLUMNS = (48, 340, 520, 690)
_COMPANIES = ("North Lamp Works", "Harbour Tools Ltd.", "Blue Mill Paper", "Alder & Sons")
_NAMES = ("Anna Keller", "James Wood", "Maria Silva", "Tom Becker", "Lena Novak", "Paul Martin")
_STREETS = ("Station Road", "Mill Lane", "Garden Street", "Harbour Way", "Church Square")
_TOWNS = ("Exeter", "Bremen", "Lisbon", "Utrecht", "Graz", "Turku")
_GOODS = (
    "Desk lamp", "Copper wire", "Paper A4", "Oak board", "Steel bolts", "Paint brush",
    "Glass jar", "Work gloves", "Power cable", "Tape measure", "Drill set", "Wood glue",
)  # fmt: skip


class Words(NamedTuple):
    """One piece of text on a page.

    Attributes:
        text: The text.
        x_px: Where it begins, or with `ends` where it ends.
        y_px: Its base line.
        size: Of the letters, as a factor of OpenCV's.
        ends: Whether `x_px` is its end.
    """

    text: str
    x_px: int
    y_px: int
    size: float = 0.8
    ends: bool = False


def draw(number: int) -> bytes:
    """Return an invoice as PNG.

    Args:
        number: Which one.
    """
    import cv2
    import numpy as np

    page = np.full((HEIGHT_PX, WIDTH_PX, 3), 255, np.uint8)
    font, thickness, ink = cv2.FONT_HERSHEY_SIMPLEX, 2, (30, 30, 30)
    for text, x, y, size, ends in words(number):
        width = cv2.getTextSize(text, font, size, thickness)[0][0] if ends else 0
        cv2.putText(page, text, (x - width, y), font, size, ink, thickness, cv2.LINE_AA)
    _, data = cv2.imencode(".png", page)
    return bytes(data.data)


def lines(number: int) -> list[str]:
    """Return the text of an invoice, one entry a row of it, as one reads it.

    Args:
        number: Which one.
    """
    rows: dict[int, list[str]] = {}
    for each in words(number):
        rows.setdefault(each.y_px, []).append(each.text)
    return [" ".join(texts) for _, texts in sorted(rows.items())]


def words(number: int) -> Iterator[Words]:
    """Yield the pieces of text of an invoice, each row from left to right.

    Args:
        number: Which one.
    """
    chance = random.Random(number)  # noqa: S311 - the same invoice each time is what is wanted
    yield Words(chance.choice(_COMPANIES), _LEFT, 70, 1.1)
    date = f"{chance.randint(1, 28):02}.{chance.randint(1, 12):02}.{chance.randint(2019, 2026)}"
    yield Words(f"Invoice No. {10_000 + 37 * number}", _LEFT, 130)
    yield Words(date, _RIGHT, 130, ends=True)
    yield Words(chance.choice(_NAMES), _LEFT, 200)
    yield Words(f"{chance.choice(_STREETS)} {chance.randint(1, 150)}", _LEFT, 200 + _ROW)
    town = f"{chance.randint(10_000, 99_999)} {chance.choice(_TOWNS)}"
    yield Words(town, _LEFT, 200 + 2 * _ROW)
    y, total = 370, 0
    yield from _row(("Article", "Amount", "Price", "Sum"), y)
    for article in chance.sample(_GOODS, chance.randint(3, 7)):
        amount, cents = chance.randint(2, 40), chance.randint(120, 9_900)
        y, total = y + _ROW, total + amount * cents
        yield from _row((article, f"{amount} pcs", _money(cents), _money(amount * cents)), y)
    yield Words(f"Total: {_money(total)} EUR", _RIGHT, y + 80, 1.0, ends=True)
    yield Words("Payable within 30 days. Thank you!", _LEFT, y + 160)


def _row(cells: tuple[str, str, str, str], y: int) -> Iterator[Words]:
    for column, (text, x) in enumerate(zip(cells, _COLUMNS, strict=True)):
        yield Words(text, x, y, ends=column > 1)


def _money(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02}"
