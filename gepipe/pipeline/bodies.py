"""What the workers run: the stages of a pipeline in the terms of the runtime."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gepipe import plugins
from gepipe.engines.engine import EngineOptions
from gepipe.errors import ItemError
from gepipe.io.frames import stamped
from gepipe.io.original import Origin, Original
from gepipe.io.source import Reader
from gepipe.ops.plan import PostProgram, PreProgram
from gepipe.pipeline.meta import decode, encode
from gepipe.runtime.body import ModelInfo
from gepipe.runtime.memory import SharedBuffer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gepipe.unshaped import UnshapedBuffer

log = logging.getLogger(__name__)

#: What the source gave for an item, on its way to a sink that reads it once more.
_PAYLOAD = "gepipe.payload"


@dataclass
class PreBody:
    """Reads an input and writes it into its row.

    Attributes:
        reader: The source's reader.
        program: The stage's operators.
        keep: Whether post needs to read the input once more.
    """

    reader: Reader
    program: PreProgram
    keep: bool = False

    def setup(self) -> None:
        """Prepare the operators."""
        _one_thread()
        self.program.setup()

    def attach(self, buffer: SharedBuffer) -> None:
        """Take memory that payloads point into."""
        _hand_over(buffer, self.reader)

    def write(self, payload: Any, rows: Mapping[str, NDArray[Any] | UnshapedBuffer]) -> bytes:
        """See `gepipe.runtime.body.Writer`."""
        facts = getattr(self.reader, "facts", None)
        meta: dict[str, Any] = {} if facts is None else facts(payload)
        self.program(self.reader.read(payload), meta, rows)
        if self.keep:
            meta[_PAYLOAD] = payload
        return encode(meta)


@dataclass
class InferBody:
    """A model open on a device.

    Attributes:
        engine: The engine's registered name.
        model: The model file, if the engine needs one.
        options: How to open it.
    """

    engine: str
    model: Path | None
    options: EngineOptions
    _open: Any = field(default=None, init=False)

    @property
    def in_flight(self) -> int:
        """Batches that may be submitted before the first is collected."""
        return int(self._open.in_flight)

    def setup(self) -> ModelInfo:
        """Open the model."""
        self._open = plugins.load("engines", self.engine).open(self.model, self.options)
        return ModelInfo(
            tuple(spec.row for spec in self._open.inputs),
            tuple(spec.row for spec in self._open.outputs),
            tuple(self._open.gears),
            tuple(self._open.notes),
            self.in_flight,
            tuple(getattr(self._open, "largest", ())),
        )

    def submit(
        self,
        inputs: Mapping[str, NDArray[Any]],
        outputs: Mapping[str, NDArray[Any] | UnshapedBuffer],
        count: int,
    ) -> Any:
        """See `gepipe.engines.engine.Engine.submit`."""
        return self._open.submit(inputs, outputs, count)

    def collect(self, pending: Any) -> None:
        """See `gepipe.engines.engine.Engine.collect`."""
        self._open.collect(pending)

    def close(self) -> None:
        """Release the device."""
        self._open.close()


class NanError(ItemError):
    """The model's output holds NaN: the infer stage's failure, found by post."""

    role = "infer"


@dataclass
class PostBody:
    """Makes a record of an item's outputs.

    Attributes:
        program: The stage's operators.
        encode: The sink's encoder; one that has `takes_meta` set is given the item's meta too.
        nan: `fail`, `keep` or `warn`: what to do with an item whose outputs hold NaN.
        original: Reads inputs once more, where the encoder is given their `Origin` too.
    """

    program: PostProgram
    encode: Callable[..., bytes]
    nan: str
    original: Original | None = None
    _warned: bool = field(default=False, init=False)

    def setup(self) -> None:
        """Prepare the operators."""
        _one_thread()
        self.program.setup()

    def attach(self, buffer: SharedBuffer) -> None:
        """Take memory that the payloads of items point into that are read once more."""
        _hand_over(buffer, self.original)

    def read(self, rows: Mapping[str, NDArray[Any]], meta: bytes) -> bytes:
        """See `gepipe.runtime.body.Reader`."""
        if self.nan != "keep":
            self._look_for_nan(rows)
        facts = decode(meta)
        if self.original is None:
            made = stamped(self.program(rows, facts), facts)
            takes_meta = getattr(self.encode, "takes_meta", False)
            return self.encode(made, facts) if takes_meta else self.encode(made)
        payload = facts.pop(_PAYLOAD)
        result = stamped(self.program(rows, facts), facts)
        return self.encode(result, Origin(facts, partial(self.original.picture, payload)))

    def _look_for_nan(self, rows: Mapping[str, NDArray[Any]]) -> None:
        import numpy as np

        for name, row in rows.items():
            if row.dtype.kind != "f" or not np.isnan(row).any():
                continue
            count = int(np.isnan(row).sum())
            text = f"output {name!r} holds {count} NaN of {row.size} values"
            if self.nan == "fail":
                raise NanError("nan", f"{text}; set `nan: keep` or `nan: warn` to pass it on")
            if not self._warned:
                self._warned = True
                log.warning(
                    "%s and is passed on (nan: warn); later ones are not reported; "
                    "`nan: fail` names the inputs",
                    text,
                )


def _hand_over(buffer: SharedBuffer, reader: Any) -> None:
    if hasattr(reader, "attach"):
        reader.attach(buffer)
    else:
        buffer.close()


def _one_thread() -> None:
    """Leave parallelism to the processes: a thread pool in each would fight over the cores."""
    import cv2

    cv2.setNumThreads(1)
