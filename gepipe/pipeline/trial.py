"""Tries the first inputs before the start: whether pre makes of them what the model takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from gepipe.errors import ConfigError, ItemError
from gepipe.ops.plan import plan_pre
from gepipe.pipeline.bodies import PreBody
from gepipe.runtime.memory import SharedBuffer, SlotLayout, Slots

if TYPE_CHECKING:
    from gepipe.io.source import Entry, Source
    from gepipe.spec.model import PipelineSpec

#: Inputs that are looked at, and failures among them that are taken as a sign.
TRIED: Final = 8
_SIGNS: Final = 3
#: Failures that lie in the pipeline; all others may lie in the input.
OURS: Final = ("shape", "meta")


@dataclass
class Trial:
    """Does the work of a pre worker on a few inputs, and forgets the results.

    Attributes:
        body: What the worker runs.
        entries: The inputs.
        layout: Where a pre worker writes.
    """

    body: PreBody
    entries: Sequence[Entry]
    layout: SlotLayout

    @classmethod
    def of(cls, spec: PipelineSpec, source: Source, layout: SlotLayout) -> Trial:
        """Return a trial of a pipeline's first inputs.

        Args:
            spec: The pipeline as it is run.
            source: Its inputs.
            layout: Of an input slot.
        """
        entries = tuple(islice(source.entries(), TRIED))
        return cls(PreBody(source.reader, plan_pre(spec.pre.ops)), entries, layout)

    def setup(self) -> None:
        """Try the inputs until one fits.

        Raises:
            ConfigError: None does, and that does not lie in the files.
        """
        slots = Slots(SharedBuffer.create(self.layout.slot_nbytes), self.layout)
        self.body.setup()
        signs: list[str] = []
        for entry in self.entries:
            try:
                self.body.write(entry.payload, slots.row(0, 0))
            except ItemError as error:
                if error.kind not in OURS:
                    continue
                signs.append(f"{entry.source}: {error}")
            except ConfigError:
                raise
            except Exception as error:  # noqa: BLE001 - user code may raise anything
                signs.append(f"{entry.source}: {type(error).__name__}: {error}")
            else:
                return
            if len(signs) == _SIGNS:
                break
        if signs:
            which = f"the first {len(signs)} inputs" if len(signs) > 1 else "the first input"
            fail = "all fail" if len(signs) > 1 else "fails"
            raise ConfigError(f"{which} {fail}: {signs[0]}")
