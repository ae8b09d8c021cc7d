"""The job file: what a run was asked to do, so that another run can go on with it."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Literal

from gepipe.errors import ConfigError, GepipeError
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
    """

    gepipe: str
    output: str
    status: Status
    inputs: Inputs | None
    span: tuple[int, int | None] = (0, None)
    pipeline: Mapping[str, Any] = field(default_factory=dict)
    sizes: tuple[int, int] | None = None

    def stored_pipeline(self) -> Any:
        """Return the pipeline as `load` will give it back."""
        return json.loads(json.dumps(self.pipeline, default=str))

    def count_text(self) -> str:
        """Return the number of inputs for people."""
        return "?" if self.inputs is None else f"{self.inputs.count:,}"

    def save(self, path: Path) -> None:
        """Write the job file; after a crash there is the old one or the new one, never half.

        Raises:
            GepipeError: The folder cannot be written.
        """
        text = json.dumps(asdict(self), ensure_ascii=True, indent=1, default=str)
        try:
            fd, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        except OSError as error:
            raise _cannot_write(path, error) from error
        try:
            with os.fdopen(fd, "w", encoding="ascii") as file:
                file.write(text + "\n")
                file.flush()
                os.fchmod(fd, 0o666 & ~_umask())
                os.fsync(fd)
            os.replace(name, path)  # noqa: PTH105 - `name` is text
        except OSError as error:
            with suppress(OSError):
                os.unlink(name)  # noqa: PTH108
            raise _cannot_write(path, error) from error

    @classmethod
    def load(cls, path: Path) -> Job | None:
        """Read a job file; None if there is none.

        Raises:
            ConfigError: The file is not a job file.
        """
        try:
            data = json.loads(path.read_bytes())
            inputs = Inputs(**data["inputs"]) if data["inputs"] else None
            first, last = data["span"]
            sizes = data["sizes"]
            if inputs is not None and not isinstance(inputs.count, int):
                raise TypeError(f"count is {inputs.count!r}")
            return cls(
                data["gepipe"],
                data["output"],
                data["status"],
                inputs,
                (first, last),
                data["pipeline"],
                tuple(sizes) if sizes else None,
            )
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from error
        except (ValueError, TypeError, KeyError) as error:
            raise ConfigError(
                f"{str(path)!r} is not a job file of gepipe: {error}; run without --resume to "
                "start anew"
            ) from error


def gepipe_version() -> str:
    """Return the installed version of gepipe."""
    try:
        return version("gepipe")
    except PackageNotFoundError:
        return "unknown"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _cannot_write(path: Path, error: OSError) -> GepipeError:
    return GepipeError(f"cannot write {str(path)!r}: {(error.strerror or str(error)).lower()}")
