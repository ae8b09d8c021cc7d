"""The step before the model in the ensemble layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gepipe.errors import ConfigError, ItemError
from gepipe.ops.plan import plan_pre
from gepipe.pipeline import meta as metas
from gepipe.pipeline.bodies import PreBody
from gepipe.serving.bundle import load_bundle
from gepipe.serving.declared import spec_of
from gepipe.serving.inbox import InboxReader
from gepipe.serving.itemmeta import META, to_json
from gepipe.serving.merging import checked_rows
from gepipe.serving.replies import RowFailed
from gepipe.serving.request import rows_of
from gepipe.serving.settings import parameters_of
from gepipe.serving.stageprocess import ROWS, StageProcess
from gepipe.serving.step import Step, count_of
from gepipe.spec.profile import QUEUE

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: `workers`: its processes; `max_queue_size`: requests that may wait. Each a text.
_PARAMETERS: Final = ("max_queue_size", "workers")


class Preprocess(Step):
    """Turns each row of `IMAGE` or `INPUT` into one of the model's inputs, and its meta."""

    def _open(self, folder: Path, config: Mapping[str, Any], tell: Callable[[int], None]) -> None:
        pre = load_bundle(folder).pre
        specs = [spec_of("output", entry) for entry in config["output"] if entry["name"] != META]
        for row in specs:
            if not row.is_static:
                raise ConfigError(f"output {row} has open extents; expected numbers in its dims")
        (given,) = config["input"]
        self._input = str(given["name"])
        self._given = None if given["data_type"] == "TYPE_STRING" else spec_of("input", given)
        texts = parameters_of(config, _PARAMETERS)
        self._start(
            "pre",
            pre.name,
            PreBody(InboxReader(), plan_pre(pre.ops)),
            specs=specs,
            limit_s=pre.timeout,
            workers=count_of(texts, "workers", 1),
            queue=count_of(texts, "max_queue_size", QUEUE),
            tell=tell,
        )

    def _read(self, request: Any) -> tuple[Mapping[str, Any], int]:
        values = rows_of(request, self._input, is_text=self._given is None)
        if self._given is not None:
            checked_rows({self._input: values}, [self._given])
        return {self._input: values}, len(values)

    def _made(
        self, process: StageProcess, arrays: Mapping[str, Any], count: int
    ) -> Mapping[str, NDArray[Any]]:
        values = arrays[self._input]
        texts = np.empty((count, 1), object)
        made: dict[str, NDArray[Any]] = {}
        if count > ROWS or not count:
            made = {each.name: np.empty((count, *each.shape), each.dtype) for each in self._specs}
        for first in range(0, count, ROWS):
            part = values[first : first + ROWS]
            for row, result in enumerate(process.work(process.hand_over(part)), first):
                if not isinstance(result, bytes):
                    raise RowFailed(row, count, ItemError(result.kind, result.text))
                texts[row, 0] = to_json(metas.decode(result))
            views = process.rows(len(part))
            if count <= ROWS:
                made = dict(views)
            else:
                for name, view in views.items():
                    made[name][first : first + len(part)] = view
        return {**made, META: texts}
