"""The tensors that a configuration declares, held against those of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gepipe.engines import texts
from gepipe.errors import ConfigError, TensorMismatchError
from gepipe.plugins import did_you_mean
from gepipe.serving import rawrows
from gepipe.tensors import DTYPE_OF_TRITON, DTYPES, DYNAMIC, TensorSpec

#: Rows of a slot where neither the configuration nor the model says.
ROWS: Final = 8
_BF16: Final = "BF16"


@dataclass(frozen=True, slots=True)
class Declared:
    """What `config.pbtxt` says of a model's tensors.

    Attributes:
        max_batch_size: Rows that the server puts into one batch; 0 where it forms none.
        inputs: Row specs, without the batch axis.
        outputs: Likewise.
        rows: Rows of a request where the server forms no batches; `DYNAMIC` where that varies.
    """

    max_batch_size: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    rows: int = DYNAMIC

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Declared:
        """Read a configuration, as the server hands it on.

        Raises:
            ConfigError: A tensor is of a kind that no engine takes.
        """
        batching = int(config.get("max_batch_size", 0))
        inputs, outputs = (_side(config, side) for side in ("input", "output"))
        if batching:
            return cls(batching, inputs, outputs)
        for spec in (*inputs, *outputs):
            if not spec.shape:
                raise ConfigError(f"{spec.name}: dims are missing")
        extents = {spec.shape[0] for spec in (*inputs, *outputs)} - {DYNAMIC}
        if len(extents) > 1:
            raise ConfigError(
                "max_batch_size is 0, so the first of the dims is the batch axis; expected the "
                f"same extent for all tensors, got {sorted(extents)}"
            )
        rows = [tuple(spec.row for spec in side) for side in (inputs, outputs)]
        return cls(0, rows[0], rows[1], next(iter(extents), DYNAMIC))

    @property
    def is_empty(self) -> bool:
        """Whether nothing is declared."""
        return not self.inputs and not self.outputs

    def matched(
        self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
    ) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
        """Return the model's row specs with open extents filled in from what is declared.

        Args:
            inputs: The model's inputs, without the batch axis.
            outputs: Likewise.

        Raises:
            TensorMismatchError: Names, types or extents do not fit, or remain open.
        """
        ins, outs = self.filled(inputs, outputs)
        for kind, spec in (*(("input", i) for i in ins), *(("output", o) for o in outs)):
            if not spec.is_static:
                raise TensorMismatchError(
                    f"{kind} {spec} has open extents; expected numbers for them in its dims"
                )
        return ins, outs

    def filled(
        self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
    ) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
        """Do the same as `matched`, but leave open what is open on both sides.

        Raises:
            TensorMismatchError: Names, types or extents do not fit.
        """
        for kind, declared, model in (
            ("input", self.inputs, inputs),
            ("output", self.outputs, outputs),
        ):
            _refuse_unknown(kind, declared, model)
        return (
            tuple(_filled("input", spec, self.inputs) for spec in inputs),
            tuple(_filled("output", spec, self.outputs) for spec in outputs),
        )


def _side(config: Mapping[str, Any], side: str) -> tuple[TensorSpec, ...]:
    return tuple(spec_of(side, entry, raw=True) for entry in config.get(side) or ())


def spec_of(side: str, entry: Mapping[str, Any], *, raw: bool = False) -> TensorSpec:
    """Return a tensor as a Python model is given it (`input`), or has to send it (`output`).

    Args:
        side: Which of the two.
        entry: What the configuration says of it.
        raw: Whether it may be of strings, or of bytes; see `rawrows`.

    Raises:
        ConfigError: It is of a type that no engine takes.
    """
    name = str(entry["name"])
    kind = str(entry["data_type"]).removeprefix("TYPE_")
    dims = entry.get("dims") or ()
    if side == "input" and entry.get("reshape"):  # the server does not reshape what models send
        dims = entry["reshape"].get("shape") or ()
    shape = tuple(int(extent) for extent in dims)
    if raw and kind == rawrows.STRING:
        return TensorSpec(name, texts.STRING, shape)
    if kind not in DTYPE_OF_TRITON:
        known = f"expected one of {', '.join(DTYPE_OF_TRITON)}"
        hint = "Python models cannot be given it; convert the model to FP16 or FP32"
        raise ConfigError(
            f"{side} {name!r}: TYPE_{kind} is not supported: {hint if kind == _BF16 else known}"
        )
    return TensorSpec(name, DTYPE_OF_TRITON[kind].name, shape)


def _filled(kind: str, model: TensorSpec, declared: Sequence[TensorSpec]) -> TensorSpec:
    mine = next((spec for spec in declared if spec.name == model.name), None)
    if mine is None:
        if kind == "output":
            return model  # computed, and sent to nobody
        raise TensorMismatchError(f"{kind} {model} of the model is not in the configuration")
    if mine.dtype == texts.STRING != model.dtype:
        rawrows.check_raw(kind, mine, model)
        return model
    if not model.shape and mine.shape == (1,):
        return model  # the server has no dims for a row that is a single number
    if not mine.accepts(model):
        raise TensorMismatchError(
            f"{kind} {model.name!r} is {_written(mine)} in the configuration, but in the "
            f"model {_written(model)}"
        )
    return model.filled(mine)


def _refuse_unknown(kind: str, declared: Sequence[TensorSpec], model: Sequence[TensorSpec]) -> None:
    names = [spec.name for spec in model]
    for spec in declared:
        if spec.name not in names:
            hint = did_you_mean(spec.name, names)
            raise TensorMismatchError(f"the model has no {kind} {spec.name!r}; {hint}")


def _written(spec: TensorSpec) -> str:
    dims = ", ".join(str(extent) for extent in spec.shape)
    return f"{triton_type(spec.dtype)} [{dims}]"


def triton_type(dtype: str) -> str:
    """Return what a configuration calls a data type of a model."""
    return f"TYPE_{rawrows.STRING if dtype == texts.STRING else DTYPES[dtype].triton}"
