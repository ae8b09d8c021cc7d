"""Ascend NPUs: `.om` models through pyACL, or on the emulator where that is asked for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gepipe.engines.ge import devices, library, modelfile
from gepipe.engines.ge.pinned import parse_pinned
from gepipe.engines.ge.shapes import Shapes
from gepipe.engines.ge.teardown import Teardown
from gepipe.errors import (
    ClosedError,
    ConfigError,
    DeviceError,
    DeviceStateError,
    InternalError,
    ModelLoadError,
    TensorMismatchError,
)
from gepipe.tensors import TensorSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gepipe.engines.engine import EngineOptions
    from gepipe.engines.ge.memory import PoolStatistics
    from gepipe.engines.ge.run import Batch
    from gepipe.unshaped import UnshapedBuffer

_OPTIONS: Final = ("device", "profile", "mode", "shapes")


class GeEngine:
    """A model on an NPU. See `gepipe.engines.engine.Engine` for the contract.

    Parameters:
        device: `npu` or `emulator`; by default what `GEPIPE_ACL` says, else the NPU.
        profile: Of the emulator: a name or a path.
        mode: Of the emulator: `strict` or `compatible`.
        shapes: Input name to the extents of a row, where the model leaves a choice, such as
            `{images: [3, 640, 640]}`.
        aipp: `true` leaves the normalize and to_tensor at the end of pre to the card, which then
            takes 8-bit pixels: a quarter of the bytes. An ONNX model is converted so; an `.om`
            must have been.
    """

    on_cpu = False
    keeps_time = True
    copies_inputs = True
    in_flight = 2
    #: Processes that one device takes at most, says the CANN manual; 32 in a virtual machine.
    max_instances = 64

    def __init__(self, model: Path, options: EngineOptions) -> None:
        extra = _known(options.extra)
        self._pid = os.getpid()
        self._closed = False
        with Teardown() as stack:
            try:
                shapes = self._open(model, options, extra, stack)
            except DeviceError as error:
                if error.fatal:  # releasing could last for ever; the end of the process does it
                    stack.pop_all()
                raise
            self._release = stack.pop_all()
        session, used = self._session, self._library
        self.inputs = shapes.inputs
        self.outputs = shapes.outputs
        self.gears = shapes.sizes
        self.largest = tuple(
            TensorSpec(spec.name, spec.dtype, row).nbytes
            for spec, row in zip(self.outputs, shapes.largest, strict=False)
        )
        self._names = [[spec.name for spec in side] for side in (self.inputs, self.outputs)]
        pixels = [tensor.name for tensor in session.description.inputs if tensor.pixels]
        notes = [
            used.note(),
            f"{used.acl.soc} device {options.device}",
            *session.notes,
            shapes.listed(),
            *(f"input {name!r} has static AIPP: it takes uint8 pixels, NHWC" for name in pixels),
        ]
        if options.precision != "auto":
            notes.append("`precision` was settled when the model was converted")
        self.notes = tuple(filter(None, notes))

    @classmethod
    def open(cls, model: Path | None, options: EngineOptions) -> GeEngine:
        """Open an `.om` model.

        Raises:
            ModelLoadError: There is no model, it is another kind of file or for another chip, or it
                does not fit into the device's memory.
            BackendError: There is no NPU, or it cannot be used.
            ConfigError: An option is wrong.
        """
        if model is None:
            raise ModelLoadError("backend 'ge' needs a model; set `model: file.om`")
        return cls(model, options)

    @classmethod
    def visible_devices(cls, options: Mapping[str, Any] | None = None) -> tuple[int, ...]:
        """Return the devices that may be used, without importing `acl`.

        Args:
            options: The engine's options in the YAML.
        """
        extra = _known(options or {})
        if not library.wants_emulator(extra.get("device", "auto")):
            return devices.visible(devices.cards())
        emulator = library.emulator()
        named = extra.get("profile") or os.environ.get(emulator.PROFILE, "default")
        profile = emulator.load_profile(named)
        return devices.visible(len(profile.devices))

    @property
    def memory(self) -> PoolStatistics:
        """State of the device-memory pool."""
        return self._session.pool.statistics()

    def submit(
        self,
        inputs: Mapping[str, NDArray[Any]],
        outputs: Mapping[str, NDArray[Any] | UnshapedBuffer],
        count: int,
    ) -> Batch:
        """Start the inference of `count` rows: they are copied, padded and split as needed."""
        self._enter()
        names, results = self._names
        try:
            ins = [inputs[name] for name in names]
            outs = [outputs[name] for name in results]
        except KeyError as error:
            raise TensorMismatchError(
                f"there is no array for {error}; the model has inputs {names}, outputs {results}"
            ) from None
        return self._execution.submit(ins, outs, count)

    def collect(self, pending: Batch) -> None:
        """Wait until a batch lies in its outputs.

        Raises:
            DeviceError: Its execution failed. Where `fatal` is set, nothing can be executed any
                more, and the process must be replaced.
        """
        self._enter()
        self._execution.collect(pending)

    def close(self) -> None:
        """Release the model and the device. Closing twice is harmless.

        After the loss of the context nothing is released, because that could last for ever: the end
        of the process does it.

        Raises:
            InternalError: Something was not released.
        """
        if self._closed:
            return
        self._closed = True
        if os.getpid() != self._pid:  # a fork must not touch its parent's device
            return
        if self._execution.lost is None:
            self._session.enter_thread()
        self._execution.close()
        if self._execution.lost is None:
            self._release.close()
        else:
            self._session.abandon()
            self._release.pop_all()

    def _open(
        self, model: Path, options: EngineOptions, extra: Mapping[str, Any], stack: Teardown
    ) -> Shapes:
        from gepipe.engines.ge.execution import Execution
        from gepipe.engines.ge.session import Session

        pinned = parse_pinned(extra.get("shapes"))
        used = library.acquire(extra.get("device", "auto"), extra.get("profile"), extra.get("mode"))
        stack.callback(library.release, used)
        self._library = used
        file = modelfile.inspect(model)
        if file.emulated != used.emulated:
            raise _wrong_side(file)
        self._session = session = Session(used, file, options.device)
        stack.callback(self._close_session)
        self._execution = Execution(session, options.timeout_s)
        stack.callback(self._execution.close)
        pinned = pinned.for_model(session.description, options.made)
        shapes = self._execution.open_shapes(pinned)
        shapes.check_made(options.made, options.variants)
        missing = sorted(set(options.gears) - set(shapes.sizes)) if shapes.sizes else []
        if missing:
            raise ConfigError(
                f"{model}: gears {missing} are not compiled into the model: {shapes.listed()}; "
                "convert it again with them"
            )
        return shapes

    def _enter(self) -> None:
        if self._closed:
            raise ClosedError("the engine is closed")
        if os.getpid() != self._pid:
            self._library.check_process()
            raise DeviceStateError("the engine was opened in another process", fatal=True)
        self._session.enter_thread()

    def _close_session(self) -> None:
        used = self._library
        self._session.close()
        last = used.users == 1 and used.owned
        if last and used.emulated and (left := used.machine.leaks()):
            raise InternalError(f"{len(left)} objects were not released: {'; '.join(left)}")


def _known(extra: Mapping[str, Any]) -> Mapping[str, Any]:
    unknown = sorted(set(extra) - set(_OPTIONS))
    if unknown:
        known = (*_OPTIONS, "aipp")  # settled before the model is opened
        raise ConfigError(f"ge: unknown options {', '.join(unknown)}; known: {', '.join(known)}")
    return extra


def _wrong_side(file: modelfile.ModelFile) -> ModelLoadError:
    if file.emulated:
        return ModelLoadError(
            f"{file.path} is a model for the emulator, and this is a real NPU; convert it with "
            "`gepipe model convert --soc …`, or set GEPIPE_ACL=emulator"
        )
    return ModelLoadError(
        f"{file.path} is a model for real cards, which the emulator does not run; convert it with "
        "`gepipe model convert --soc emulator`"
    )
