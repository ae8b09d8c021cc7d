"""Two engines of one model in one process: its weights lie on the device once."""

from __future__ import annotations

import numpy as np

from gepipe.emulator.om import OmTensor, write_om
from gepipe.engines.ge import weights
from tests.unit.engines.ge.bed import affine, ramp, run


def model(folder, name="m"):
    graph = affine(folder / f"{name}.onnx", [4, 5])
    tensors = [OmTensor(each, "float32", (4, 5)) for each in "xy"]
    write_om(folder / f"{name}.om", graph, inputs=tensors[:1], outputs=tensors[1:])
    return folder / f"{name}.om"


def loaded(folder):
    """Return how many models of the folder lie on the device; lost devices may keep others."""
    return sum(path.startswith(str(folder)) for _, path, _, _ in weights._blocks)


def test_one_file_is_loaded_once_however_many_name_it(npu, tmp_path) -> None:
    bed, path = npu(), model(tmp_path)
    (tmp_path / "alias.om").symlink_to(path)

    first, second = bed.open(path), bed.open(tmp_path / "alias.om")
    other = bed.open(model(tmp_path, "other"))

    assert loaded(tmp_path) == 2
    x = ramp(4, 5)
    for engine in (first, second, other):
        assert np.array_equal(run(engine, 4, x=x)["y"], 2 * x + 1)
    first.close()
    assert np.array_equal(run(second, 4, x=x)["y"], 2 * x + 1)  # the weights are still there
    second.close()
    other.close()
    assert loaded(tmp_path) == 0


def test_file_that_was_written_anew_is_another_model(npu, tmp_path) -> None:
    bed, path = npu(), model(tmp_path)
    first = bed.open(path)
    tensors = [OmTensor(each, "float32", (2, 5)) for each in "xy"]
    graph = affine(tmp_path / "m.onnx", [2, 5])
    path.unlink()
    write_om(path, graph, inputs=tensors[:1], outputs=tensors[1:])

    second = bed.open(path)

    assert (first.gears, second.gears) == ((4,), (2,))
    assert loaded(tmp_path) == 2
