"""A model on a device: its context and streams, its memory, its description."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from gepipe.engines.ge.buddy import charged, span
from gepipe.engines.ge.description import Description, Shape, describe
from gepipe.engines.ge.library import Library, with_patience
from gepipe.engines.ge.memory import DevicePool, free_memory, gib
from gepipe.engines.ge.modelfile import ModelFile
from gepipe.engines.ge.runtime import HUGE_FIRST, RUNS_ON_HOST, Acl
from gepipe.engines.ge.shapes import Gear, Shapes, input_shapes
from gepipe.engines.ge.teardown import Teardown
from gepipe.engines.ge.weights import is_loaded, key_of, lend
from gepipe.errors import BackendError, DeviceError, DeviceLostError, ModelLoadError

#: Batches on the device at a time: one computes while another is copied.
SETS: Final = 2
#: What ACL answers to a model file that was made for another chip or another release.
_WRONG_FILE: Final = frozenset((500002, 507008, *range(545000, 545009)))
#: What it answers to a file that is damaged.
_DAMAGED: Final = 145006


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

    def shapes(self, dataset: int, pinned: Mapping[str, Shape]) -> Shapes:
        """Return the model's gears.

        Args:
            dataset: Inputs with memory for the gear; not needed for a model without gears.
            pinned: Input name to the shape of a row, which leaves only gears of that shape.

        Raises:
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
        before = self._describe_file()
        self.desc = acl.create_desc()
        stack.callback(acl.destroy_desc, self.desc)
        self.model_id = self._load(before, stack)
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

    def _describe_file(self) -> Description | None:
        """Describe the model before it is loaded, where this CANN can."""
        try:
            return describe_file(self.acl, self._file)
        except DeviceError as error:
            raise self._explained(error) from error

    def _load(self, before: Description | None, stack: Teardown) -> int:
        """Load the model into memory of ours, after adding up what it needs."""
        acl, path = self.acl, str(self._file.path)
        is_range = before.kind == "range" if before is not None else self._file.is_shape_range
        try:
            if is_range:
                self.notes.append("takes ranges of shapes: its memory is not known before it runs")
                model_id = int(acl.load_from_file(path))
            else:
                work, weights = acl.query_size(path)
                key = key_of(self._device, self._file.path)
                self._check_room(work, 0 if is_loaded(key) else weights, before)
                work_at = self._lend(acl, work, stack)
                weights_at = lend(acl, key, weights, stack)
                model_id = int(
                    acl.load_from_file_with_mem(path, work_at, work, weights_at, weights)
                )
        except DeviceError as error:
            raise self._explained(error) from error
        stack.callback(acl.unload, model_id)
        return model_id

    @staticmethod
    def _lend(acl: Acl, nbytes: int, stack: Teardown) -> int:
        if not nbytes:
            return 0
        address = int(acl.malloc(nbytes, HUGE_FIRST))
        stack.callback(acl.free, address)
        return address

    def _check_room(self, work: int, weights: int, before: Description | None) -> None:
        buffers = pool_nbytes(before) if before is not None else 0
        needed = sum(charged(nbytes) for nbytes in (work, weights, buffers) if nbytes)
        free, total = free_memory(self.acl)
        text = (
            f"{gib(needed)} on device {self._device}: weights {gib(weights)}, work {gib(work)}, "
            f"buffers for {SETS} batches {gib(buffers)}"
        )
        if needed > free:
            raise ModelLoadError(
                f"{self._file.path} needs {text}; only {gib(free)} of {gib(total)} are free there, "
                f"{gib(needed - free)} too little; choose another device with `devices:`, fewer "
                "instances, or convert the model with smaller gears"
            )
        self.notes.append(f"needs {text}; {gib(free)} of {gib(total)} were free")

    def _explained(self, error: DeviceError) -> BackendError:
        """Say of a model that does not load what its file and the device are for."""
        if error.code == _DAMAGED:
            return ModelLoadError(
                f"{self._file.path} does not load: the file is damaged; copy it again, or convert "
                f"the model again: {error}"
            )
        if isinstance(error, DeviceLostError) or error.code not in _WRONG_FILE:
            return error
        device, model = self.acl.soc, self._file.soc
        if model and model != device:
            reason = f"it was converted for {model}, the device is {device}"
        else:
            of = f" for {model}" if model else ""
            reason = (
                f"it was converted{of} by another CANN release, or for another chip than {device}"
            )
        return ModelLoadError(
            f"{self._file.path} does not load: {reason}; convert it again with "
            f"`gepipe model convert --soc {device}`: {error}"
        )


def describe_file(acl: Acl, file: ModelFile) -> Description | None:
    """Describe a model without loading it; None where this CANN cannot.

    Raises:
        DeviceError: ACL does not take the file.
        ModelLoadError: The model has something that gepipe cannot feed.
    """
    if not acl.has("mdl.get_desc_from_file"):
        return None
    desc = acl.create_desc()
    try:
        acl.get_desc_from_file(desc, str(file.path))
        return describe(acl, desc, file.path)
    finally:
        acl.destroy_desc(desc)


def pool_nbytes(description: Description) -> int:
    """Return the device memory for the tensors of all batches under way."""
    return span(description.dataset_nbytes * SETS)
