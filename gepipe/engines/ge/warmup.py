"""The first execution of a model: it loads what all the others need, which takes seconds."""

from __future__ import annotations

from typing import Final

from gepipe.engines.ge.buffers import BatchSet
from gepipe.engines.ge.gear import Gear
from gepipe.engines.ge.session import Session
from gepipe.engines.ge.shapes import Shapes
from gepipe.errors import DeviceError, TensorMismatchError

#: How long an execution may take that has no limit of its own.
LONG_S: Final = 60.0
#: Bytes for an output of unknown size in the execution that finds out.
_PROBE_NBYTES: Final = 64 << 20


def warm_up(
    session: Session, place: BatchSet, shapes: Shapes, limit_s: float, *, probed: bool
) -> None:
    """Execute zeros, before the first batch has to keep its limit.

    Args:
        session: The model on its device.
        place: Memory for a batch.
        shapes: The model's gears.
        limit_s: How long it may take.
        probed: Whether this is also to tell the outputs' shapes, which the model leaves open.

    Raises:
        DeviceError: The device is lost, or nothing was found out of the outputs.
        TensorMismatchError: An output has no batch as its first axis.
    """
    gear = shapes.first()
    if gear is None:
        return
    try:
        _execute_zeros(session, place, gear, limit_s)
    except DeviceError as error:
        if error.fatal or probed:
            raise
    if probed:
        _settle_outputs(session, place, shapes, gear.batch)


def _execute_zeros(session: Session, place: BatchSet, gear: Gear, limit_s: float) -> None:
    acl = session.acl
    sizes = gear.input_nbytes(session.description.inputs)
    for port, nbytes in zip(place.inputs, sizes, strict=True):
        port.grow(nbytes)
        acl.memset(port.device, port.nbytes, 0, nbytes)
    if gear.setting:
        session.set_gear(place.input_dataset, gear.setting)
    elif session.description.kind == "range":
        place.describe(gear)
        for port in place.outputs:
            if not port.tensor.nbytes:
                port.grow(_PROBE_NBYTES)
    acl.execute_async(session.model_id, place.input_dataset, place.output_dataset, session.compute)
    session.synchronize(session.compute, limit_s)


def _settle_outputs(session: Session, place: BatchSet, shapes: Shapes, batch: int) -> None:
    found = [place.output_shape(at) for at in range(len(place.outputs))]
    for port, shape in zip(place.outputs, found, strict=True):
        if shape is None or not shape or shape[0] != batch:
            raise TensorMismatchError(
                f"{session.file.path}: output {port.tensor.name!r} has the shape {shape} "
                f"for a batch of {batch}; expected the batch as its first axis"
            )
    shapes.set_outputs(tuple(shape[1:] for shape in found if shape))
