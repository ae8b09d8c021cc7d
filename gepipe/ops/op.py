"""What an operator is: a frozen description of one step, callable on one item.

Operators are declared as plain dataclasses, so that workers need no validation library, and
declaring modules import NumPy and OpenCV only inside functions, so that the supervising process
never loads them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from gepipe.tensors import Variants

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from gepipe.tensors import TensorSpec

#: Values of a parameter that are shown one by one.
_LISTED = 8
#: Plain values that travel with an item from pre to post: str, int, float, bool, list, dict.
Meta = dict[str, Any]


@dataclass(frozen=True)
class Op(ABC):
    """One step of a pre- or post-processing chain. Subclasses are frozen dataclasses.

    The fields of a subclass are its parameters in the YAML, and the `Attributes:` section of its
    docstring is their documentation. `__post_init__` raises ValueError where values do not fit
    each other.
    """

    #: Which stages may use the operator: `mid` splits what a model found into parts for the next.
    stage: ClassVar[Literal["pre", "mid", "post", "both"]] = "pre"
    #: Whether the operator keeps a state from item to item, and must be given them in order.
    ordered: ClassVar[bool] = False
    #: An operator that it may stand behind, such as `yolo`; set where it reads what one before it
    #: made, and not the model's outputs.
    follows: ClassVar[str] = ""
    #: The field that a bare value goes to, as in `- threshold: 0.5`.
    shorthand: ClassVar[str | None] = None
    #: Read by the validation of the YAML, in the supervising process only.
    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}

    @abstractmethod
    def __call__(self, value: Any, meta: Meta) -> Any:
        """Process one item.

        Args:
            value: What the operator before returned. At first, in pre, what the source read
                (bytes of a file, or an array); in post, dict of output name to the row's array,
                a view that must be copied if kept.
            meta: Facts about the item, such as the size of the original; may be added to.

        Raises:
            ItemError: This item cannot be processed; it is set aside and the run goes on.
        """

    @property
    def title(self) -> str:
        """The operator as people write it, such as `center_crop 224`."""
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(self).__name__).lower()
        changed = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if getattr(self, field.name) != field.default and getattr(self, field.name) != {}
        }
        if list(changed) == [self.shorthand]:
            return f"{name} {changed.popitem()[1]}"
        return " ".join((name, *(f"{key}={_shown(value)}" for key, value in changed.items())))

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of the inputs that the operator fills by `write`, where it makes several.

        Each is what `output_spec` says, in any integer type. The model may lack some of them.
        """
        return ()

    def write(self, value: Any, meta: Meta, rows: Mapping[str, NDArray[Any]]) -> None:  # noqa: ARG002
        """Process one item straight into the model's inputs; for an operator with `tensors`.

        Args:
            value: As for a call.
            meta: As for a call.
            rows: Input name to the item's row, written in place.

        Raises:
            ItemError: The item cannot be processed, or does not fit the model's inputs.
            TypeError: The operator has no `tensors`.
        """
        raise TypeError(f"{self.title} has no tensors to write: it is called")

    def setup(self) -> None:  # noqa: B027 - most have nothing to prepare
        """Prepare what all items share: read label files, import user code. Once a worker."""

    def output_spec(self, spec: TensorSpec | None) -> TensorSpec | None:  # noqa: ARG002
        """Infer what the operator returns for one item, without running it.

        Args:
            spec: What it is given: `(height, width, channels)` for an image, -1 where unknown;
                None where nothing is known.

        Returns:
            dtype and shape of its result, or None where that cannot be known.

        Raises:
            ConfigError: It can never work on what it is given.
        """
        return None

    def variants(self, given: Variants | None) -> Variants | None:
        """Infer how large what the operator returns can be, where its size is not always the same.

        Args:
            given: How large what it is given can be; None where nothing is known.

        Returns:
            Likewise for its result.

        Raises:
            ConfigError: It can never work on what it is given.
        """
        before = (None,) if given is None else given.specs
        made = [self.output_spec(spec) for spec in before]
        if None in made:
            return None
        specs = tuple(dict.fromkeys(spec for spec in made if spec is not None))
        if given is not None and (given.is_bounded or not Variants(specs).is_bounded):
            return Variants(specs, complete=given.complete, step=given.step)
        return Variants(specs, complete=Variants(specs).is_bounded)  # its own size is known


def _shown(value: Any) -> Any:
    if isinstance(value, tuple) and len(value) > _LISTED:
        return f"({value[0]}, …, {value[-1]}: {len(value)})"
    return value
