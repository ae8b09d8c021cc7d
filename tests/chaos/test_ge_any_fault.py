"""Faults of any kind at any call: no result is ever wrong, and no batch pays for another."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gepipe.emulator.om import Gears, OmTensor, write_om
from gepipe.errors import DeviceError
from tests.unit.engines.ge.bed import affine

#: Calls on the way of a batch, those that only some kinds of models make included.
CALLS = (
    "mdl.execute_async",
    "mdl.set_dynamic_batch_size",
    "mdl.set_input_dynamic_dims",
    "mdl.set_dataset_tensor_desc",
    "rt.memcpy_async",
    "rt.create_event",
    "rt.record_event",
    "rt.stream_wait_event",
    "rt.destroy_event",
    "rt.synchronize_stream",
    "rt.malloc",
    "rt.malloc_host",
    "create_tensor_desc",
    "update_data_buffer",
)
#: Lengths of a row by the kind of the model.
LENGTHS = {"static": [5], "batch": [5], "dims": [5, 6, 9], "range": [2000, 3000, 20_000]}


def model(folder, kind, choose):
    """Write y = 2 x + 1 as a model of a kind."""
    gears, more = None, {}
    shape = (choose(1, 4), 5) if kind == "static" else (-1, 5 if kind == "batch" else -1)
    if kind == "batch":
        gears = Gears("batch", tuple((size,) for size in sorted({1, choose(2, 4), choose(5, 8)})))
    elif kind == "dims":
        sizes = tuple((rows, length) for rows in (1, 4) for length in LENGTHS["dims"])
        gears, more = Gears("dims", sizes), {"output_shapes": [[size] for size in sizes]}
    elif kind == "range":
        more = {"ranges": {"x": [(1, 4), (1, -1)]}}
    graph = affine(folder / "m.onnx", [n if n > 0 else f"n{at}" for at, n in enumerate(shape)])
    tensors = [OmTensor(name, "float32", shape) for name in "xy"]
    path = folder / "m.om"
    write_om(path, graph, inputs=tensors[:1], outputs=tensors[1:], gears=gears, **more)
    return path


def faults_of(chance, kinds):
    return [
        {"call": chance.choice(CALLS), "at": chance.randint(3, 25), **chance.choice(kinds)}
        for _ in range(chance.randint(0, 3))
    ]


def use(engine, kind, chance):
    """Execute batches, two at a time; return how many failed. What succeeds must be right."""
    pending: list = []
    failed = 0

    def collect() -> int:
        token, x, y, count = pending.pop(0)
        try:
            engine.collect(token)
        except DeviceError:
            return 1
        assert np.array_equal(y[:count], 2 * x[:count] + 1)
        assert (y[count:] == 7).all()
        return 0

    for number in range(14):
        count = chance.randint(1, 10)
        shape = count + chance.randint(0, 2), chance.choice(LENGTHS[kind])
        x = np.random.default_rng(number).standard_normal(shape).astype("float32")
        y = np.full(shape, 7, "float32")
        try:
            pending.append((engine.submit({"x": x}, {"y": y}, count), x, y, count))
        except DeviceError:
            failed += 1
        while len(pending) >= chance.randint(1, 2):
            failed += collect()
    while pending:
        failed += collect()
    return failed


@pytest.mark.parametrize("seed", range(60))
def test_passing_fault_costs_the_batches_under_way(npu, tmp_path, seed) -> None:
    chance = random.Random(seed)
    kind = chance.choice(sorted(LENGTHS))
    faults = faults_of(chance, [{"code": code} for code in (207003, 207010, 145000, 500002)])
    bed = npu(faults=faults, latency_ms={1: seed % 3}, seed=seed if seed % 2 else None)
    path = model(tmp_path, kind, chance.randint)
    try:
        engine = bed.open(path)
    except DeviceError:
        assert faults
        return

    assert use(engine, kind, chance) <= 2 * len(faults)
    assert use(engine, kind, chance) <= 2 * len(faults)  # as much as is left of them
    engine.close()
    assert not bed.machine.leaks()


@pytest.mark.parametrize("seed", range(40))
def test_lost_device_gives_no_wrong_result(npu, tmp_path, seed) -> None:
    chance = random.Random(seed)
    kind = chance.choice(sorted(LENGTHS))
    faults = faults_of(chance, [{"code": 507011}, {"code": 507899}, {"lost": True}])
    bed = npu(faults=faults)
    bed.may_leak = True
    path = model(tmp_path, kind, chance.randint)
    try:
        engine = bed.open(path, timeout_s=60)  # for the calls with a limit; none comes to it
    except DeviceError:
        assert faults
        return

    failed = use(engine, kind, chance) + use(engine, kind, chance)

    assert faults or not failed
    assert (use(engine, kind, chance) == 14) == (engine._execution.lost is not None)
