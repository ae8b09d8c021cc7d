"""The memory between stages."""

from __future__ import annotations

from typing import TypeAlias

from gepipe.runtime.memory import SharedBuffer, SlotLayout
from gepipe.runtime.options import SlotPlan

#: Memory of one link and how its slots lie in it.
Link: TypeAlias = tuple[SharedBuffer, SlotLayout]


def make_links(plan: SlotPlan) -> list[Link]:
    """Allocate the memory of the input and of the output link; it is the caller's to close."""
    links: list[Link] = []
    try:
        for layout in (plan.inputs, plan.outputs):
            nbytes = plan.depth * layout.slot_nbytes
            links.append((SharedBuffer.create(nbytes), layout))
    except BaseException:
        for buffer, _ in links:
            buffer.close()
        raise
    return links
