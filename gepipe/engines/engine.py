"""What an inference engine is: a model opened on one device, fed whole batches in place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gepipe.engines.lengths import Lengths
    from gepipe.tensors import TensorSpec, Variants
    from gepipe.unshaped import UnshapedBuffer


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How to open a model.

    Attributes:
        device: Index of the device, as the engine counts them.
        threads: CPU threads the engine may use for itself.
        batch_size: Rows of the largest batch it will be given, or 0 where that is for it to say.
        precision: `auto`, `fp32` or `fp16`.
        gears: Batch sizes to prepare for; empty means the model's own.
        timeout_s: Limit of one execution, for an engine that keeps time; None for none.
        made: What the stage before makes of an item, where that is known: it chooses for a model
            that takes several shapes. Of several inputs, it is what each is given.
        variants: How large the items are that the stage before makes, where they differ in their
            shapes and that is known; None otherwise.
        lengths: Lengths that a batch of texts may be executed at; None where there is one only.
        text_bytes: The most bytes of a row of strings, for an engine that is given them, and gives
            them, as `texts` packs them; 0 where it takes none.
        extra: Options written under the engine's name in the YAML.
    """

    device: int = 0
    threads: int = 1
    batch_size: int = 0
    precision: str = "auto"
    gears: tuple[int, ...] = ()
    timeout_s: float | None = None
    made: TensorSpec | None = None
    variants: Variants | None = None
    lengths: Lengths | None = None
    text_bytes: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)


class Engine(Protocol):
    """A model that is open on one device. Used by one thread of one process.

    Attributes:
        inputs: The model's inputs; axis 0 is the batch, `DYNAMIC` or fixed.
        outputs: The model's outputs; likewise.
        gears: Batch sizes the model takes, ascending; empty means any.
        in_flight: How many batches may be submitted before the first is collected.
        notes: Facts worth telling the user once, such as the provider in use.
        largest: The most bytes that a row of each output has, given `EngineOptions.variants`. Only
            an engine has it that executes models of open sizes, and where the outputs' are open.
        on_cpu: Whether it computes on the CPU: it then shares the cores with the workers, has one
            device, and is given the number of threads it may use.
        keeps_time: Whether it ends an execution past `EngineOptions.timeout_s` by itself, with a
            `TimeoutError`. The process of another engine is killed then.
        copies_inputs: Whether it copies inputs to memory of its own before it computes: they may
            then lie on any boundary, where the server has put them.
    """

    on_cpu: ClassVar[bool] = False
    keeps_time: ClassVar[bool] = False
    copies_inputs: ClassVar[bool] = False

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    gears: tuple[int, ...]
    in_flight: int
    notes: tuple[str, ...]

    @classmethod
    def open(cls, model: Path | None, options: EngineOptions) -> Engine:
        """Open `model`.

        Raises:
            ModelLoadError: The file is not a model of this engine, or does not fit the device.
        """
        ...

    def submit(
        self,
        inputs: Mapping[str, NDArray[Any]],
        outputs: Mapping[str, NDArray[Any] | UnshapedBuffer],
        count: int,
    ) -> Any:
        """Start the inference of `count` rows.

        Args:
            inputs: Name to (rows, …) array, rows ≥ count; a view into the input slot that stays
                valid until the batch is collected. Not modified.
            outputs: Name to (rows, …) array; a view into the output slot, filled for the first
                `count` rows by the time `collect` returns. Rows beyond stay untouched. For an
                output of open extents it is room, whose shape the engine settles.
            count: Rows that hold items, at least 1. Padding to a gear is the engine's affair.

        Returns:
            A token to hand to `collect`.
        """
        ...

    def collect(self, pending: Any) -> None:
        """Wait until the oldest submitted batch, named by its token, lies in its outputs.

        Raises:
            BackendError: The execution failed.
        """
        ...

    def close(self) -> None:
        """Release the model and the device. Closing twice is harmless."""
        ...
