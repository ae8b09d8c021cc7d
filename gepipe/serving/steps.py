"""The steps before and behind the model in the ensemble layout, run in the server's processes.

The server starts as many processes of a step as its instance group says. Each works on one item
after the other, exactly as a worker of `gepipe run` does. `Preprocess` and `Postprocess` are what
the server wants to find under the name `TritonPythonModel` in a `model.py`.
"""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gepipe.errors import ConfigError, GepipeError, ItemError
from gepipe.io.jsonl import encode_json
from gepipe.ops.plan import plan_post, plan_pre
from gepipe.pipeline import meta as metas
from gepipe.pipeline.bodies import PostBody, PreBody
from gepipe.runtime import tuning
from gepipe.serving.bundle import load_bundle
from gepipe.serving.declared import spec_of
from gepipe.serving.itemmeta import from_json, to_json
from gepipe.serving.merging import checked_rows
from gepipe.serving.replies import reply_error
from gepipe.serving.stub import settle

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gepipe.spec.model import PipelineSpec

#: The tensor that carries what pre notes about an item around the model.
META: Final = "ITEM_META"
#: The tensor of results, each as JSON text.
RESULT: Final = "RESULT"


class RowFailed(GepipeError):  # noqa: N818 - it wraps the error
    """A row of a request cannot be processed, and the request with it.

    Attributes:
        shown: Which row; None where the request has only one.
        error: Why.
    """

    def __init__(self, row: int, count: int, error: BaseException) -> None:
        super().__init__(str(error))
        self.shown = row if count > 1 else None
        self.error = error


class Step(ABC):
    """What the two steps have in common: one response for each request, whatever happens."""

    _spec: PipelineSpec

    def initialize(self, args: Mapping[str, str]) -> None:
        """Load the pipeline file that lies beside the model.

        Raises:
            Exception: `pb_utils.TritonModelException`, whose text the server shows as it is.
        """
        import triton_python_backend_utils as pb_utils

        settle()
        tuning.keep_freed_memory()
        # Standard output is ASCII here, whatever the locale; what user code prints must not fail.
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        folder = Path(args["model_repository"]) / args["model_version"]
        try:
            self._spec = load_bundle(folder)
            self._set_up(json.loads(args["model_config"]))
        except GepipeError as error:
            raise pb_utils.TritonModelException(str(error)) from None

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Return one response for each request, in order. Never raises."""
        return [self._answer(request) for request in requests]

    @abstractmethod
    def _set_up(self, config: Mapping[str, Any]) -> None: ...

    @abstractmethod
    def _process(self, tensors: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
        """Return the outputs for the inputs of a request."""

    @abstractmethod
    def _stage(self, role: str | None) -> str: ...

    def _answer(self, request: Any) -> Any:
        import triton_python_backend_utils as pb_utils

        try:
            made = self._process({each.name(): each.as_numpy() for each in request.inputs()})
        except RowFailed as failed:
            error = failed.error
            return reply_error(self._stage(getattr(error, "role", None)), error, failed.shown)
        except Exception as error:  # noqa: BLE001 - one that escaped would fail its neighbours
            return reply_error(self._stage(getattr(error, "role", None)), error)
        wanted = request.requested_output_names()
        return pb_utils.InferenceResponse([
            pb_utils.Tensor(name, array) for name, array in made.items() if name in wanted
        ])  # fmt: skip


class Preprocess(Step):
    """Turns each row of `IMAGE` or `INPUT` into one of the model's inputs, and its meta."""

    def _set_up(self, config: Mapping[str, Any]) -> None:
        pre = self._spec.pre
        self._specs = [
            spec_of("output", entry) for entry in config["output"] if entry["name"] != META
        ]
        for spec in self._specs:
            if not spec.is_static:
                raise ConfigError(f"output {spec} has open extents; expected numbers in its dims")
        (given,) = config["input"]
        self._input = str(given["name"])
        self._given = None if given["data_type"] == "TYPE_STRING" else spec_of("input", given)
        self._body = PreBody(_Given(), plan_pre(pre.ops))
        self._body.setup()

    def _process(self, tensors: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
        import numpy as np

        values: Any = tensors[self._input]
        if self._given is None:
            if values.shape != (len(values), 1):
                raise ItemError(
                    "shape",
                    f"input {self._input!r} has shape {list(values.shape)}; expected [n, 1]",
                )
            values = values[:, 0]
        else:
            checked_rows({self._input: values}, [self._given])
        count = len(values)
        made = {spec.name: np.empty((count, *spec.shape), spec.dtype) for spec in self._specs}

        def write(row: int) -> bytes:
            views = {name: array[row, ...] for name, array in made.items()}
            return to_json(metas.decode(self._body.write(values[row], views)))

        return {**made, META: _texts(count, write)}

    def _stage(self, role: str | None) -> str:  # noqa: ARG002 - nobody else is to blame
        return self._spec.pre.name


class Postprocess(Step):
    """Turns each row of the model's outputs into a result."""

    def _set_up(self, config: Mapping[str, Any]) -> None:
        self._specs = [
            spec_of("input", entry) for entry in config["input"] if entry["name"] != META
        ]
        self._body = PostBody(plan_post(self._spec.post.ops), encode_json, self._spec.infer.nan)
        self._body.setup()

    def _process(self, tensors: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
        count = checked_rows(tensors, self._specs)
        texts = tensors.get(META)
        if texts is not None and texts.shape != (count, 1):
            raise ItemError("shape", f"{META} has shape {list(texts.shape)}; expected [{count}, 1]")

        def read(row: int) -> bytes:
            meta = from_json(texts[row, 0]) if texts is not None else {}
            rows = {spec.name: tensors[spec.name][row, ...] for spec in self._specs}
            return self._body.read(rows, metas.encode(meta))

        return {RESULT: _texts(count, read)}

    def _stage(self, role: str | None) -> str:
        return self._spec.infer.name if role == "infer" else self._spec.post.name


class _Given:
    """Reads an input that came with the request."""

    def read(self, payload: Any) -> Any:
        """Return the input as it is, unless there is none."""
        if isinstance(payload, bytes) and not payload:
            raise ItemError("empty", "the input is empty (0 bytes)")
        return payload


def _texts(count: int, make: Callable[[int], bytes]) -> NDArray[Any]:
    """Return a tensor of text, one for each row.

    Raises:
        RowFailed: A row cannot be processed.
    """
    import numpy as np

    texts = np.empty((count, 1), object)
    for row in range(count):
        try:
            texts[row, 0] = make(row)
        except BaseException as error:
            raise RowFailed(row, count, error) from error
    return texts
