"""Images a second on emulated NPUs with the published latencies, as multiples of a serial program.

The cards take 22 ms for a batch of 1, 44.4 ms for 8 and 61.5 ms for 32; they only take time, and
no hardware was measured. The serial program is the usual pyACL one, which copies, executes and
copies for one image after the other.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import harness
from harness import Figure

NAME = "ge_throughput"
ROW = (224, 224, 3)  # uint8 pixels: the card normalises them, as with static AIPP
CLASSES = 1000
#: Variant: batch size, devices, batches to measure, multiple of the serial rate to reach.
VARIANTS = {
    "batch1": (1, 1, 150, 1.0),
    "batch8": (8, 1, 80, 4.0),
    "batch32": (32, 1, 60, 11.5),
    "batch32x2": (32, 2, 120, 22.8),
}
_SERIAL_ITEMS = 150
_WARM_SHARE = 0.1
_PIPELINE = """
depth: {depth}
stages:
  - name: preprocess
    threads: {threads}
    batch_size: {batch}
    ops: [{{python: "ge_throughput:image"}}]
  - name: inference
    model: {model}
    backend: {{ge: {{device: emulator, profile: published, mode: strict}}}}
    devices: {devices}
  - name: postprocess
    stream_count: 1
    ops: [{{python: "ge_throughput:best"}}]
"""
_made: Any = None


def image(_content: bytes) -> Any:
    """Return an image as the model takes it: the work of preprocessing is measured elsewhere."""
    global _made  # noqa: PLW0603 - one a process
    if _made is None:
        import numpy as np

        _made = np.ones(ROW, np.uint8)
    return _made


def best(outputs: Any) -> int:
    """Return the best class."""
    return int(outputs["y"].argmax())


def write_model(path: Path) -> Path:
    """Write a model that only takes time, with gears for all variants."""
    from gepipe.emulator.om import Gears, OmTensor, write_om

    write_om(
        path,
        None,
        inputs=[OmTensor("x", "uint8", (-1, *ROW), "NHWC")],
        outputs=[OmTensor("y", "float32", (-1, CLASSES))],
        gears=Gears("batch", ((1,), (8,), (32,))),
        name="resnet50",
    )
    return path


def trial(variant: str) -> dict[str, float]:
    """Measure one variant."""
    with tempfile.TemporaryDirectory() as folder:
        model = write_model(Path(folder) / "resnet50.om")
        if variant == "serial":
            return _serial(model)
        return _pipeline(model, Path(folder), *VARIANTS[variant][:3])


def _pipeline(
    model: Path, folder: Path, batch: int, devices: int, batches: int
) -> dict[str, float]:
    from gepipe.pipeline.pipeline import Pipeline
    from gepipe.spec.load import loads

    os.environ["GEPIPE_ACL_STATISTICS"] = str(folder)
    text = _PIPELINE.format(
        depth=3 * devices, threads=1, batch=batch, model=model, devices=list(range(devices))
    )
    drawn: list[float] = []

    def images() -> Any:
        for _ in range(batch * batches):
            drawn.append(time.perf_counter())
            yield b"x"

    with Pipeline(loads(text)) as pipeline:
        left = [time.perf_counter() for _ in pipeline.run(images())]
    cards = [
        card
        for path in folder.glob("*.json")
        for card in json.loads(path.read_text())["devices"]
        if card["busy_s"].get("compute")
    ]
    busy = [
        card["busy_s"]["compute"] / (card["ended_s"]["compute"] - card["began_s"]["compute"])
        for card in cards
    ]
    warm = int(batches * _WARM_SHARE) * batch
    latencies = sorted(end - begin for begin, end in zip(drawn[warm:], left[warm:], strict=True))
    return {
        "rate": (len(left) - warm) / (left[-1] - left[warm - 1]),  # from a batch's end to an end
        "busy": min(busy),
        "cards": float(len(busy)),
        "p50_ms": 1e3 * latencies[len(latencies) // 2],
        "p99_ms": 1e3 * latencies[len(latencies) * 99 // 100],
    }


def _serial(model: Path) -> dict[str, float]:
    """Run the program that public samples show, image by image."""
    import numpy as np

    from gepipe.emulator import install

    acl: Any = install("published", "strict", quiet=True)
    assert acl.init() == 0
    assert acl.rt.set_device(0) == 0
    model_id, code = acl.mdl.load_from_file(str(model))
    assert code == 0
    desc = acl.mdl.create_desc()
    acl.mdl.get_desc(desc, model_id)
    sides = {}
    for side, count, size in (
        ("in", acl.mdl.get_num_inputs(desc), acl.mdl.get_input_size_by_index),
        ("out", acl.mdl.get_num_outputs(desc), acl.mdl.get_output_size_by_index),
    ):
        dataset = acl.mdl.create_dataset()
        memory = [acl.rt.malloc(size(desc, index), 0)[0] for index in range(count)]
        for index, address in enumerate(memory):
            buffer = acl.create_data_buffer(address, size(desc, index))
            acl.mdl.add_dataset_buffer(dataset, buffer)
        sides[side] = dataset, memory
    (inputs, sources), (outputs, targets) = sides["in"], sides["out"]
    gear, _ = acl.mdl.get_input_index_by_name(desc, "ascend_mbatch_shape_data")
    result = np.zeros(CLASSES, np.float32)
    latencies = []
    for number in range(_SERIAL_ITEMS + 10):
        if number == 10:
            start = time.perf_counter()
        begin = time.perf_counter()
        array = np.ascontiguousarray(image(b""))
        code = acl.rt.memcpy(sources[0], array.nbytes, array.ctypes.data, array.nbytes, 1)
        code |= acl.mdl.set_dynamic_batch_size(model_id, inputs, gear, 1)
        code |= acl.mdl.execute(model_id, inputs, outputs)
        code |= acl.rt.memcpy(result.ctypes.data, result.nbytes, targets[0], result.nbytes, 2)
        assert code == 0
        best({"y": result})
        latencies.append(time.perf_counter() - begin)
    elapsed = time.perf_counter() - start
    latencies = sorted(latencies[10:])
    return {
        "rate": _SERIAL_ITEMS / elapsed,
        "p50_ms": 1e3 * latencies[len(latencies) // 2],
        "p99_ms": 1e3 * latencies[len(latencies) * 99 // 100],
    }


def measure(rounds: int) -> list[Figure]:
    """Measure the multiples, how busy the cards are, and what an image waits."""
    results = harness.interleave(NAME, ["serial", *VARIANTS], rounds)
    figures = []
    for variant, (batch, devices, _, goal) in VARIANTS.items():
        middle = harness.medians(results[variant])
        details = {
            **middle,
            "serial": harness.medians(results["serial"]),
            "lowest_highest_rate": harness.spread(results[variant]),
        }
        cards = f"{devices} card{'s' * (devices > 1)}"
        what = f"emulated NPU, batch {batch}, {cards}: rate / serial program"
        ratio = harness.ratio(results[variant], results["serial"])
        figures.append(Figure(NAME, what, ratio, goal, True, details))
        figures.append(
            Figure(NAME, f"… p99 of an image's way, ms (batch {batch})", middle["p99_ms"])
        )
        if batch == 32:
            figures.append(Figure(NAME, f"… card busy ({cards})", middle["busy"], 0.98))
    return figures
