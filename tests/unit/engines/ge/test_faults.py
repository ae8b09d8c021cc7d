from __future__ import annotations

import os
import threading
import time

import numpy as np
import pytest

from gepipe.emulator import Profile, execute
from gepipe.emulator.device import Device
from gepipe.emulator.om import Gears, OmTensor, write_om
from gepipe.engines.ge import library
from gepipe.errors import (
    BackendError,
    ConfigError,
    DeviceError,
    DeviceLostError,
    DeviceMemoryError,
    DeviceStateError,
    DeviceTimeoutError,
    ModelLoadError,
)
from tests.support import pause
from tests.unit.engines.ge.bed import affine, outputs_for, ramp, run


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch) -> None:
    monkeypatch.setattr(library, "_PAUSES_S", (0.001,) * 3)


def test_failed_execution_is_blamed_on_its_own_batch(npu) -> None:
    bed = npu(faults=[{"call": "mdl.execute_async", "at": 2, "code": 207003}])
    engine = bed.open(bed.timed())
    good = run(engine, 4, x=ramp(4, 4))["y"]
    outputs = [outputs_for(engine, 4) for _ in range(2)]
    tokens = [engine.submit({"x": ramp(4, 4)}, each, 4) for each in outputs]

    with pytest.raises(DeviceError) as failure:
        engine.collect(tokens[0])
    engine.collect(tokens[1])

    assert failure.value.code == 207003
    assert not failure.value.fatal
    assert (outputs[0]["y"] == 7).all(), "outputs of a failed execution were delivered"
    assert np.array_equal(outputs[1]["y"], good)


@pytest.mark.parametrize("code", [507011, 507015])
def test_failed_kernel_costs_the_process(npu, code) -> None:
    bed = npu(faults=[{"call": "mdl.execute_async", "at": 1, "code": code}])
    bed.may_leak = True
    engine = bed.open(bed.timed())

    with pytest.raises(DeviceError, match=f"{code} ACL_ERROR_RT_") as failure:
        run(engine, 4, x=ramp(4, 4))
    with pytest.raises(DeviceError):
        run(engine, 4, x=ramp(4, 4))

    assert failure.value.fatal
    assert failure.value.code == code
    assert failure.value.call == "acl.rt.synchronize_stream"


def test_hanging_execution_ends_at_its_limit(npu) -> None:
    bed = npu(faults=[{"call": "mdl.execute_async", "at": 3, "hang": True}])  # the first warms up
    bed.may_leak = True
    engine = bed.open(bed.timed(), timeout_s=1.0)
    run(engine, 4, x=ramp(4, 4))
    tokens = [engine.submit({"x": ramp(4, 4)}, outputs_for(engine, 4), 4) for _ in range(2)]

    with pytest.raises(DeviceTimeoutError, match=r"batch of 4.*1 s.*507046") as failure:
        engine.collect(tokens[0])
    with pytest.raises(DeviceError):
        engine.collect(tokens[1])
    engine.close()

    assert failure.value.fatal
    assert failure.value.kind == "timeout"
    assert isinstance(failure.value, TimeoutError)


def test_slow_but_moving_batches_stay_within_their_limits(npu) -> None:
    bed = npu(latency_ms={4: 450})
    engine = bed.open(bed.timed(), timeout_s=2.0)

    begun = time.monotonic()
    run(engine, 20, x=ramp(20, 4))  # five executions of 450 ms each

    assert time.monotonic() - begun > 2.0  # all together they take longer than the limit of one


def test_first_execution_has_time_to_load_what_all_need(npu, tmp_path, monkeypatch) -> None:
    """On a card it takes seconds, and the limit is one for a batch."""
    bed = npu()
    model = tmp_path / "m.om"
    tensors = [OmTensor(name, "float32", (-1, 5)) for name in "xy"]
    graph = affine(tmp_path / "m.onnx", ["n", 5])
    gears = Gears("batch", ((2,), (4,)))
    write_om(model, graph, inputs=tensors[:1], outputs=tensors[1:], gears=gears)
    loading = execute.session_of
    monkeypatch.setattr(execute, "session_of", lambda om: pause(1.5) or loading(om))

    engine = bed.open(model, timeout_s=1.0)

    x = ramp(9, 5)
    assert np.array_equal(run(engine, 9, x=x)["y"], 2 * x + 1)


def test_failed_first_execution_is_left_to_the_batches(npu) -> None:
    bed = npu(faults=[{"call": "mdl.execute_async", "code": 207003}])

    engine = bed.open(bed.timed(), timeout_s=5)

    assert run(engine, 3, x=ramp(3, 4))


def test_lost_device_is_fatal_and_close_does_not_hang(npu) -> None:
    bed = npu(faults=[{"call": "mdl.execute_async", "at": 1, "lost": True}])
    bed.may_leak = True
    engine = bed.open(bed.timed())

    with pytest.raises(DeviceLostError, match="507010 ACL_ERROR_RT_LOST_HEARTBEAT") as failure:
        run(engine, 4, x=ramp(4, 4))
    engine.close()

    assert failure.value.fatal
    assert failure.value.kind == "device_lost"


@pytest.mark.parametrize("call", ["rt.memcpy_async", "rt.record_event", "rt.stream_wait_event"])
def test_failure_of_a_step_fails_the_batch_and_the_next_one_works(npu, call) -> None:
    bed = npu(faults=[{"call": call, "at": 2, "code": 207010}])
    engine = bed.open(bed.timed())
    good = run(engine, 3, x=ramp(3, 4))["y"] if call != "rt.memcpy_async" else None

    with pytest.raises(DeviceError, match="207010"):
        run(engine, 3, x=ramp(3, 4))
    again = run(engine, 3, x=ramp(3, 4))["y"]

    assert good is None or np.array_equal(again, good)


#: Calls that are made only once while an engine opens.
_ONCE = {
    "init",
    "rt.set_device",
    "rt.create_context",
    "mdl.query_size",
    "mdl.get_desc_from_file",
    "mdl.load_from_file_with_mem",
    "mdl.get_desc",
}


@pytest.mark.parametrize(
    "call",
    [
        "init",
        "rt.set_device",
        "rt.create_context",
        "rt.create_stream",
        "rt.malloc",
        "rt.malloc_host",
        "mdl.query_size",
        "mdl.get_desc_from_file",
        "mdl.load_from_file_with_mem",
        "mdl.get_desc",
        "mdl.get_output_dims",
        "mdl.add_dataset_buffer",
    ],
)
@pytest.mark.parametrize("at", [1, 2])
def test_half_open_engine_leaves_nothing(npu, call, at) -> None:
    bed = npu(faults=[{"call": call, "at": at, "code": 207001}])
    model = bed.timed()

    if at == 2 and call in _ONCE:
        assert bed.open(model)
        return
    with pytest.raises(DeviceMemoryError) as failure:
        bed.open(model)

    assert failure.value.code == 207001
    assert failure.value.call == f"acl.{call}"
    assert not bed.machine.initialised


@pytest.mark.parametrize("call", ["rt.create_stream", "mdl.get_desc", "rt.malloc_host"])
def test_device_lost_while_opening_is_said_first(npu, call) -> None:
    bed = npu(faults=[{"call": call, "lost": True}])
    bed.may_leak = True

    with pytest.raises(DeviceLostError, match=f"acl.{call}.*507010") as failure:
        bed.open(bed.timed())

    assert failure.value.fatal


def test_close_gives_up_a_hanging_device(npu) -> None:
    bed = npu(faults=[{"call": "mdl.execute_async", "at": 2, "hang": True}])
    bed.may_leak = True
    engine = bed.open(bed.timed(), timeout_s=0.1)
    engine.submit({"x": ramp(3, 4)}, outputs_for(engine, 3), 3)

    begun = time.monotonic()
    engine.close()

    assert time.monotonic() - begun < 30


def test_what_is_not_released_is_said_and_acl_is_left_to_the_end_of_the_process(npu) -> None:
    bed = npu(faults=[{"call": "rt.destroy_stream", "code": 507000}])
    bed.may_leak = True
    engine = bed.open(bed.timed())

    with pytest.raises(DeviceError, match=r"acl\.rt\.destroy_stream.*507000"):
        engine.close()

    assert bed.machine.initialised


@pytest.mark.parametrize(
    "call",
    [
        "destroy_data_buffer",
        "rt.free_host",
        "mdl.destroy_dataset",
        "rt.free",
        "mdl.unload",
        "rt.destroy_context",
        "rt.reset_device",
        "finalize",
    ],
)
def test_after_a_failed_release_nothing_is_released_that_may_be_in_use(npu, call) -> None:
    bed = npu(faults=[{"call": call, "code": 500001}])
    bed.may_leak = True
    engine = bed.open(bed.timed())

    with pytest.raises(DeviceError, match=f"acl.{call}.*500001"):
        engine.close()


@pytest.mark.parametrize("at", range(1, 6))
def test_event_that_is_not_destroyed_fails_no_batch(npu, at) -> None:
    bed = npu(faults=[{"call": "rt.destroy_event", "at": at, "code": 207010}])
    engine = bed.open(bed.timed())

    results = [run(engine, 9, x=ramp(9, 4))["y"] for _ in range(3)]
    engine.close()

    assert all(np.array_equal(results[0], each) for each in results)
    assert not bed.machine.leaks()


@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_failed_copy_of_one_input_harms_no_later_batch(npu, tmp_path, at) -> None:
    bed = npu(faults=[{"call": "rt.memcpy_async", "at": at, "code": 207010}])
    tensors = [OmTensor(name, "float32", (4, 5)) for name in "abc"]
    write_om(tmp_path / "m.om", None, inputs=tensors[:2], outputs=tensors[2:])
    engine = bed.open(tmp_path / "m.om")
    inputs = {"a": ramp(7, 5), "b": ramp(7, 5)}

    with pytest.raises(DeviceError, match="207010"):
        run(engine, 7, **inputs)
    again = [run(engine, 7, **inputs)["c"] for _ in range(2)]

    assert np.array_equal(*again)


def test_process_has_one_acl_only(npu) -> None:
    bed = npu()
    bed.open(bed.timed())

    with pytest.raises(ConfigError, match="runs on the emulator, and another is to run on an NPU"):
        bed.open(bed.timed("other"), extra={"device": "npu"})
    with pytest.raises(ConfigError, match="to run on the emulator, published"):
        bed.open(bed.timed("other"), extra={"device": "emulator", "profile": "published"})


def test_model_that_does_not_fit_is_refused_with_the_sums(npu) -> None:
    bed = npu(devices=[{"memory": "1GiB", "used": "600MiB"}])
    model = bed.timed(weight_bytes=500 << 20, work_bytes=100 << 20)

    with pytest.raises(ModelLoadError, match=r"weights 0\.49 GiB, work 100\.0 MiB, buffers for 2"):
        bed.open(model)


def test_busy_device_is_tried_again(npu) -> None:
    faults = [{"call": "rt.set_device", "at": 1, "times": 2, "code": 507033}]
    bed = npu(faults=faults)

    assert run(bed.open(bed.timed()), 1, x=ramp(1, 4))


def test_device_that_stays_busy_is_explained(npu) -> None:
    faults = [{"call": "rt.set_device", "at": 1, "times": 99, "code": 507033}]
    bed = npu(faults=faults)

    with pytest.raises(DeviceError, match=r"device 0 is busy.*at most 64.*npu-smi|npu-smi.*64"):
        bed.open(bed.timed())


def test_no_more_processes_than_a_card_takes(npu) -> None:
    bed = npu(limits={"processes": 2})
    model = bed.timed()
    others = []
    for _ in range(2):
        device = Device(0, 0, bed.machine.devices[0].memory)
        assert device.enter(bed.machine.profile)
        others.append(device)
    try:
        with pytest.raises(DeviceError, match="used by 2 processes already"):
            bed.open(model)
    finally:
        for device in others:
            device.leave()


def test_unknown_device_is_refused(npu) -> None:
    bed = npu()

    with pytest.raises(BackendError, match="device 3 does not exist: 1 can be seen"):
        bed.open(bed.timed(), device=3)


def test_acl_of_another_library_is_left_alone(npu) -> None:
    bed = npu()
    import acl

    assert acl.init() == 0
    assert acl.rt.set_device(0) == 0
    theirs, _ = acl.rt.get_context()
    engine = bed.open(bed.timed())
    run(engine, 2, x=ramp(2, 4))

    engine.close()

    assert acl.rt.get_context() == (theirs, 0)
    assert acl.rt.reset_device(0) == 0
    assert acl.finalize() == 0


def test_engine_works_in_another_thread(npu) -> None:
    bed = npu()
    engine = bed.open(bed.timed())
    expected = run(engine, 2, x=ramp(2, 4))["y"]
    got = []
    thread = threading.Thread(target=lambda: got.append(run(engine, 2, x=ramp(2, 4))["y"]))

    thread.start()
    thread.join()

    assert np.array_equal(got[0], expected)


def test_fork_is_refused_in_words(npu) -> None:
    bed = npu()
    engine = bed.open(bed.timed())
    read, write = os.pipe()

    pid = os.fork()
    if pid == 0:
        try:
            run(engine, 1, x=ramp(1, 4))
        except DeviceStateError as error:
            os.write(write, f"{error.fatal} {error}".encode())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(write)
    said = os.read(read, 1000).decode()
    os.close(read)

    assert said.startswith("True this process was forked")
    assert '"spawn"' in said


def test_profile_of_the_default_name_has_one_card() -> None:
    assert len(Profile().devices) == 1
