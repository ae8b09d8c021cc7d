"""Loading a model into memory of ours, whose size is known and checked before."""

from __future__ import annotations

from typing import Final

from gepipe.engines.ge.buddy import charged, span
from gepipe.engines.ge.description import describe
from gepipe.engines.ge.interface import Description
from gepipe.engines.ge.memory import free_memory, gib
from gepipe.engines.ge.modelfile import ModelFile
from gepipe.engines.ge.runtime import HUGE_FIRST, Acl
from gepipe.engines.ge.teardown import Teardown
from gepipe.engines.ge.weights import is_loaded, key_of, lend
from gepipe.errors import BackendError, DeviceError, DeviceLostError, ModelLoadError

#: Batches on the device at a time: one computes while another is copied.
SETS: Final = 2
#: What ACL answers to a model file that was made for another chip or another release.
_WRONG_FILE: Final = frozenset((500002, 507008, *range(545000, 545009)))
#: What it answers to a file that is damaged.
_DAMAGED: Final = 145006


class Loading:
    """The way of a model from its file onto a device.

    Args:
        acl: The functions of ACL, with a context of the device current.
        file: The model's file.
        device: The device.
        notes: Where facts worth telling are put.
    """

    def __init__(self, acl: Acl, file: ModelFile, device: int, notes: list[str]) -> None:
        self._acl = acl
        self._file = file
        self._device = device
        self._notes = notes
        self._before: Description | None = None

    def describe(self) -> None:
        """Describe the model before it is loaded, where this CANN can.

        Raises:
            BackendError: ACL does not take the file, or gepipe cannot feed the model.
        """
        try:
            self._before = describe_file(self._acl, self._file)
        except DeviceError as error:
            raise self._explained(error) from error

    def load(self, stack: Teardown) -> int:
        """Load the model into memory of ours, after adding up what it needs.

        Args:
            stack: Where its release is to be put.

        Returns:
            The model's number.

        Raises:
            BackendError: It does not fit, or ACL does not take it.
        """
        acl, path, before = self._acl, str(self._file.path), self._before
        is_range = before.kind == "range" if before is not None else self._file.is_shape_range
        try:
            if is_range:
                self._notes.append("takes ranges of shapes: its memory is not known before it runs")
                model_id = int(acl.load_from_file(path))
            else:
                work, weights = acl.query_size(path)
                key = key_of(self._device, self._file.path)
                self._check_room(work, 0 if is_loaded(key) else weights)
                work_at = self._work(work, stack)
                weights_at = lend(acl, key, weights, stack)
                model_id = int(
                    acl.load_from_file_with_mem(path, work_at, work, weights_at, weights)
                )
        except DeviceError as error:
            raise self._explained(error) from error
        stack.callback(acl.unload, model_id)
        return model_id

    def _work(self, nbytes: int, stack: Teardown) -> int:
        if not nbytes:
            return 0
        address = int(self._acl.malloc(nbytes, HUGE_FIRST))
        stack.callback(self._acl.free, address)
        return address

    def _check_room(self, work: int, weights: int) -> None:
        buffers = pool_nbytes(self._before) if self._before is not None else 0
        needed = sum(charged(nbytes) for nbytes in (work, weights, buffers) if nbytes)
        free, total = free_memory(self._acl)
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
        self._notes.append(f"needs {text}; {gib(free)} of {gib(total)} were free")

    def _explained(self, error: DeviceError) -> BackendError:
        """Say of a model that does not load what its file and the device are for."""
        if error.code == _DAMAGED:
            return ModelLoadError(
                f"{self._file.path} does not load: the file is damaged; copy it again, or convert "
                f"the model again: {error}"
            )
        if isinstance(error, DeviceLostError) or error.code not in _WRONG_FILE:
            return error
        device, model = self._acl.soc, self._file.soc
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
