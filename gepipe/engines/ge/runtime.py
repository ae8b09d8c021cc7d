"""Checked calls of `acl`: one gate turns every return code into an error that can be read.

pyACL never raises for a failure of ACL: it returns a code, alone or behind the values. `Acl` offers
the functions that the engine uses, without codes, and raises instead. The numbers at the top are
those of the CANN manual, because the module `acl` exports functions only.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from gepipe.engines.ge.codes import explain
from gepipe.engines.ge.failures import BROKEN, error_class
from gepipe.errors import BackendError, DeviceError

HOST_TO_DEVICE: Final = 1
DEVICE_TO_HOST: Final = 2
HUGE_FIRST: Final = 0
RUNS_ON_HOST: Final = 1
DDR_MEMORY: Final = 0
HBM_MEMORY: Final = 1
ALREADY_INITIALISED: Final = 100002

_MESSAGE_MAX: Final = 600

Status = Callable[..., None]
Value = Callable[..., Any]


class Acl:
    """The functions of `acl` that the engine uses, each raising `DeviceError` where it fails.

    Attributes:
        soc: Name of the chip, such as `Ascend310P3`.
    """

    def __init__(self, module: ModuleType) -> None:  # noqa: PLR0915 - a table
        self.module = module
        self._message: Callable[[], str | None] | None = self._find("get_recent_err_msg")
        status, value, values, handle = self._status, self._value, self._values, self._handle

        self.init = status("init")
        self.finalize = status("finalize")
        self.set_device = status("rt.set_device", "device")
        self.reset_device = status("rt.reset_device", "device")
        self.get_device_count = value("rt.get_device_count")
        self.get_run_mode = value("rt.get_run_mode")
        self.get_mem_info = values("rt.get_mem_info", "kind")
        self.create_context = value("rt.create_context", "device")
        self.set_context = status("rt.set_context", "context")
        self.get_context = value("rt.get_context")
        self.destroy_context = status("rt.destroy_context", "context")

        self.create_stream = value("rt.create_stream")
        self.destroy_stream = status("rt.destroy_stream", "stream")
        self.synchronize_stream = status("rt.synchronize_stream", "stream")
        self.synchronize_stream_with_timeout = status(
            "rt.synchronize_stream_with_timeout", "stream, timeout_ms"
        )
        self.stream_wait_event = status("rt.stream_wait_event", "stream, event")
        self.create_event = value("rt.create_event")
        self.record_event = status("rt.record_event", "event, stream")
        self.destroy_event = status("rt.destroy_event", "event")

        self.malloc = value("rt.malloc", "size, policy")
        self.free = status("rt.free", "pointer")
        self.malloc_host = value("rt.malloc_host", "size")
        self.free_host = status("rt.free_host", "pointer")
        self.memset = status("rt.memset", "pointer, room, value, count")
        self.memcpy_async = status("rt.memcpy_async", "to, room, from, count, kind, stream")

        self.query_size = values("mdl.query_size", "path")
        self.load_from_file = value("mdl.load_from_file", "path")
        self.load_from_file_with_mem = value(
            "mdl.load_from_file_with_mem", "path, work, work_size, weights, weights_size"
        )
        self.unload = status("mdl.unload", "model")
        self.execute_async = status("mdl.execute_async", "model, inputs, outputs, stream")

        self.create_desc = handle("mdl.create_desc")
        self.destroy_desc = status("mdl.destroy_desc", "desc")
        self.get_desc = status("mdl.get_desc", "desc, model")
        self.get_desc_from_file = status("mdl.get_desc_from_file", "desc, path")
        self.get_num_inputs = self._bare("mdl.get_num_inputs")
        self.get_num_outputs = self._bare("mdl.get_num_outputs")
        self.get_input_size = self._bare("mdl.get_input_size_by_index")
        self.get_output_size = self._bare("mdl.get_output_size_by_index")
        self.get_input_name = self._bare("mdl.get_input_name_by_index")
        self.get_output_name = self._bare("mdl.get_output_name_by_index")
        self.get_input_type = self._bare("mdl.get_input_data_type")
        self.get_output_type = self._bare("mdl.get_output_data_type")
        self.get_input_format = self._bare("mdl.get_input_format")
        self.get_tensor_real_name = self._bare("mdl.get_tensor_real_name")
        self.get_input_dims = value("mdl.get_input_dims", "desc, index")
        self.get_input_dims_v2 = value("mdl.get_input_dims_v2", "desc, index")
        self.get_output_dims = value("mdl.get_output_dims", "desc, index")
        self.get_cur_output_dims = value("mdl.get_cur_output_dims", "desc, index")
        self.get_input_dims_range = value("mdl.get_input_dims_range", "desc, index")
        self.get_aipp_type = values("mdl.get_aipp_type", "model, index")

        self.get_dynamic_batch = value("mdl.get_dynamic_batch", "desc")
        self.get_dynamic_hw = value("mdl.get_dynamic_hw", "desc, index")
        self.get_input_dynamic_gear_count = value("mdl.get_input_dynamic_gear_count", "desc, index")
        self.get_input_dynamic_dims = value("mdl.get_input_dynamic_dims", "desc, index, count")
        self.set_dynamic_batch_size = status(
            "mdl.set_dynamic_batch_size", "model, inputs, index, batch"
        )
        self.set_dynamic_hw_size = status(
            "mdl.set_dynamic_hw_size", "model, inputs, index, height, width"
        )
        self.set_input_dynamic_dims = status(
            "mdl.set_input_dynamic_dims", "model, inputs, index, dims"
        )

        self.create_dataset = handle("mdl.create_dataset")
        self.destroy_dataset = status("mdl.destroy_dataset", "dataset")
        self.add_dataset_buffer = value("mdl.add_dataset_buffer", "dataset, buffer")
        self.set_dataset_tensor_desc = value("mdl.set_dataset_tensor_desc", "dataset, desc, index")
        self.get_dataset_tensor_desc = self._bare("mdl.get_dataset_tensor_desc")
        self.create_data_buffer = handle("create_data_buffer", "pointer, size")
        self.update_data_buffer = status("update_data_buffer", "buffer, pointer, size")
        self.destroy_data_buffer = status("destroy_data_buffer", "buffer")
        self.create_tensor_desc = handle("create_tensor_desc", "type, dims, format")
        self.destroy_tensor_desc = self._bare("destroy_tensor_desc")
        self.get_tensor_desc_num_dims = self._bare("get_tensor_desc_num_dims")
        self.get_tensor_desc_dim = value("get_tensor_desc_dim_v2", "desc, index")

    @property
    def soc(self) -> str:
        """Name of the chip."""
        return str(self.module.get_soc_name())

    def has(self, name: str) -> bool:
        """Whether this release of pyACL has a function, such as `mdl.get_desc_from_file`."""
        return self._find(name) is not None

    def failure(self, code: int, name: str, parameters: str, args: tuple[Any, ...]) -> DeviceError:
        """Make the error for a return code.

        Args:
            code: What the call returned.
            name: The function, without `acl.`.
            parameters: Names of its parameters, separated by commas.
            args: What it was called with.
        """
        names = parameters.split(", ")
        listed = ", ".join(
            f"{names[at]}={arg!r}" if at < len(names) and names[at] else repr(arg)
            for at, arg in enumerate(args)
        )
        text = f"acl.{name}({listed}): {explain(code)}"
        if said := self.message():
            text += f"; CANN says: {said}"
        fatal = True if code in BROKEN else None
        return error_class(code)(text, code=code, call=f"acl.{name}", fatal=fatal)

    def message(self) -> str:
        """Return, and clear, what ACL says of the last failure of this thread."""
        said = self._message() if self._message is not None else None
        return " ".join((said or "").split())[:_MESSAGE_MAX]

    def _find(self, name: str) -> Any:
        part, _, function = name.rpartition(".")
        owner = getattr(self.module, part) if part else self.module
        return getattr(owner, function, None)

    def _missing(self, name: str) -> Callable[..., Any]:
        def missing(*_: Any) -> Any:
            raise BackendError(
                f"this release of CANN has no acl.{name}; gepipe is written for CANN 6.3 and later"
            )

        return missing

    def _status(self, name: str, parameters: str = "") -> Status:
        """Return a function that gives nothing but a code."""
        if (function := self._find(name)) is None:
            return self._missing(name)

        def checked(*args: Any) -> None:
            if code := function(*args):
                raise self.failure(code, name, parameters, args)

        return checked

    def _value(self, name: str, parameters: str = "") -> Value:
        """Return a function that gives one value and a code."""
        if (function := self._find(name)) is None:
            return self._missing(name)

        def checked(*args: Any) -> Any:
            value, code = function(*args)
            if code:
                raise self.failure(code, name, parameters, args)
            return value

        return checked

    def _values(self, name: str, parameters: str = "") -> Value:
        """Return a function that gives several values and a code."""
        if (function := self._find(name)) is None:
            return self._missing(name)

        def checked(*args: Any) -> Any:
            *values, code = function(*args)
            if code:
                raise self.failure(code, name, parameters, args)
            return tuple(values)

        return checked

    def _handle(self, name: str, parameters: str = "") -> Value:
        """Return a function that gives a handle, 0 where it failed."""
        if (function := self._find(name)) is None:
            return self._missing(name)

        def checked(*args: Any) -> Any:
            if not (handle := function(*args)):
                raise self.failure(200000, name, parameters, args)
            return handle

        return checked

    def _bare(self, name: str) -> Value:
        """Return a getter, which gives no code."""
        function: Value | None = self._find(name)
        return self._missing(name) if function is None else function
