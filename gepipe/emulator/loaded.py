"""Models on a device."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gepipe.emulator.blocks import Block
from gepipe.emulator.handles import Site
from gepipe.emulator.ommodel import OmModel
from gepipe.emulator.order import Uses

if TYPE_CHECKING:
    from gepipe.emulator.device import Context


@dataclass(eq=False)
class Model:
    """A loaded model.

    Attributes:
        gear: The gear last set, on whichever dataset.
        taken: Device memory that ACL took for it.
        lent: Device memory that the program lent it.
        work_blocks: Those lent to work in; models that never run at once may share them.
        plans: What `gepipe.emulator.plan` found out about each gear.
        session: What computes it, once something does.
    """

    id: int
    om: OmModel
    context: Context
    taken: int = 0
    lent: tuple[Block, ...] = ()
    work_blocks: tuple[Block, ...] = ()
    gear: int | None = None
    uses: Uses = field(default_factory=Uses)
    plans: dict[int, Any] = field(default_factory=dict)
    session: Any = None
    site: Site = field(default_factory=Site)

    def __str__(self) -> str:
        return f"model {self.id} ({self.om.name}) loaded at {self.site}"


class Models:
    """Loaded models by id."""

    def __init__(self) -> None:
        self._live: dict[int, Model] = {}
        self._next = 1

    def add(self, om: OmModel, context: Context) -> Model:
        """Give a model an id."""
        model = Model(self._next, om, context)
        self._live[model.id] = model
        self._next += 1
        return model

    def get(self, model_id: int) -> Model | None:
        """Return a loaded model, or None."""
        return self._live.get(model_id)

    def remove(self, model: Model) -> None:
        """Forget a model."""
        del self._live[model.id]

    def all(self) -> list[Model]:
        """Return all loaded models."""
        return list(self._live.values())
