"""What workers run, stage by stage, and what an infer worker says of its model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from gepipe.tensors import TensorSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gepipe.unshaped import UnshapedBuffer


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What an infer worker says of its model once it is open.

    Attributes:
        inputs: Row specs of the inputs, without the batch axis; `DYNAMIC` where unknown.
        outputs: Row specs of the outputs, likewise.
        gears: Batch sizes that the model takes; empty means any.
        notes: Facts worth telling the user.
        in_flight: Batches that the engine works on at once.
        largest: The most bytes that a row of each output has; empty where their shapes are known.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    gears: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    in_flight: int = 1
    largest: tuple[int, ...] = ()

    def to_plain(self) -> tuple[Any, ...]:
        """Return plain values for a message."""
        specs = [tuple((s.name, s.dtype, s.shape) for s in t) for t in (self.inputs, self.outputs)]
        return (*specs, self.gears, self.notes, self.in_flight, self.largest)

    @classmethod
    def from_plain(cls, plain: tuple[Any, ...]) -> ModelInfo:
        """Rebuild from `to_plain`."""
        inputs, outputs, gears, notes, in_flight, largest = plain
        specs = [tuple(TensorSpec(*spec) for spec in side) for side in (inputs, outputs)]
        return cls(specs[0], specs[1], tuple(gears), tuple(notes), in_flight, tuple(largest))


class Writer(Protocol):
    """What a pre worker runs."""

    def setup(self) -> None:
        """Load what the stage needs; called once in the worker."""

    def write(self, payload: Any, rows: Mapping[str, NDArray[Any] | UnshapedBuffer]) -> bytes:
        """Make an item's tensors in place.

        Args:
            payload: The item, as its source described it.
            rows: Input name to array of one row, or to the room for a row of whatever shape it
                turns out to have; views into the slot, valid during the call. Empty in a run that
                has nothing but pre.

        Returns:
            The item's meta, for post; in a run that has nothing but pre, its record.
        """
        ...

    # A body may have `attach(buffer: SharedBuffer) -> None` too, as a `Reader` may: it is called
    # when memory arrives that payloads point into, which is before the first ticket that needs it.


class Runner(Protocol):
    """What an infer worker runs."""

    #: Batches that may be submitted before the first is collected.
    in_flight: int

    def setup(self) -> ModelInfo:
        """Open the model; called once in the worker."""
        ...

    def submit(
        self,
        inputs: Mapping[str, NDArray[Any]],
        outputs: Mapping[str, NDArray[Any] | UnshapedBuffer],
        count: int,
    ) -> Any:
        """Start the inference of `count` rows; see `gepipe.engines.engine.Engine.submit`."""
        ...

    def collect(self, pending: Any) -> None:
        """Wait for a submitted batch."""

    def close(self) -> None:
        """Release the device."""


class Reader(Protocol):
    """What a post worker runs."""

    def setup(self) -> None:
        """Load what the stage needs; called once in the worker."""

    def read(self, rows: Mapping[str, NDArray[Any]], meta: bytes) -> bytes:
        """Make an item's record.

        Args:
            rows: Output name to array of one row; views into the slot, valid during the call.
            meta: What pre returned for this item.
        """
        ...
