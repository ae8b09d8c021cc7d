"""A model on a device: its context and streams, its memory, its description."""

from __future__ import annotations

import math
from functools import partial

from gepipe.engines.ge.description import describe
from gepipe.engines.ge.gear import Gear, input_shapes
from gepipe.engines.ge.interface import Shape
from gepipe.engines.ge.library import Library, with_patience
from gepipe.engines.ge.loading import Loading, pool_nbytes
from gepipe.engines.ge.memory import DevicePool
from gepipe.engines.ge.modelfile import ModelFile
from gepipe.engines.ge.pinned import Pinned
from gepipe.engines.ge.runtime import RUNS_ON_HOST
from gepipe.engines.ge.shapes import Shapes
from gepipe.engines.ge.teardown import Teardown
from gepipe.errors import BackendError, DeviceError


class Session:
    """A model loaded on one device, in a context of its own.

    Attributes:
        acl: The functions of ACL.
        model_id: The model.
        desc: Its description in ACL.
        description: Its description here.
        copy: The stream of copies.
        compute: The stream of executions.
        pool: Device memory for the tensors of batches.
        notes: Facts worth telling.
    """

    def __init__(self, library: Library, file: ModelFile, device: int) -> None:
        self.acl = library.acl
        self.notes: list[str] = []
        self._file = file
        self._device = device
        with Teardown() as stack:  # unwinds in reverse if any step below fails
            try:
                self._open(library, device, stack)
            except DeviceError as error:
                if error.fatal:  # releasing could last for ever; the end of the process does it
                    stack.pop_all()
                raise
            self._resources = stack.pop_all()

    def enter_thread(self) -> None:
        """Make the context that of the calling thread, which may have had another since."""
        self.acl.set_context(self.context)

    def shapes(self, dataset: int, pinned: Pinned) -> Shapes:
        """Return the model's gears.

        Args:
            dataset: Inputs with memory for the gear; not needed for a model without gears.
            pinned: Shapes of rows, which leave only gears that have them.

        Raises:
            ConfigError: There is none.
            TensorMismatchError: An input or output has no batch as its first axis.
        """
        description, acl = self.description, self.acl
        gears = []
        if description.kind != "range":
            for setting, shapes in input_shapes(description):
                if description.kind != "static":
                    self.set_gear(dataset, setting)
                read = (
                    acl.get_output_dims
                    if description.kind == "static"
                    else (acl.get_cur_output_dims)
                )
                outputs = tuple(
                    tuple(int(extent) for extent in read(self.desc, tensor.index)["dims"])
                    for tensor in description.outputs
                )
                batch = shapes[0][0] if shapes and shapes[0] else 1
                gears.append(Gear(batch, shapes, setting, outputs))
        return Shapes(description, gears, self._file.path, pinned)

    def synchronize(self, stream: int, limit_s: float) -> None:
        """Wait for a stream, within a limit where this CANN can.

        Raises:
            DeviceTimeoutError: It takes longer.
        """
        if self.acl.has("rt.synchronize_stream_with_timeout"):
            self.acl.synchronize_stream_with_timeout(stream, math.ceil(1000 * limit_s))
        else:
            self.acl.synchronize_stream(stream)

    def set_gear(self, dataset: int, setting: Shape) -> None:
        """Tell ACL the gear of the next execution; it writes it into the dataset's gear input."""
        description, acl = self.description, self.acl
        index = description.gear_index
        if description.kind == "batch":
            acl.set_dynamic_batch_size(self.model_id, dataset, index, setting[0])
        elif description.kind == "hw":
            acl.set_dynamic_hw_size(self.model_id, dataset, index, *setting)
        else:
            dims = {"name": "", "dimCount": len(setting), "dims": list(setting)}
            acl.set_input_dynamic_dims(self.model_id, dataset, index, dims)

    @property
    def device(self) -> int:
        """The device, as this process counts them."""
        return self._device

    @property
    def file(self) -> ModelFile:
        """The model's file."""
        return self._file

    def close(self) -> None:
        """Release everything, in the order of the CANN manual. Closing twice is harmless."""
        self.enter_thread()
        self._resources.close()

    def abandon(self) -> None:
        """Release nothing: the context is lost, and only the end of the process frees it."""
        self._resources.pop_all()

    def _open(self, library: Library, device: int, stack: Teardown) -> None:
        acl = self.acl
        self._enter_device(library, device, stack)
        self.copy = acl.create_stream()
        stack.callback(acl.destroy_stream, self.copy)
        self.compute = acl.create_stream()
        stack.callback(acl.destroy_stream, self.compute)
        loading = Loading(acl, self._file, device, self.notes)
        loading.describe()
        self.desc = acl.create_desc()
        stack.callback(acl.destroy_desc, self.desc)
        self.model_id = loading.load(stack)
        acl.get_desc(self.desc, self.model_id)
        self.description = describe(acl, self.desc, self._file.path, self.model_id)
        elastic = self.description.kind == "range"
        self.pool = DevicePool(acl, pool_nbytes(self.description), elastic=elastic)
        stack.callback(self.pool.close)

    def _enter_device(self, library: Library, device: int, stack: Teardown) -> None:
        acl = self.acl
        count = acl.get_device_count()
        if not 0 <= device < count:
            raise BackendError(
                f"device {device} does not exist: {count} can be seen, counted from 0; look at "
                "`devices:`, ASCEND_RT_VISIBLE_DEVICES and the container's devices"
            )
        what = f"device {device}"
        if library.owned:
            with_patience(partial(acl.set_device, device), what)
            stack.callback(acl.reset_device, device)
        else:  # a plain reset_device of older releases would take another library's objects
            self._keep_context(stack)
        self.context: int = with_patience(partial(acl.create_context, device), what)
        stack.callback(acl.destroy_context, self.context)
        if acl.get_run_mode() != RUNS_ON_HOST:
            self.notes.append("this process runs on the device itself")

    def _keep_context(self, stack: Teardown) -> None:
        try:
            former = self.acl.get_context()
        except DeviceError:
            self.acl.message()
            return
        stack.callback(self.acl.set_context, former)
