"""Turns chains of operators into the programs that pre and post workers run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from gepipe.errors import ConfigError
from gepipe.ops.decode import DecodeImage
from gepipe.ops.geometry import Geometry
from gepipe.ops.op import Meta, Op
from gepipe.ops.results import Identity
from gepipe.ops.tensor import Cast, Normalize, ToTensor
from gepipe.tensors import UNKNOWN, TensorSpec, Variants

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gepipe.ops.fused import FusedImage, FusedTensor
    from gepipe.unshaped import UnshapedBuffer


class PreProgram:
    """A pre stage's operators, ready to run on one item at a time. Picklable.

    The chain is cut into three: `head`, decode_image with the geometry operators behind it;
    `tail`, the normalize, cast and to_tensor operators at the end; and whatever lies between.
    Head and tail are each run as one pass if `fuse` is set. With nothing between, the colour
    order is settled by the tail, on the small image.
    """

    def __init__(self, ops: Sequence[Op], *, fuse: bool = True) -> None:
        self.ops = tuple(ops)
        self.fuse = fuse
        head = _head_length(self.ops) if fuse else 0
        tail = _tail_length(self.ops[head:]) if fuse else 0
        end = len(self.ops) - tail
        self._head, self._middle, self._tail = self.ops[:head], self.ops[head:end], self.ops[end:]
        last = self._middle[-1] if self._middle and not self._tail else None
        self._writer = last if last is not None and last.tensors else None
        if self._writer is not None:
            self._middle = self._middle[:-1]
        self._image: FusedImage | None = None
        self._tensor: FusedTensor | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.ops, self.fuse)  # without what setup() made

    def setup(self) -> None:
        """Load libraries, import user code, build tables. Call once in the worker.

        Raises:
            ConfigError: User code does not import.
        """
        for op in self.ops:
            op.setup()
        if self._head or self._tail:
            from gepipe.ops.fused import FusedImage, FusedTensor

            if self._head:
                decode, *steps = self._head
                self._image = FusedImage(decode, tuple(steps))  # type: ignore[arg-type]
            if self._tail:
                self._tensor = FusedTensor(self._tail)

    def __call__(
        self, value: Any, meta: Meta, rows: Mapping[str, NDArray[Any] | UnshapedBuffer]
    ) -> None:
        """Process one item and write it into its rows.

        Args:
            value: What the source's reader returned.
            meta: Facts about the item; added to.
            rows: Input name to the item's row of the slot, contiguous; written in place. Or to room
                for the row, whose shape is then that of what the operators make.

        Raises:
            ItemError: The item cannot be processed, or does not fit the model's inputs.
        """
        order = None
        if self._image is not None:
            value, order = self._image(value, meta)
            if self._middle or self._tensor is None:
                value, order = self._ordered(value, order), None
        else:
            for op in self._head:
                value = op(value, meta)
        for op in self._middle:
            value = op(value, meta)
        if self._tensor is not None and len(rows) == 1 and self._tensor.takes(value):
            ((name, row),) = rows.items()
            swap = order is not None and order != self._color
            self._tensor.write(value, name, row, swap=swap)
            return
        if order is not None:
            value = self._ordered(value, order)
        if self._writer is not None:
            self._writer.write(value, meta, cast("Mapping[str, NDArray[Any]]", rows))  # all known
            return
        for op in self._tail:
            value = op(value, meta)
        from gepipe.ops.rows import write_rows

        write_rows(value, rows)

    def output_specs(self, given: TensorSpec | None = None) -> TensorSpec | None:
        """Return dtype and shape of what the chain returns for one item, None if unknown.

        Args:
            given: What the first operator is given, where that is known.

        Raises:
            ConfigError: An operator can never work on what the one before makes.
        """
        spec = given
        for op in self.ops:
            spec = op.output_spec(spec)
        return None if spec is not None and spec.dtype == UNKNOWN else spec

    def variants(self) -> Variants | None:
        """Return how large what the chain returns for one item can be, None if unknown.

        Raises:
            ConfigError: An operator can never work on what the one before makes.
        """
        found: Variants | None = None
        for op in self.ops:
            found = op.variants(found)
        known = found is not None and all(spec.dtype != UNKNOWN for spec in found.specs)
        return found if known else None

    def output_for(self, row: TensorSpec) -> TensorSpec | None:
        """Return what the chain makes for one of the model's inputs, None if unknown.

        Args:
            row: The input, of one item.

        Raises:
            ConfigError: An operator can never work on what the one before makes.
        """
        made = self.output_specs()
        if made is None or self._writer is None or row.name not in self._writer.tensors:
            return made
        return TensorSpec(row.name, row.dtype if "int" in row.dtype else made.dtype, made.shape)

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of the inputs that it fills, where it knows them; else it makes one tensor."""
        return self._writer.tensors if self._writer is not None else ()

    def describe(self) -> list[str]:
        """Return one line a pass over the data, in words."""
        lines = []
        fused = [*self._head, *self._tail] if not self._middle else list(self._head)
        if fused:
            into = "" if self._middle or not self._tail else ", written straight into the batch"
            lines.append(f"{_chain(fused)}: fused into one pass{self._scales()}{into}")
        lines += [op.title for op in self._middle]
        if self._middle and self._tail:
            lines.append(
                f"{_chain(self._tail)}: fused into one table look-up for 8-bit images, "
                "written straight into the batch"
            )
        if self._writer is not None:
            lines.append(f"{self._writer.title}: written straight into the batch")
        return lines or ["nothing: the source's arrays go to the model as they are"]

    @property
    def _color(self) -> str:
        decode = self._head[0]
        return decode.color if isinstance(decode, DecodeImage) else ""

    def _ordered(self, value: Any, order: str) -> Any:
        if order == self._color:
            return value
        import cv2

        return cv2.cvtColor(value, cv2.COLOR_BGR2RGB)

    def _scales(self) -> str:
        if len(self._head) < 2 or not isinstance(self._head[1], Geometry):
            return ""
        decode, first = self._head[0], self._head[1]
        if (
            not isinstance(decode, DecodeImage)
            or decode.scale == "full"
            or first.method == "nearest"
        ):
            return ""
        return ", JPEG decoded at 1/2, 1/4 or 1/8 where that is large enough"


class PostProgram:
    """A post stage's operators, ready to run on one item at a time. Picklable."""

    def __init__(self, ops: Sequence[Op]) -> None:
        self.ops = tuple(ops) or (Identity(),)

    def setup(self) -> None:
        """Read labels and import user code. Call once in the worker.

        Raises:
            ConfigError: A label file or user code does not load.
        """
        for op in self.ops:
            op.setup()

    def __call__(self, outputs: Mapping[str, NDArray[Any]], meta: Meta) -> Any:
        """Return the item's record.

        Args:
            outputs: Output name to the item's row; views into the slot, valid during the call.
            meta: What pre noted about the item.

        Raises:
            ItemError: The item cannot be processed.
            ConfigError: An operator does not fit the model.
        """
        value: Any = outputs
        for op in self.ops:
            value = op(value, meta)
        return value

    def describe(self) -> list[str]:
        """Return one line an operator, in words."""
        return [op.title for op in self.ops]


def plan_pre(ops: Sequence[Op], *, fuse: bool = True) -> PreProgram:
    """Return the program of a pre stage.

    Args:
        ops: Operators in order; none means that the source's arrays fit the model as they are.
        fuse: Run the usual chains as one pass; otherwise one by one, which is the reference.

    Raises:
        ConfigError: An operator belongs to another stage.
    """
    # Behind another model, the first one cuts the parts.
    _check_stage(ops[1:] if ops and ops[0].stage == "mid" else ops, "pre")
    return PreProgram(ops, fuse=fuse)


def plan_post(ops: Sequence[Op]) -> PostProgram:
    """Return the program of a post stage; without operators it returns the outputs themselves.

    Raises:
        ConfigError: An operator belongs to another stage.
    """
    _check_stage(ops, "post")
    return PostProgram(ops)


def _rebuild(ops: Sequence[Op], fuse: bool) -> PreProgram:
    return PreProgram(ops, fuse=fuse)


def _check_stage(ops: Sequence[Op], stage: str) -> None:
    for op in ops:
        if op.stage not in (stage, "both"):
            raise ConfigError(f"{op.title}: belongs to a {op.stage} stage, not to {stage}")


def _head_length(ops: Sequence[Op]) -> int:
    """Return how many operators, from the first, decode and place an image."""
    if not ops or type(ops[0]) is not DecodeImage:
        return 0
    length = 1
    while length < len(ops) and isinstance(ops[length], Geometry):
        length += 1
    return length


def _tail_length(ops: Sequence[Op]) -> int:
    """Return how many operators, up to the last, map each value by itself."""
    start, layouts = len(ops), 0
    while start > 0 and type(ops[start - 1]) in (Normalize, Cast, ToTensor):
        # normalize works on the last axis, so it may be taken in only before the layout changes.
        if type(ops[start - 1]) is ToTensor:
            layouts += 1
        if layouts > 1:
            break
        start -= 1
    placed = [index for index in range(start, len(ops)) if type(ops[index]) is ToTensor]
    if placed and any(type(op) is Normalize for op in ops[placed[0] :]):
        return len(ops) - 1 - max(i for i in range(len(ops)) if type(ops[i]) is Normalize)
    return len(ops) - start


def _chain(ops: Sequence[Op]) -> str:
    return " → ".join(op.title for op in ops)
