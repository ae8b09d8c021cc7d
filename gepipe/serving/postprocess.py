"""The step behind the model in the ensemble layout."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gepipe.errors import GepipeError, ItemError
from gepipe.io.jsonl import encode_json
from gepipe.ops.plan import plan_post
from gepipe.pipeline import meta as metas
from gepipe.pipeline.bodies import PostBody
from gepipe.serving.bundle import load_bundle
from gepipe.serving.declared import spec_of
from gepipe.serving.itemmeta import META, from_json
from gepipe.serving.merging import Query, checked_rows
from gepipe.serving.payloads import RESULT
from gepipe.serving.replies import RowFailed
from gepipe.serving.settings import parameters_of
from gepipe.serving.stageprocess import ROWS, StageProcess
from gepipe.serving.step import Step, count_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gepipe.runtime.events import Fault

#: `workers`: its processes, a text.
_PARAMETERS: Final = ("workers",)
#: What comes here was let in by the steps before; refused now, their work would be lost.
_UNBOUNDED: Final = sys.maxsize

#: Rows that a worker may be given at a time, if they are no larger than that.
_ROWS: Final = 32
_ROWS_NBYTES: Final = 4 << 20


class Postprocess(Step):
    """Turns each row of the model's outputs into a result."""

    def _open(self, folder: Path, config: Mapping[str, Any], tell: Callable[[int], None]) -> None:
        spec = load_bundle(folder)
        specs = [spec_of("input", entry) for entry in config["input"] if entry["name"] != META]
        self._infer = spec.infer.name
        self._start(
            "post",
            spec.post.name,
            PostBody(plan_post(spec.post.ops), encode_json, spec.infer.nan),
            specs=specs,
            limit_s=spec.post.timeout,
            workers=count_of(parameters_of(config, _PARAMETERS), "workers", 1),
            queue=_UNBOUNDED,
            rows=max(ROWS, min(_ROWS, _ROWS_NBYTES // max(1, sum(each.nbytes for each in specs)))),
            merged=True,  # they come a batch at a time, and each takes little
            tell=tell,
        )

    def _read(self, request: Any) -> tuple[Mapping[str, Any], int]:
        tensors = {each.name(): each.as_numpy() for each in request.inputs()}
        return tensors, checked_rows(tensors, self._specs)

    def _answer(self, process: StageProcess, queries: Sequence[Query]) -> list[Any]:
        together = self._together(process, queries) if len(queries) > 1 else None
        if together is None:  # what ends the process, or is no meta, is found one by one
            return super()._answer(process, queries)
        return [
            self._reply(process, query, partial(_result, results))
            for query, results in zip(queries, together, strict=True)
        ]

    def _together(
        self, process: StageProcess, queries: Sequence[Query]
    ) -> list[Sequence[bytes | Fault]] | None:
        """Return the results of the rows of each query; None if they cannot be had at once."""
        notes: list[bytes] = []
        try:
            for query in queries:
                rows = {spec.name: query.arrays[spec.name] for spec in self._specs}
                process.fill(rows, len(notes))
                notes += _notes(query.arrays.get(META), query.rows)
            results = process.work(notes, tries=1)
        except GepipeError:
            return None
        ends = list(accumulate(query.rows for query in queries))
        return [results[end - query.rows : end] for end, query in zip(ends, queries, strict=True)]

    def _made(
        self, process: StageProcess, arrays: Mapping[str, Any], count: int
    ) -> Mapping[str, NDArray[Any]]:
        notes = _notes(arrays.get(META), count)
        results: list[bytes | Fault] = []
        for first in range(0, count, self._rows):
            part = notes[first : first + self._rows]
            process.fill({s.name: arrays[s.name][first : first + len(part)] for s in self._specs})
            results += process.work(part)
        return _result(results)

    def _blamed(self, error: BaseException) -> str:
        return self._infer if getattr(error, "role", None) == "infer" else self._stage


def _result(results: Sequence[bytes | Fault]) -> Mapping[str, NDArray[Any]]:
    """Return the output of a request.

    Raises:
        RowFailed: A row has none.
    """
    import numpy as np

    texts = np.empty((len(results), 1), object)
    for row, result in enumerate(results):
        if not isinstance(result, bytes):
            raise RowFailed(row, len(results), _StageError(result))
        texts[row, 0] = result
    return {RESULT: texts}


class _StageError(ItemError):
    """What went wrong in a worker; `role` is the stage's that is to blame, if it is another."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.kind, fault.text)
        self.role = fault.role


def _notes(given: NDArray[Any] | None, count: int) -> list[bytes]:
    """Return what was noted about each row before, as workers take it.

    Raises:
        ItemError: The tensor is of another shape.
        RowFailed: A row is not what a step before has made.
    """
    if given is None:
        return [metas.encode({})] * count
    if given.shape != (count, 1):
        raise ItemError("shape", f"{META} has shape {list(given.shape)}; expected [{count}, 1]")
    notes = []
    for row in range(count):
        try:
            notes.append(metas.encode(from_json(given[row, 0])))
        except ItemError as error:
            raise RowFailed(row, count, error) from error
    return notes
