"""The step behind the model in the ensemble layout, run in the server's processes.

The server starts as many processes of it as its instance group says. Each works on one item after
the other, exactly as a worker of `gepipe run` does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gepipe.errors import GepipeError, ItemError
from gepipe.io.jsonl import encode_json
from gepipe.ops.plan import plan_post
from gepipe.pipeline import meta as metas
from gepipe.pipeline.bodies import PostBody
from gepipe.runtime import tuning
from gepipe.serving.bundle import load_bundle
from gepipe.serving.declared import spec_of
from gepipe.serving.itemmeta import META, from_json
from gepipe.serving.merging import checked_rows
from gepipe.serving.replies import RowFailed, reply_error
from gepipe.serving.stub import settle

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The tensor of results, each as JSON text.
RESULT: Final = "RESULT"


class Postprocess:
    """Turns each row of the model's outputs into a result: one response for each request."""

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
            self._open(folder, json.loads(args["model_config"]))
        except GepipeError as error:
            raise pb_utils.TritonModelException(str(error)) from None

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Return one response for each request, in order. Never raises."""
        return [self._answer(request) for request in requests]

    def _open(self, folder: Path, config: Mapping[str, Any]) -> None:
        self._spec = spec = load_bundle(folder)
        self._specs = [
            spec_of("input", entry) for entry in config["input"] if entry["name"] != META
        ]
        self._body = PostBody(plan_post(spec.post.ops), encode_json, spec.infer.nan)
        self._body.setup()

    def _answer(self, request: Any) -> Any:
        import triton_python_backend_utils as pb_utils

        try:
            made = self._process({each.name(): each.as_numpy() for each in request.inputs()})
        except RowFailed as failed:
            return reply_error(self._blamed(failed.error), failed.error, failed.shown)
        except Exception as error:  # noqa: BLE001 - one that escaped would fail its neighbours
            return reply_error(self._blamed(error), error)
        wanted = request.requested_output_names()
        return pb_utils.InferenceResponse([
            pb_utils.Tensor(name, array) for name, array in made.items() if name in wanted
        ])  # fmt: skip

    def _process(self, tensors: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
        """Return the outputs for the inputs of a request.

        Raises:
            RowFailed: A row cannot be processed.
            ItemError: The tensors have another shape than they must have.
        """
        import numpy as np

        count = checked_rows(tensors, self._specs)
        metas_ = tensors.get(META)
        if metas_ is not None and metas_.shape != (count, 1):
            shape = list(metas_.shape)
            raise ItemError("shape", f"{META} has shape {shape}; expected [{count}, 1]")
        texts = np.empty((count, 1), object)
        for row in range(count):
            try:
                meta = from_json(metas_[row, 0]) if metas_ is not None else {}
                rows = {spec.name: tensors[spec.name][row, ...] for spec in self._specs}
                texts[row, 0] = self._body.read(rows, metas.encode(meta))
            except BaseException as error:
                raise RowFailed(row, count, error) from error
        return {RESULT: texts}

    def _blamed(self, error: BaseException) -> str:
        """Return the name of the stage that an error is blamed on."""
        role = getattr(error, "role", None)
        return self._spec.infer.name if role == "infer" else self._spec.post.name
