"""Rows that travel as one element of BYTES each: the bytes that they have in memory, and no text.

A tensor that the configuration declares as `TYPE_STRING` with one element a row stands for the
model's own tensor of bytes, whose row has a fixed size. One that the model has as strings is none
of these: see `textrows`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gepipe.engines import texts
from gepipe.errors import ItemError, TensorMismatchError
from gepipe.tensors import DTYPES, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

#: Triton's name of the type, without `TYPE_`.
STRING: Final = "STRING"
#: What NumPy calls the type of a tensor of BYTES.
DTYPE: Final = "object"
#: Types of a model whose elements are bytes: of any other, the order of bytes would matter too.
_TAKEN: Final = ("uint8", "int8")
_ONE: Final = ((), (1,))


def check_raw(kind: str, declared: TensorSpec, model: TensorSpec) -> None:
    """Hold a tensor that is declared as `TYPE_STRING` against the model's.

    Args:
        kind: `input` or `output`, for messages.
        declared: One row of it, as it is declared.
        model: One row of the model's own.

    Raises:
        TensorMismatchError: The bytes of a row cannot be such an element.
    """
    where = f"{kind} {model.name!r} is TYPE_STRING in the configuration"
    own = f"TYPE_{DTYPES[model.dtype].triton} {list(model.shape)}"
    if model.dtype not in _TAKEN:
        raise TensorMismatchError(
            f"{where}, which carries rows of TYPE_UINT8 or TYPE_INT8 as they are; in the model it "
            f"is {own}: declare it so"
        )
    if declared.shape not in _ONE:
        raise TensorMismatchError(
            f"{where} with {list(declared.shape)} elements a row; expected dims [ 1 ]: one "
            "element holds all bytes of a row"
        )
    if not model.is_static:
        raise TensorMismatchError(
            f"{where}, and in the model it is {own}, whose size is open; declare it as "
            f"TYPE_{DTYPES[model.dtype].triton} with numbers in its dims"
        )


def raw_of(specs: Sequence[TensorSpec], models: Sequence[TensorSpec]) -> dict[str, tuple[int, ...]]:
    """Return the name of each tensor that is declared so, and the shape of its element.

    Args:
        specs: As they are declared.
        models: As the model has them.
    """
    own = {spec.name: spec.dtype for spec in models}
    return {spec.name: spec.shape for spec in specs if spec.dtype == texts.STRING != own[spec.name]}


def rows_from(values: NDArray[Any], spec: TensorSpec) -> NDArray[Any]:
    """Return the rows whose bytes a request carries.

    Args:
        values: One element of bytes a row.
        spec: A row of the model's.

    Raises:
        ItemError: `shape`: an element has another number of bytes than a row, or there is more
            than one a row.
    """
    import numpy as np

    if values.dtype.name != DTYPE or values.shape not in ((len(values),), (len(values), 1)):
        raise ItemError(
            "shape",
            f"input {spec.name!r} is {values.dtype.name} {list(values.shape)}; expected BYTES "
            f"[{len(values)}, 1]",
        )
    rows = np.empty((len(values), *spec.shape), spec.dtype)
    for number, value in enumerate(values.reshape(-1)):
        if len(value) != spec.nbytes:
            raise ItemError(
                "shape",
                f"input {spec.name!r}: row {number} has {len(value):,} bytes; expected "
                f"{spec.nbytes:,}, a row of {spec.dtype} {list(spec.shape)}",
            )
        rows[number] = np.frombuffer(value, spec.dtype).reshape(spec.shape)
    return rows


def elements_of(rows: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return rows as one element of bytes each.

    Args:
        rows: The rows.
        shape: The shape of an element, as it is declared.
    """
    import numpy as np

    values = np.empty(len(rows), object)
    for number in range(len(rows)):
        values[number] = rows[number].tobytes()
    return values.reshape(len(rows), *shape)
