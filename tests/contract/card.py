"""A card to test pyACL's rules on: an emulated one, or a real one with `-m npu`."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from gepipe.emulator.installation import machine_of
from gepipe.emulator.om import Gears, OmTensor, write_om

H2H, H2D, D2H, D2D = range(4)
X = np.arange(8, dtype=np.float32).reshape(2, 4)


@dataclass
class Card:
    """An `acl` with a device, a context and a stream, and short ways to what tests need."""

    acl: ModuleType
    folder: Path
    real: bool = False
    context: int = 0
    stream: int = 0
    models: dict[str, str] = field(default_factory=dict)

    @property
    def machine(self) -> Any:
        return machine_of(self.acl)

    def ok(self, result: Any) -> Any:
        """Return what a call returned besides its code, which must be 0."""
        *payload, code = result if isinstance(result, tuple) else (result,)
        assert code == 0, f"{code}: {self.acl.get_recent_err_msg()}"
        return payload[0] if len(payload) == 1 else tuple(payload) or None

    def open(self) -> Card:
        if not self.real:
            self.ok(self.acl.init())
        self.ok(self.acl.rt.set_device(0))
        self.context = self.ok(self.acl.rt.create_context(0))
        self.stream = self.ok(self.acl.rt.create_stream())
        return self

    def close(self) -> None:
        """Release what `open` made; must find everything else released."""
        self.ok(self.acl.rt.set_context(self.context))
        self.ok(self.acl.rt.destroy_stream(self.stream))
        self.ok(self.acl.rt.destroy_context(self.context))
        self.ok(self.acl.rt.reset_device(0))
        if not self.real:
            self.ok(self.acl.finalize())

    def device(self, size: int) -> int:
        return self.ok(self.acl.rt.malloc(size, 0))

    def pinned(self, size: int) -> int:
        return self.ok(self.acl.rt.malloc_host(size))

    def fill(self, ptr: int, data: bytes) -> None:
        """Write into host memory."""
        ctypes.memmove(ptr, data, len(data))

    def read(self, ptr: int, size: int) -> bytes:
        """Read from device memory."""
        host = self.pinned(size)
        self.ok(self.acl.rt.memcpy(host, size, ptr, size, D2H))
        data = ctypes.string_at(host, size)
        self.ok(self.acl.rt.free_host(host))
        return data

    def write(self, ptr: int, data: bytes) -> None:
        """Write into device memory."""
        host = self.pinned(len(data))
        self.fill(host, data)
        self.ok(self.acl.rt.memcpy(ptr, len(data), host, len(data), H2D))
        self.ok(self.acl.rt.free_host(host))

    @contextmanager
    def held(self) -> Iterator[threading.Event]:
        """Let nothing on the device end before the block does, or sets what this yields.

        So that a test finds the device at work, however slow the machine is.
        """
        go, schedule = threading.Event(), self.machine.schedule
        sleep_until = schedule.sleep_until

        def wait_and_sleep(moment_s: float, **how: bool) -> None:
            go.wait(60)
            sleep_until(moment_s, **how)

        schedule.sleep_until = wait_and_sleep
        try:
            yield go
        finally:
            go.set()
            schedule.sleep_until = sleep_until

    def elsewhere(self, call: Callable[[], Any]) -> Any:
        """Return what a call returns in another thread."""
        results: list[Any] = []
        thread = threading.Thread(target=lambda: results.append(call()))
        thread.start()
        thread.join()
        return results[0]

    def loaded(self, kind: str = "static") -> Loaded:
        """Load one of the models of `models`."""
        return Loaded(self, self.ok(self.acl.mdl.load_from_file(self.models[kind])))


class Loaded:
    """A loaded model with datasets and device memory."""

    def __init__(self, card: Card, model_id: int) -> None:
        mdl = card.acl.mdl
        self.card, self.id = card, model_id
        self.desc = mdl.create_desc()
        card.ok(mdl.get_desc(self.desc, model_id))
        self.sizes_in = [
            mdl.get_input_size_by_index(self.desc, i) for i in range(mdl.get_num_inputs(self.desc))
        ]
        self.sizes_out = [
            mdl.get_output_size_by_index(self.desc, i)
            for i in range(mdl.get_num_outputs(self.desc))
        ]
        self.ins, self.at_in = self.dataset(self.sizes_in)
        self.outs, self.at_out = self.dataset(self.sizes_out)

    def dataset(self, sizes: Sequence[int]) -> tuple[int, list[int]]:
        acl = self.card.acl
        made = acl.mdl.create_dataset()
        pointers = [self.card.device(size or 4096) for size in sizes]
        for ptr, size in zip(pointers, sizes, strict=True):
            buffer = acl.create_data_buffer(ptr, size or 4096)
            assert self.card.ok(acl.mdl.add_dataset_buffer(made, buffer)) == made
        return made, pointers

    def drop(self, made: int) -> None:
        acl = self.card.acl
        for index in range(acl.mdl.get_dataset_num_buffers(made)):
            buffer = acl.mdl.get_dataset_buffer(made, index)
            if ptr := acl.get_data_buffer_addr(buffer):
                self.card.ok(acl.rt.free(ptr))
            self.card.ok(acl.destroy_data_buffer(buffer))
        self.card.ok(acl.mdl.destroy_dataset(made))

    def feed(self, array: np.ndarray, index: int = 0) -> None:
        self.card.write(self.at_in[index], array.tobytes())

    def result(self, shape: tuple[int, ...], index: int = 0) -> np.ndarray:
        data = self.card.read(self.at_out[index], 4 * int(np.prod(shape)))
        return np.frombuffer(data, np.float32).reshape(shape)

    def execute(self) -> int:
        return self.card.acl.mdl.execute(self.id, self.ins, self.outs)

    def execute_async(self, stream: int) -> int:
        return self.card.acl.mdl.execute_async(self.id, self.ins, self.outs, stream)

    def close(self) -> None:
        self.drop(self.ins)
        self.drop(self.outs)
        self.card.ok(self.card.acl.mdl.unload(self.id))
        self.card.ok(self.card.acl.mdl.destroy_desc(self.desc))


@contextmanager
def loaded(card: Card, kind: str = "static") -> Iterator[Loaded]:
    if kind not in card.models:
        pytest.skip(f"GEPIPE_NPU_MODELS has no {kind}.om")
    model = card.loaded(kind)
    yield model
    model.close()


def write_models(folder: Path) -> dict[str, str]:
    """Write the emulator's models that the tests use: y = 2 x + 1 over rows of four numbers."""
    from gepipe.emulator.convert import convert_onnx
    from tests.support import doubling_model, onnx_model

    graph = doubling_model(folder / "double.onnx").read_bytes()
    fixed = {"x": (2, 4)}
    open_ = {"x": (-1, 4)}
    convert_onnx(folder / "static.om", graph, input_shapes=fixed)
    batch = Gears("batch", ((1,), (2,), (4,)))
    convert_onnx(folder / "batch.om", graph, input_shapes=open_, gears=batch)
    convert_onnx(folder / "range.om", graph, ranges={"x": ((1, 8), (4, 4))})
    image = onnx_model(
        folder / "image.onnx",
        [("Neg", ["x"], ["y"], {})],
        {"x": ("float32", ["n", 3, "h", "w"])},
        {"y": ("float32", ["n", 3, "h", "w"])},
    ).read_bytes()
    sizes = Gears("hw", ((2, 2), (4, 6)))
    convert_onnx(folder / "hw.om", image, input_shapes={"x": (1, 3, -1, -1)}, gears=sizes)
    added = onnx_model(
        folder / "add.onnx",
        [("Add", ["a", "b"], ["y"], {})],
        {"a": ("float32", ["n", "m"]), "b": ("float32", [1, "m"])},
        {"y": ("float32", ["n", "m"])},
    ).read_bytes()
    dims = Gears("dims", ((1, 2, 2), (3, 4, 4)))
    convert_onnx(folder / "dims.om", added, input_shapes={"a": (-1, -1), "b": (1, -1)}, gears=dims)
    write_om(
        folder / "timing.om",
        None,
        inputs=[OmTensor("x", "float32", (2, 4))],
        outputs=[OmTensor("y", "float32", (2, 4))],
    )
    return {path.stem: str(path) for path in folder.glob("*.om")}
