"""The job file: what a run was asked to do, so that another run can go on with it."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Literal

from gepipe.errors import ConfigError, GepipeError, reason_of
from gepipe.io.manifest import CHUNK_COUNT, HASH_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gepipe.io.manifest import Manifest

Status = Literal["running", "interrupted", "complete"]


@dataclass(frozen=True, slots=True)
class Inputs:
    """Identity of an ordered input list.

    Attributes:
        count: How many inputs there are.
        digest: Hash of all of them.
        hashes: Hash of each chunk of inputs, in hex, one after another.
    """

    count: int
    digest: str
    hashes: str

    @classmethod
    def of(cls, manifest: Manifest) -> Inputs:
        """Return the identity of `manifest`."""
        return cls(len(manifest), manifest.digest, manifest.hashes.hex())

    def first_change(self, other: Inputs) -> tuple[int, int] | None:
        """Return the first range of inputs, the end not included, where two lists differ."""
        width = 2 * HASH_BYTES
        for number in range(max(len(self.hashes), len(other.hashes)) // width):
            part = slice(number * width, (number + 1) * width)
            if self.hashes[part] != other.hashes[part]:
                first = number * CHUNK_COUNT
                return first, min(first + CHUNK_COUNT, max(self.count, other.count))
        return None


@dataclass(frozen=True, slots=True)
class Job:
    """What a run was asked to do, and how it ended.

    Attributes:
        gepipe: Version that wrote the file.
        output: Name of the output file, without its folder.
        status: `running` also after a crash; `interrupted` after an orderly stop.
        inputs: Identity of the input list, or None if it has no known end.
        span: First input of the run, and the one behind its last; None if there is no last.
        pipeline: Normal form of the pipeline: all that the output depends on.
        sizes: Bytes of results and failures of a complete job.
        unit: What an outcome is for: an `input` of the list, or a `frame` of a video in it; then
            the number of outcomes shows at the end, and the span ends where the user said.
        items: Outcomes of a complete job.
    """

    gepipe: str
    output: str
    status: Status
    inputs: Inputs | None
    span: tuple[int, int | None] = (0, None)
    pipeline: Mapping[str, Any] = field(default_factory=dict)
    sizes: tuple[int, int] | None = None
    unit: str = "input"
    items: int | None = None

    def stored_pipeline(self) -> Any:
        """Return the pipeline as `load` will give it back."""
        return json.loads(json.dumps(self.pipeline, default=str))

    def count_text(self) -> str:
        """Return the number of items for people."""
        known = self.inputs is not None and self.unit == "input"
        return f"{self.inputs.count:,}" if known and self.inputs else "?"

    def save(self, path: Path) -> None:
        """Write the job file; after a crash there is the old one or the new one, never half.

        Raises:
            GepipeError: The folder cannot be written.
        """
        text = json.dumps(asdict(self), ensure_ascii=True, indent=1, default=str)
        part = path.with_name(f".{path.name}.part")  # the same each time, or a crash left it behind
        try:
            part.unlink(missing_ok=True)
            with part.open("x", encoding="ascii") as file:
                file.write(text + "\n")
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except OSError as error:
            with suppress(OSError):
                part.unlink()
            raise _cannot_write(path, error) from error

    @classmethod
    def load(cls, path: Path) -> Job | None:
        """Read a job file; None if there is none.

        Raises:
            ConfigError: The file is not a job file.
        """
        try:
            return cls._of(json.loads(path.read_bytes()))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from error
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            why = f"there is no {error}" if isinstance(error, KeyError) else error
            raise ConfigError(
                f"{str(path)!r} is not a job file of gepipe: {why}; run without --resume to "
                "start anew"
            ) from error

    @classmethod
    def _of(cls, data: Any) -> Job:
        """Check what a job file holds, and return it.

        Raises:
            TypeError: Something in it is of another kind.
            KeyError: Something is missing.
        """
        if not isinstance(data, dict):
            raise TypeError("it holds no object")
        first, last = _pair(data, "span")
        sizes = _pair(data, "sizes") if data["sizes"] else None
        inputs = Inputs(**data["inputs"]) if data["inputs"] else None
        texts = {name: data[name] for name in ("gepipe", "output", "status")}
        unit, items = data.get("unit", "input"), data.get("items")
        texts["unit"] = unit
        numbers: dict[str, Any] = {"span": first}
        if last is not None:
            numbers["span "] = last
        if items is not None:
            numbers["items"] = items
        if sizes:
            numbers |= {"sizes": sizes[0], "sizes ": sizes[1]}
        if inputs is not None:
            texts |= {"inputs.digest": inputs.digest, "inputs.hashes": inputs.hashes}
            numbers["inputs.count"] = inputs.count
            if last is None and data.get("unit") != "frame":
                raise TypeError("span has no end")
        for name, value in numbers.items():
            if type(value) is not int or value < 0:
                raise TypeError(f"{name.strip()} holds {value!r}, which is no count")
        for name, value in texts.items():
            if not isinstance(value, str):
                raise TypeError(f"{name} is {value!r}, which is no text")
        if not isinstance(data["pipeline"], dict):
            raise TypeError("pipeline is no object")
        status = data["status"]
        return cls(
            data["gepipe"],
            data["output"],
            status,
            inputs,
            (first, last),
            data["pipeline"],
            sizes,
            unit,
            items,
        )


def _pair(data: Mapping[str, Any], name: str) -> tuple[Any, Any]:
    pair = data[name]
    if not isinstance(pair, list) or len(pair) != 2:
        raise TypeError(f"{name} is {pair!r}; expected two numbers")
    return pair[0], pair[1]


def gepipe_version() -> str:
    """Return the installed version of gepipe."""
    try:
        return version("gepipe")
    except PackageNotFoundError:
        return "unknown"


def _cannot_write(path: Path, error: OSError) -> GepipeError:
    return GepipeError(f"cannot write {str(path)!r}: {reason_of(error)}")
