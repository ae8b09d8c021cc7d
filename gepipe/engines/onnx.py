"""ONNX Runtime on the CPU: `.onnx` models, executed in place on the slots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from gepipe.engines.elastic import OutputShapes, opened
from gepipe.engines.gears import portions
from gepipe.engines.largest import closed_row, largest_rows
from gepipe.engines.lengths import Cut
from gepipe.engines.onnxsession import described, gears_of, no_batch, open_session, spec_of
from gepipe.engines.texts import STRING, pack, unpack
from gepipe.errors import BackendError, ConfigError, ItemError, ModelLoadError
from gepipe.tensors import DTYPES, TensorSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gepipe.engines.engine import EngineOptions
    from gepipe.tensors import Variants
    from gepipe.unshaped import UnshapedBuffer


class OnnxEngine:
    """An ONNX model on the CPU. See `gepipe.engines.engine.Engine` for the contract."""

    on_cpu = True
    in_flight = 1

    def __init__(self, model: Path, options: EngineOptions) -> None:
        self._session: Any = open_session(model, options)
        taken = (*DTYPES, STRING) if options.text_bytes else tuple(DTYPES)
        self.inputs = tuple(spec_of(arg, model, taken) for arg in self._session.get_inputs())
        self.outputs = tuple(spec_of(arg, model, taken) for arg in self._session.get_outputs())
        self._ranks = {
            spec.name: len(spec.shape) - 1
            for spec in (*self.inputs, *self.outputs)
            if spec.dtype == STRING
        }
        for name, rank in self._ranks.items():
            if rank < 0:
                raise ModelLoadError(
                    f"{model}: {name!r} is of strings, and its shape is not told; expected one"
                )
        self.gears = gears_of(self.inputs, self.outputs, model)
        self.notes = (described(options),)
        self._cut = Cut.for_model(options.lengths, self.inputs, self.outputs)
        self._model = model
        self._shapes = OutputShapes()
        self.largest: tuple[int, ...] = ()
        if not self._ranks:
            self._probe_outputs(options.made)
        if options.variants is not None:
            self._measure(options.variants)
        if options.timeout_s is not None and not self._ranks:
            self._warm_up(max(1, options.batch_size))

    @classmethod
    def open(cls, model: Path | None, options: EngineOptions) -> OnnxEngine:
        """Open an ONNX model.

        Raises:
            ConfigError: It is given options; it has none.
            ModelLoadError: There is no model, or ONNX Runtime refuses it.
        """
        if options.extra:
            listed = ", ".join(sorted(options.extra))
            raise ConfigError(f"onnxruntime: unknown options {listed}; it has none")
        if model is None:
            raise ModelLoadError("backend 'onnxruntime' needs a model; set `model: file.onnx`")
        if not model.is_file():
            raise ModelLoadError(f"{model}: no such model file")
        return cls(model, options)

    def submit(
        self,
        inputs: Mapping[str, NDArray[Any]],
        outputs: Mapping[str, NDArray[Any] | UnshapedBuffer],
        count: int,
    ) -> None:
        """Execute `count` rows; the call returns when the outputs are filled."""
        if self.largest:
            self._submit_open(inputs, outputs, count)
            return
        outputs = cast("Mapping[str, NDArray[Any]]", outputs)
        if self._cut is None:
            self._submit(inputs, outputs, count)
            return
        ins, outs = self._cut.apply(inputs, outputs, count)
        self._submit(ins, outs, count)
        self._cut.restore(outs, outputs, count)

    def _submit(
        self,
        inputs: Mapping[str, NDArray[Any]],
        outputs: Mapping[str, NDArray[Any]],
        count: int,
    ) -> None:
        for first, rows, gear in portions(count, self.gears):
            ins = {name: array[first : first + rows] for name, array in inputs.items()}
            outs = {name: array[first : first + rows] for name, array in outputs.items()}
            if rows == gear:
                self._execute(ins, outs)
                continue
            padded_ins, padded_outs = _padded(ins, gear), _padded(outs, gear)
            for name, array in ins.items():
                padded_ins[name][:rows] = array
                if name in self._ranks:  # a model may refuse strings of no letters
                    padded_ins[name][rows:] = array[0]
            self._execute(padded_ins, padded_outs)
            for name, array in outs.items():
                array[:] = padded_outs[name][:rows]

    def _submit_open(
        self,
        inputs: Mapping[str, NDArray[Any]],
        outputs: Mapping[str, NDArray[Any] | UnshapedBuffer],
        count: int,
    ) -> None:
        rows = self._shapes.of(inputs)
        if rows is not None:
            try:
                self._submit(inputs, opened(outputs, rows), count)
            except ItemError:
                raise
            except Exception:  # noqa: BLE001 - told by the execution that finds out
                self._shapes.forget()
            else:
                return
        _, first, gear = next(portions(count, self.gears))
        ins = {name: array[:first] for name, array in inputs.items()}
        if first < gear:
            ins = _padded(ins, gear)
            for name, array in inputs.items():
                ins[name][:first] = array[:first]
        results = self._run(ins)
        outs = opened(outputs, self._shapes.learn(inputs, results))
        for array, result in zip(outs.values(), results, strict=True):
            array[:first] = result[:first]
        if first < count:
            self._submit(
                {name: array[first:] for name, array in inputs.items()},
                {name: array[first:] for name, array in outs.items()},
                count - first,
            )

    def collect(self, pending: None) -> None:
        """Nothing to wait for: `submit` has done the work."""

    def close(self) -> None:
        """Release the session."""
        self._session = None

    def _execute(
        self, inputs: Mapping[str, NDArray[Any]], outputs: Mapping[str, NDArray[Any]]
    ) -> None:
        if self._ranks:
            self._execute_texts(inputs, outputs)
            return
        binding = self._session.io_binding()
        for name, array in inputs.items():
            binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        for name, array in outputs.items():
            binding.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        self._session.run_with_iobinding(binding)

    def _execute_texts(
        self, inputs: Mapping[str, NDArray[Any]], outputs: Mapping[str, NDArray[Any]]
    ) -> None:
        """Execute what has strings, for which ONNX Runtime takes no memory of ours."""
        import numpy as np

        decoded = np.frompyfunc(bytes.decode, 1, 1)
        ins = {
            name: decoded(unpack(array, self._ranks[name])) if name in self._ranks else array
            for name, array in inputs.items()
        }
        rows = next(iter(inputs.values())).shape[0]
        results = self._session.run(list(outputs), ins)
        for (name, array), result in zip(outputs.items(), results, strict=True):
            if not result.ndim or result.shape[0] != rows:
                raise no_batch(name, result.shape, rows, self._model)
            if name not in self._ranks and result.shape == array.shape:
                array[:] = result
            elif result.ndim - 1 == self._ranks.get(name):
                pack(f"output {name!r}", result, array)
            else:
                expected = self._ranks.get(name, list(array.shape[1:]))
                raise ItemError(
                    "shape",
                    f"output {name!r} has rows of shape {list(result.shape[1:])}; expected "
                    f"{expected}" + " axes" * (name in self._ranks),
                )

    def _run(self, inputs: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Return the outputs of one execution, in order, wherever they are."""
        rows = next(iter(inputs.values())).shape[0]
        names = [spec.name for spec in self.outputs]
        try:
            results: list[NDArray[Any]] = self._session.run(names, dict(inputs))
        except Exception as error:  # ONNX Runtime raises classes without a common base
            shapes = ", ".join(str(list(array.shape)) for array in inputs.values())
            raise BackendError(
                f"{self._model}: an execution for {shapes} failed: {error}; if the model takes "
                "multiples of a number only, such as 32, set multiple_of in resize"
            ) from error
        for spec, result in zip(self.outputs, results, strict=True):
            if not result.ndim or result.shape[0] != rows:
                raise no_batch(spec.name, result.shape, rows, self._model)
        return results

    def _measure(self, variants: Variants) -> None:
        """Find out how large outputs become."""
        import numpy as np

        gear = self.gears[0] if self.gears else 1

        def execute(shapes: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
            pairs = zip(self.inputs, shapes, strict=True)
            zeros = {spec.name: np.zeros((gear, *row), spec.dtype) for spec, row in pairs}
            return tuple(result.shape[1:] for result in self._run(zeros))

        if all(spec.shape and spec.row.is_static for spec in self.outputs):
            return
        found = largest_rows([spec.row for spec in self.inputs], variants, execute)
        sizes = [
            [replace(spec, shape=row).nbytes for spec, row in zip(self.outputs, rows, strict=True)]
            for rows in found
        ]
        self.largest = tuple(max(each) for each in zip(*sizes, strict=True))

    def _warm_up(self, rows: int) -> None:
        """Execute once, so that the limit of an execution is not for the first, slower one."""
        import numpy as np

        if all(spec.row.is_static for spec in (*self.inputs, *self.outputs)):
            self.submit(
                {s.name: np.zeros((rows, *s.shape[1:]), s.dtype) for s in self.inputs},
                {s.name: np.zeros((rows, *s.shape[1:]), s.dtype) for s in self.outputs},
                rows,
            )

    def _probe_outputs(self, made: TensorSpec | None) -> None:
        """Learn output extents that the model does not declare, by one execution on zeros.

        Extents of inputs that are open are those of what the stage before makes.
        """
        import numpy as np

        rows = self.gears[0] if self.gears else 2  # of one row, any extent of 1 looks like a batch
        if all(spec.shape and spec.row.is_static for spec in self.outputs):
            return
        shapes = {spec.name: closed_row(spec.row, made) for spec in self.inputs}
        if not all(spec.is_static for spec in shapes.values()):
            return
        zeros = {name: np.zeros((rows, *spec.shape), spec.dtype) for name, spec in shapes.items()}
        self.outputs = tuple(
            TensorSpec(spec.name, spec.dtype, (spec.shape[0], *result.shape[1:]))
            for spec, result in zip(self.outputs, self._run(zeros), strict=True)
        )


def _padded(arrays: Mapping[str, NDArray[Any]], rows: int) -> dict[str, NDArray[Any]]:
    """Return zeros of the same shapes, with so many rows."""
    import numpy as np

    return {name: np.zeros((rows, *array.shape[1:]), array.dtype) for name, array in arrays.items()}
