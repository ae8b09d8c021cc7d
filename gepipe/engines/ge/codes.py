"""The error codes of ACL: name and meaning of each.

The first digit sorts them: 1 is a mistake of the caller, 2 the environment or a resource, 3 a
limit, 5 an internal failure. The next two tell the part: 07 the runtime, 45 the graph engine.

Source: CANN headers `acl_base.h`, `rt_error_codes.h` and `ge_error_codes.h`.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Code(NamedTuple):
    """One error code.

    Attributes:
        name: The constant of the C headers.
        meaning: What it usually means to a caller.
    """

    name: str
    meaning: str


CODES: Final = {
    100000: Code(
        "ACL_ERROR_INVALID_PARAM",
        "NULL handle, bad index or enum, size 0, name not found, or shape out of range",
    ),
    100001: Code("ACL_ERROR_UNINITIALIZE", "ACL is not initialised"),
    100002: Code("ACL_ERROR_REPEAT_INITIALIZE", "ACL was initialised before; harmless"),
    100003: Code("ACL_ERROR_INVALID_FILE", "the configuration file cannot be used"),
    100004: Code("ACL_ERROR_WRITE_FILE", "a file cannot be written"),
    100005: Code("ACL_ERROR_INVALID_FILE_SIZE", "a file's size is wrong"),
    100006: Code("ACL_ERROR_PARSE_FILE", "a file cannot be parsed"),
    100007: Code("ACL_ERROR_FILE_MISSING_ATTR", "a file lacks an attribute"),
    100008: Code("ACL_ERROR_FILE_ATTR_INVALID", "a file has a wrong attribute"),
    100009: Code("ACL_ERROR_INVALID_DUMP_CONFIG", "the dump settings of acl.json are wrong"),
    100010: Code(
        "ACL_ERROR_INVALID_PROFILING_CONFIG",
        "the profiling settings of acl.json are wrong",
    ),
    100011: Code("ACL_ERROR_INVALID_MODEL_ID", "no such model"),
    100012: Code("ACL_ERROR_DESERIALIZE_MODEL", "the model cannot be read"),
    100013: Code("ACL_ERROR_PARSE_MODEL", "the model cannot be parsed"),
    100014: Code("ACL_ERROR_READ_MODEL_FAILURE", "the model file cannot be read"),
    100015: Code("ACL_ERROR_MODEL_SIZE_INVALID", "the model's size is wrong"),
    100016: Code("ACL_ERROR_MODEL_MISSING_ATTR", "the model lacks an attribute"),
    100017: Code("ACL_ERROR_MODEL_INPUT_NOT_MATCH", "the inputs do not match the model"),
    100018: Code("ACL_ERROR_MODEL_OUTPUT_NOT_MATCH", "the outputs do not match the model"),
    100019: Code("ACL_ERROR_MODEL_NOT_DYNAMIC", "the model has no dynamic shape"),
    100020: Code("ACL_ERROR_OP_TYPE_NOT_MATCH", "the operator's type does not match"),
    100021: Code("ACL_ERROR_OP_INPUT_NOT_MATCH", "the operator's inputs do not match"),
    100022: Code("ACL_ERROR_OP_OUTPUT_NOT_MATCH", "the operator's outputs do not match"),
    100023: Code("ACL_ERROR_OP_ATTR_NOT_MATCH", "the operator's attributes do not match"),
    100024: Code("ACL_ERROR_OP_NOT_FOUND", "no such operator"),
    100025: Code("ACL_ERROR_OP_LOAD_FAILED", "the operator cannot be loaded"),
    100026: Code("ACL_ERROR_UNSUPPORTED_DATA_TYPE", "the data type is not supported"),
    100027: Code("ACL_ERROR_FORMAT_NOT_MATCH", "the tensor format does not match"),
    100028: Code("ACL_ERROR_BIN_SELECTOR_NOT_REGISTERED", "no kernel selector is registered"),
    100029: Code("ACL_ERROR_KERNEL_NOT_FOUND", "no such kernel"),
    100030: Code(
        "ACL_ERROR_BIN_SELECTOR_ALREADY_REGISTERED",
        "a kernel selector is registered twice",
    ),
    100031: Code("ACL_ERROR_KERNEL_ALREADY_REGISTERED", "a kernel is registered twice"),
    100033: Code("ACL_ERROR_REPEAT_SUBSCRIBE", "the stream is subscribed already"),
    100034: Code("ACL_ERROR_STREAM_NOT_SUBSCRIBE", "the stream is not subscribed"),
    100035: Code("ACL_ERROR_THREAD_NOT_SUBSCRIBE", "the thread is not subscribed"),
    100036: Code("ACL_ERROR_WAIT_CALLBACK_TIMEOUT", "no callback within the time given"),
    100037: Code("ACL_ERROR_REPEAT_FINALIZE", "ACL was finalised before"),
    100038: Code("ACL_ERROR_NOT_STATIC_AIPP", "the input has no static AIPP"),
    100039: Code(
        "ACL_ERROR_COMPILING_STUB_MODE",
        "stub libraries are in use at run time; check LD_LIBRARY_PATH",
    ),
    107000: Code(
        "ACL_ERROR_RT_PARAM_INVALID",
        "a parameter is wrong, such as a copy larger than its destination",
    ),
    107001: Code("ACL_ERROR_RT_INVALID_DEVICEID", "no such device, or its driver is not loaded"),
    107002: Code(
        "ACL_ERROR_RT_CONTEXT_NULL",
        "this thread has no context; set_device or set_context is missing",
    ),
    107003: Code(
        "ACL_ERROR_RT_STREAM_CONTEXT",
        "the stream or event belongs to another context or device",
    ),
    107004: Code("ACL_ERROR_RT_MODEL_CONTEXT", "the model belongs to another context"),
    107005: Code("ACL_ERROR_RT_STREAM_MODEL", "the stream does not belong to the model"),
    107006: Code("ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID", "the event has no time stamp"),
    107007: Code(
        "ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL",
        "the end event is older than the start event",
    ),
    107008: Code("ACL_ERROR_RT_ADDR_UNALIGNED", "an address is not aligned"),
    107009: Code("ACL_ERROR_RT_FILE_OPEN", "a file cannot be opened"),
    107010: Code("ACL_ERROR_RT_FILE_WRITE", "a file cannot be written"),
    107011: Code(
        "ACL_ERROR_RT_STREAM_SUBSCRIBE",
        "the stream is subscribed already, or not at all",
    ),
    107012: Code("ACL_ERROR_RT_THREAD_SUBSCRIBE", "the thread is not subscribed"),
    107013: Code("ACL_ERROR_RT_GROUP_NOT_SET", "no group is set"),
    107014: Code("ACL_ERROR_RT_GROUP_NOT_CREATE", "the group does not exist"),
    107015: Code(
        "ACL_ERROR_RT_STREAM_NO_CB_REG",
        "no thread is subscribed for the stream's callbacks",
    ),
    107016: Code("ACL_ERROR_RT_INVALID_MEMORY_TYPE", "the memory type is wrong"),
    107017: Code("ACL_ERROR_RT_INVALID_HANDLE", "the handle is wrong"),
    107018: Code("ACL_ERROR_RT_INVALID_MALLOC_TYPE", "the allocation type is wrong"),
    107019: Code("ACL_ERROR_RT_WAIT_TIMEOUT", "the wait took too long"),
    107020: Code("ACL_ERROR_RT_TASK_TIMEOUT", "the task took too long"),
    107021: Code("ACL_ERROR_RT_SYSPARAMOPT_NOT_SET", "the system parameter is not set"),
    107022: Code("ACL_ERROR_RT_DEVICE_TASK_ABORT", "the device's tasks were aborted"),
    107023: Code("ACL_ERROR_RT_STREAM_ABORT", "the stream was aborted"),
    145000: Code(
        "ACL_ERROR_GE_PARAM_INVALID",
        "number or size of the buffers does not match the model, or its memory is too small",
    ),
    145001: Code("ACL_ERROR_GE_EXEC_NOT_INIT", "acl.init is missing or failed"),
    145002: Code("ACL_ERROR_GE_EXEC_MODEL_PATH_INVALID", "the model file is missing or unreadable"),
    145003: Code(
        "ACL_ERROR_GE_EXEC_MODEL_ID_INVALID",
        "the model is not loaded, or unloaded already",
    ),
    145006: Code(
        "ACL_ERROR_GE_EXEC_MODEL_DATA_SIZE_INVALID",
        "the file is truncated or not an .om model",
    ),
    145007: Code("ACL_ERROR_GE_EXEC_MODEL_ADDR_INVALID", "the model's address is wrong"),
    145008: Code("ACL_ERROR_GE_EXEC_MODEL_QUEUE_ID_INVALID", "the model's queue is wrong"),
    145009: Code("ACL_ERROR_GE_EXEC_LOAD_MODEL_REPEATED", "the model is loaded already"),
    145011: Code("ACL_ERROR_GE_DYNAMIC_INPUT_ADDR_INVALID", "the gear input has no memory"),
    145012: Code(
        "ACL_ERROR_GE_DYNAMIC_INPUT_LENGTH_INVALID",
        "the gear input is too small, or the number of dims is wrong",
    ),
    145013: Code(
        "ACL_ERROR_GE_DYNAMIC_BATCH_SIZE_INVALID",
        "the value is not among the model's gears",
    ),
    145014: Code("ACL_ERROR_GE_AIPP_BATCH_EMPTY", "the AIPP batch is empty"),
    145015: Code("ACL_ERROR_GE_AIPP_NOT_EXIST", "the input has no AIPP"),
    145016: Code("ACL_ERROR_GE_AIPP_MODE_INVALID", "the AIPP mode does not allow this"),
    145017: Code(
        "ACL_ERROR_GE_EXEC_LOAD_TASK_PARTITION_FAILED",
        "the model's tasks cannot be loaded",
    ),
    145018: Code(
        "ACL_ERROR_GE_EXEC_LOAD_KERNEL_PARTITION_FAILED",
        "the model's kernels cannot be loaded",
    ),
    145019: Code("ACL_ERROR_GE_OP_KERNEL_TYPE_INVALID", "the kernel type is wrong"),
    145020: Code("ACL_ERROR_GE_FORMAT_INVALID", "the tensor format is wrong"),
    145021: Code("ACL_ERROR_GE_SHAPE_INVALID", "the shape is wrong"),
    145022: Code("ACL_ERROR_GE_DATATYPE_INVALID", "the data type is wrong"),
    148046: Code("ACL_ERROR_PROF_REPEAT_SUBSCRIBE", "profiling is subscribed already"),
    148047: Code("ACL_ERROR_PROF_API_CONFLICT", "two profiling interfaces are in use"),
    148048: Code(
        "ACL_ERROR_INVALID_MAX_OPQUEUE_NUM_CONFIG",
        "max_opqueue_num of acl.json is wrong",
    ),
    148049: Code("ACL_ERROR_INVALID_OPP_PATH", "ASCEND_OPP_PATH does not name an operator package"),
    148050: Code("ACL_ERROR_OP_UNSUPPORTED_DYNAMIC", "the operator has no dynamic shape"),
    148051: Code("ACL_ERROR_RELATIVE_RESOURCE_NOT_CLEARED", "related resources were not released"),
    148052: Code("ACL_ERROR_UNSUPPORTED_JPEG", "the JPEG decoder takes Huffman baseline only"),
    148053: Code("ACL_ERROR_INVALID_BUNDLE_MODEL_ID", "no such model bundle"),
    200000: Code("ACL_ERROR_BAD_ALLOC", "host memory is exhausted"),
    200001: Code("ACL_ERROR_API_NOT_SUPPORT", "the call is not valid for this model or product"),
    200002: Code("ACL_ERROR_INVALID_DEVICE", "no such device"),
    200003: Code("ACL_ERROR_MEMORY_ADDRESS_UNALIGNED", "an address is not aligned"),
    200004: Code("ACL_ERROR_RESOURCE_NOT_MATCH", "the resources do not match"),
    200005: Code("ACL_ERROR_INVALID_RESOURCE_HANDLE", "the handle is wrong"),
    200006: Code("ACL_ERROR_FEATURE_UNSUPPORTED", "the feature is not supported"),
    200007: Code("ACL_ERROR_PROF_MODULES_UNSUPPORTED", "the profiling module is not supported"),
    207000: Code(
        "ACL_ERROR_RT_FEATURE_NOT_SUPPORT",
        "not supported, such as an asynchronous copy from host to host",
    ),
    207001: Code("ACL_ERROR_RT_MEMORY_ALLOCATION", "device memory is exhausted"),
    207002: Code("ACL_ERROR_RT_MEMORY_FREE", "the memory is not allocated, or freed already"),
    207003: Code("ACL_ERROR_RT_AICORE_OVER_FLOW", "an AI core overflowed"),
    207004: Code("ACL_ERROR_RT_NO_DEVICE", "there is no device"),
    207005: Code("ACL_ERROR_RT_RESOURCE_ALLOC_FAIL", "a resource is exhausted"),
    207006: Code(
        "ACL_ERROR_RT_NO_PERMISSION",
        "no permission; is the user in the group HwHiAiUser?",
    ),
    207007: Code("ACL_ERROR_RT_NO_EVENT_RESOURCE", "events are exhausted"),
    207008: Code("ACL_ERROR_RT_NO_STREAM_RESOURCE", "streams are exhausted"),
    207009: Code("ACL_ERROR_RT_NO_NOTIFY_RESOURCE", "notifies are exhausted"),
    207010: Code("ACL_ERROR_RT_NO_MODEL_RESOURCE", "models are exhausted"),
    207011: Code("ACL_ERROR_RT_NO_CDQ_RESOURCE", "queues are exhausted"),
    207018: Code("ACL_ERROR_RT_DEVICE_OOM", "device memory is exhausted"),
    245000: Code("ACL_ERROR_GE_MEMORY_ALLOCATION", "memory for the model is exhausted"),
    245001: Code("ACL_ERROR_GE_MEMORY_OPERATE_FAILED", "host memory cannot be accessed"),
    245002: Code("ACL_ERROR_GE_DEVICE_MEMORY_OPERATE_FAILED", "device memory cannot be accessed"),
    300000: Code("ACL_ERROR_STORAGE_OVER_LIMIT", "more than 128 dims or gears"),
    500000: Code("ACL_ERROR_INTERNAL_ERROR", "internal error of ACL"),
    500001: Code("ACL_ERROR_FAILURE", "internal failure of ACL"),
    500002: Code("ACL_ERROR_GE_FAILURE", "internal failure of the graph engine"),
    500003: Code("ACL_ERROR_RT_FAILURE", "internal failure of the runtime"),
    500004: Code("ACL_ERROR_DRV_FAILURE", "internal failure of the driver"),
    500005: Code("ACL_ERROR_PROFILING_FAILURE", "internal failure of profiling"),
    507000: Code("ACL_ERROR_RT_INTERNAL_ERROR", "internal error of the runtime"),
    507001: Code("ACL_ERROR_RT_TS_ERROR", "internal error of the task scheduler"),
    507002: Code("ACL_ERROR_RT_STREAM_TASK_FULL", "tasks are submitted faster than they finish"),
    507003: Code("ACL_ERROR_RT_STREAM_TASK_EMPTY", "the stream has no task"),
    507004: Code("ACL_ERROR_RT_STREAM_NOT_COMPLETE", "the stream is not complete"),
    507005: Code("ACL_ERROR_RT_END_OF_SEQUENCE", "end of the sequence"),
    507006: Code("ACL_ERROR_RT_EVENT_NOT_COMPLETE", "the event is not complete"),
    507007: Code(
        "ACL_ERROR_RT_CONTEXT_RELEASE_ERROR",
        "the context cannot be released; follows an earlier failure",
    ),
    507008: Code("ACL_ERROR_RT_SOC_VERSION", "the chip's version is wrong"),
    507009: Code("ACL_ERROR_RT_TASK_TYPE_NOT_SUPPORT", "the task type is not supported"),
    507010: Code("ACL_ERROR_RT_LOST_HEARTBEAT", "the device does not answer"),
    507011: Code("ACL_ERROR_RT_MODEL_EXECUTE", "a kernel of the model failed"),
    507012: Code("ACL_ERROR_RT_REPORT_TIMEOUT", "no report within the time given"),
    507013: Code("ACL_ERROR_RT_SYS_DMA", "the copy engine failed: bad address or pageable memory"),
    507014: Code("ACL_ERROR_RT_AICORE_TIMEOUT", "an AI core took too long"),
    507015: Code(
        "ACL_ERROR_RT_AICORE_EXCEPTION",
        "an AI core failed: a buffer is too small, or index data is wrong",
    ),
    507016: Code("ACL_ERROR_RT_AICORE_TRAP_EXCEPTION", "an AI core trapped"),
    507017: Code("ACL_ERROR_RT_AICPU_TIMEOUT", "an AI CPU took too long"),
    507018: Code("ACL_ERROR_RT_AICPU_EXCEPTION", "an AI CPU failed"),
    507033: Code(
        "ACL_ERROR_RT_DEV_SETUP_ERROR",
        "the device cannot be set up: driver mismatch, or busy with other processes",
    ),
    507034: Code("ACL_ERROR_RT_VECTOR_CORE_TIMEOUT", "a vector core took too long"),
    507035: Code("ACL_ERROR_RT_VECTOR_CORE_EXCEPTION", "a vector core failed"),
    507036: Code("ACL_ERROR_RT_VECTOR_CORE_TRAP_EXCEPTION", "a vector core trapped"),
    507046: Code(
        "ACL_ERROR_RT_STREAM_SYNC_TIMEOUT",
        "the stream did not finish within the time given",
    ),
    507047: Code(
        "ACL_ERROR_RT_EVENT_SYNC_TIMEOUT",
        "the event did not happen within the time given",
    ),
    507053: Code("ACL_ERROR_RT_DEVICE_MEM_ERROR", "device memory is faulty"),
    507054: Code(
        "ACL_ERROR_RT_HBM_MULTI_BIT_ECC_ERROR",
        "device memory has an uncorrectable error",
    ),
    507899: Code("ACL_ERROR_RT_DRV_INTERNAL_ERROR", "internal error of the driver"),
    507900: Code("ACL_ERROR_RT_AICPU_INTERNAL_ERROR", "internal error of the AI CPU"),
    507901: Code("ACL_ERROR_RT_SOCKET_CLOSE", "the connection to the device is closed"),
    507910: Code(
        "ACL_ERROR_RT_HOST_MEMORY_ALREADY_REGISTERED",
        "the host memory is registered already",
    ),
    507911: Code("ACL_ERROR_RT_HOST_MEMORY_NOT_REGISTERED", "the host memory is not registered"),
    545000: Code("ACL_ERROR_GE_INTERNAL_ERROR", "internal error of the graph engine"),
    545001: Code("ACL_ERROR_GE_LOAD_MODEL", "the model cannot be loaded"),
    545002: Code(
        "ACL_ERROR_GE_LOAD_MODEL_PARTITION",
        "the model file comes from an incompatible CANN or is for another chip",
    ),
    545003: Code("ACL_ERROR_GE_LOAD_WEIGHT_PARTITION", "the model's weights cannot be loaded"),
    545004: Code("ACL_ERROR_GE_LOAD_TASK_PARTITION", "the model's tasks cannot be loaded"),
    545005: Code("ACL_ERROR_GE_LOAD_KERNEL_PARTITION", "the model's kernels cannot be loaded"),
    545006: Code("ACL_ERROR_GE_EXEC_RELEASE_MODEL_DATA", "the model's data cannot be released"),
    545007: Code("ACL_ERROR_GE_COMMAND_HANDLE", "the graph engine cannot handle the command"),
    545008: Code("ACL_ERROR_GE_GET_TENSOR_INFO", "the tensors cannot be described"),
    545009: Code("ACL_ERROR_GE_UNLOAD_MODEL", "the model cannot be unloaded"),
    545601: Code("ACL_ERROR_GE_MODEL_EXECUTE_TIMEOUT", "the model took too long"),
}


def explain(code: int) -> str:
    """Return `code`, its name and its meaning as one text."""
    if (known := CODES.get(code)) is None:
        return f"{code} (unknown code)"
    return f"{code} {known.name}: {known.meaning}"
