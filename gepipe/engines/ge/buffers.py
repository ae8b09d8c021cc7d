"""Everything that one batch on the device needs: pinned staging, device memory, datasets."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from gepipe.engines.ge.gear import Gear
from gepipe.engines.ge.interface import Tensor
from gepipe.engines.ge.memory import DevicePool
from gepipe.engines.ge.runtime import HOST_TO_DEVICE, Acl
from gepipe.engines.ge.session import Session
from gepipe.engines.ge.staging import PinnedBuffer
from gepipe.engines.ge.teardown import Teardown
from gepipe.errors import DeviceError, TensorMismatchError
from gepipe.tensors import DTYPES

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Shapes of which the views are kept; a model that takes ranges may see any number of them.
_SHAPES: Final = 256


class Port:
    """Memory of one input or output: on the device, and pinned on the host.

    Attributes:
        tensor: The input or output.
        device: Address on the device.
        host: Address of the staging memory.
        nbytes: Bytes of each.
    """

    def __init__(self, acl: Acl, pool: DevicePool, tensor: Tensor, stack: Teardown) -> None:
        self.tensor = tensor
        self._acl, self._pool = acl, pool
        self._staging: PinnedBuffer | None = None
        self.nbytes = 0
        self.device = self.host = 0
        stack.callback(self.close)
        self._take(tensor.room)
        self.buffer = acl.create_data_buffer(self.device, self.nbytes)
        stack.callback(acl.destroy_data_buffer, self.buffer)

    def holds(self, nbytes: int) -> bool:
        """Return whether there is memory for as many bytes."""
        return self._staging is not None and nbytes <= self.nbytes

    def grow(self, nbytes: int) -> None:
        """Have at least `nbytes`, which may be other memory than before.

        Raises:
            DeviceError: There is no more. Then there is none, until it succeeds again.
        """
        if self.holds(nbytes):
            return
        self.close()
        try:
            self._take(nbytes)
            self._acl.update_data_buffer(self.buffer, self.device, self.nbytes)
        except DeviceError:
            self.close()
            raise

    def upload(self, first: int, last: int, stream: int) -> None:
        """Have a stream copy the bytes [first, last) of the staging memory to the device."""
        self._acl.memcpy_async(
            self.device + first,
            self.nbytes - first,
            self.host + first,
            last - first,
            HOST_TO_DEVICE,
            stream,
        )

    def view(self, shape: tuple[int, ...]) -> NDArray[Any]:
        """Return the staging memory as an array."""
        assert self._staging is not None
        return self._staging.view(self.tensor.dtype, shape)

    def close(self) -> None:
        """Free both. Closing twice is harmless."""
        if self._staging is not None:
            self._staging.close()
            self._staging = None
        device, self.device, self.nbytes = self.device, 0, 0
        if device:
            self._pool.free(device)

    def _take(self, nbytes: int) -> None:
        self.device = self._pool.allocate(nbytes)
        self._staging = PinnedBuffer(self._acl, nbytes)
        self.host = self._staging.address
        self.nbytes = nbytes


class BatchSet:
    """Memory and datasets for one batch.

    Attributes:
        inputs: Inputs, without the one that holds the gear.
        outputs: Outputs.
        input_dataset: The model's inputs in ACL.
        output_dataset: Its outputs.
    """

    def __init__(self, session: Session) -> None:
        acl, description = session.acl, session.description
        self._acl = acl
        self._session = session
        self._views: dict[int, tuple[Gear, list[NDArray[Any]], list[NDArray[Any]]]] = {}
        self._described: Gear | None = None
        with Teardown() as stack:
            pool = session.pool
            self.inputs = [Port(acl, pool, each, stack) for each in description.inputs]
            self.outputs = [Port(acl, pool, each, stack) for each in description.outputs]
            handles = {port.tensor.index: port.buffer for port in self.inputs}
            if description.gear_nbytes:
                gear = pool.allocate(description.gear_nbytes)
                stack.callback(pool.free, gear)
                buffer = acl.create_data_buffer(gear, description.gear_nbytes)
                stack.callback(acl.destroy_data_buffer, buffer)
                handles[description.gear_index] = buffer
            self.input_dataset = self._dataset([handles[at] for at in sorted(handles)], stack)
            self.output_dataset = self._dataset([port.buffer for port in self.outputs], stack)
            self._resources = stack.pop_all()

    def views(self, gear: Gear) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
        """Return the staging memory as arrays of a gear's shapes: inputs, outputs."""
        found = self._views.get(id(gear))
        if found is None:
            pairs = [
                *zip(self.inputs, gear.inputs, strict=True),
                *zip(self.outputs, gear.outputs, strict=True),
            ]
            sizes = [(port, math.prod(shape) * port.tensor.itemsize) for port, shape in pairs]
            grown = [(port, nbytes) for port, nbytes in sizes if not port.holds(nbytes)]
            if grown or len(self._views) == _SHAPES:
                self._views.clear()
            for port, nbytes in grown:
                port.grow(nbytes)
            if grown:  # the next batch has this shape, as a rule
                self._session.pool.prepare(nbytes for _, nbytes in grown)
            arrays = [port.view(shape) for port, shape in pairs]
            found = gear, arrays[: len(self.inputs)], arrays[len(self.inputs) :]
            self._views[id(gear)] = found  # the gear is kept as well, or its id would be another's
        return found[1:]

    def describe(self, gear: Gear) -> None:
        """Tell ACL the shapes of the inputs: for a model that takes ranges of shapes."""
        if self._described is gear:
            return
        acl = self._acl
        for port, shape in zip(self.inputs, gear.inputs, strict=True):
            tensor = port.tensor
            desc = acl.create_tensor_desc(DTYPES[tensor.dtype].acl, list(shape), tensor.format)
            try:
                acl.set_dataset_tensor_desc(self.input_dataset, desc, tensor.index)  # copies it
            finally:
                acl.destroy_tensor_desc(desc)
        self._described = gear

    def output_shape(self, index: int) -> tuple[int, ...] | None:
        """Return the shape that an output has after the execution; None where ACL has none."""
        acl = self._acl
        desc = acl.get_dataset_tensor_desc(self.output_dataset, index)
        if not desc:
            return None
        rank = acl.get_tensor_desc_num_dims(desc)
        return tuple(int(acl.get_tensor_desc_dim(desc, axis)) for axis in range(rank))

    def check_outputs(self, gear: Gear) -> None:
        """Compare the shapes that the outputs have after an execution with those expected.

        Raises:
            TensorMismatchError: One is another.
        """
        for at, (port, shape) in enumerate(zip(self.outputs, gear.outputs, strict=True)):
            real = self.output_shape(at)
            if real is not None and real != shape:
                raise TensorMismatchError(
                    f"output {port.tensor.name!r} has the shape {list(real)} for inputs of "
                    f"{[list(each) for each in gear.inputs]}; expected {list(shape)}"
                )

    def close(self) -> None:
        """Release everything. Closing twice is harmless."""
        self._views.clear()
        self._resources.close()

    def abandon(self) -> None:
        """Release nothing: the context is lost."""
        self._resources.pop_all()

    def _dataset(self, buffers: list[int], stack: Teardown) -> int:
        dataset = int(self._acl.create_dataset())
        stack.callback(self._acl.destroy_dataset, dataset)
        for buffer in buffers:
            self._acl.add_dataset_buffer(dataset, buffer)
        return dataset
