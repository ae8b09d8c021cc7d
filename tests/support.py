"""What the tests of the runtime share: waiting, tiny stage bodies, tiny models and pictures.

Workers import this module to find the bodies, so it imports nothing heavy at its top.
"""

from __future__ import annotations

import math
import os
import resource
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gepipe.errors import ItemError
from gepipe.io.source import Entry
from gepipe.tensors import TensorSpec

if TYPE_CHECKING:
    from gepipe.runtime.options import Crew, RunOptions
    from gepipe.runtime.supervisor import Supervisor

ROOT = Path(__file__).parent.parent
ROLES = ("pre", "infer", "post")
WIDTH = 64


# --- waiting and looking --------------------------------------------------------------------------


def pause(seconds: float) -> None:
    """Do nothing for a while: what a slow stage does, or a test that needs a stage to be busy."""
    threading.Event().wait(seconds)


def wait_until(
    predicate: Callable[[], Any], deadline_s: float = 60.0, *, else_raise: bool = True
) -> Any:
    """Return the predicate's first true value; fail when it stays false until the deadline.

    The deadline only ends a test that fails: it is one that a slow and busy machine keeps, too.
    """
    end = time.monotonic() + deadline_s
    while not (value := predicate()):
        if time.monotonic() > end:
            if else_raise:
                raise AssertionError(f"not within {deadline_s} s: {predicate}")
            break
        pause(0.01)
    return value


def children_of(pid: int) -> set[int]:
    """Return the direct children of a process."""
    found: set[int] = set()
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                text = (task / "children").read_text()
                found |= {int(child) for child in text.split()}
    return found


def family_of(pid: int) -> set[int]:
    """Return a process and everything below it."""
    family, new = {pid}, {pid}
    while new:
        new = {child for each in new for child in children_of(each)} - family
        family |= new
    return family


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that ended and was not collected yet does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


# --- tiny stages for the runtime ------------------------------------------------------------------
# An item is a number. pre writes a row that repeats it, infer doubles the row and adds one, post
# checks that the row is whole and says what it is.

INPUT = TensorSpec("x", "float64", (WIDTH,))
OUTPUT = TensorSpec("y", "float64", (WIDTH,))


def payload(number: int, size: int = 0) -> bytes:
    return struct.pack("<q", number) + bytes(size)


def entries(numbers: Sequence[int], size: int = 0) -> list[Entry]:
    return [Entry(f"item {number}", payload(number, size)) for number in numbers]


def record(number: int) -> bytes:
    return b"%d" % (2 * number + 1)


def die(way: str) -> None:
    """End, stop or fail in one of the ways in which a stage can."""
    if way == "raise":
        raise ValueError("on purpose")
    if way == "memory":
        raise MemoryError
    if way == "rlimit":
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (1 << 20, hard))
        try:
            bytearray(1 << 30)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    if way == "exit 0":
        os._exit(0)
    if way == "with the server":
        os.kill(os.getppid(), signal.SIGKILL)
        pause(600)
    if way == "hang":
        pause(600)
    if way == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
        return
    signal.signal(signal.SIGSEGV, signal.SIG_DFL) if way == "SIGSEGV" else None
    os.kill(os.getpid(), getattr(signal, way))
    pause(600)


@dataclass(frozen=True)
class Fate:
    """Something bad that happens in a stage.

    Attributes:
        role: In which stage.
        moment: start, setup, mid-write, between, stop.
        way: See `die`.
        folder: Where it is noted how often it happened.
        number: The item it happens on; -1 for any.
        times: How often it happens.
    """

    role: str
    moment: str
    way: str
    folder: str
    number: int = -1
    times: int = 1

    def strike(self, role: str, moment: str, numbers: Sequence[int] = ()) -> None:
        """Happen, if this is the place and it has not happened often enough."""
        if (role, moment) != (self.role, self.moment):
            return
        if self.number >= 0 and self.number not in numbers:
            return
        for time_ in range(self.times):
            with suppress(FileExistsError):
                name = f"{self.role}-{self.moment}-{self.way}-{self.number}-{time_}"
                os.close(os.open(f"{self.folder}/{name}", os.O_CREAT | os.O_EXCL))
                die(self.way)
                return


@dataclass
class _Body:
    """What the tiny stages have in common.

    Attributes:
        fates: Bad things to come.
        delay_s: For every item: how long it takes, or (low, high) for a pseudo-random time.
    """

    fates: tuple[Fate, ...] = ()
    delay_s: float | tuple[float, float] = 0.0
    role = ""
    _soon = None

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.strike("start")

    def strike(self, moment: str, numbers: Sequence[int] = ()) -> None:
        for fate in self.fates:
            fate.strike(self.role, moment, numbers)

    def setup(self) -> Any:
        self.strike("setup")

    def strike_soon(self, numbers: Sequence[int]) -> None:
        """Strike from another thread in a moment, when the stage has returned from its item."""
        if any(fate.moment == "between" for fate in self.fates):
            self._soon = threading.Timer(0.002, self.strike, ("between", numbers))
            self._soon.daemon = True
            self._soon.start()

    def work(self, number: int) -> None:
        if self._soon is not None:
            self._soon.join()  # or a busy machine might do all items before it strikes
        if isinstance(self.delay_s, tuple):
            low, high = self.delay_s
            pause(low + (high - low) * (hash((number, self.role)) % 97) / 97)
        elif self.delay_s:
            pause(self.delay_s)


@dataclass
class Write(_Body):
    role = "pre"
    faults: Mapping[int, tuple[str, str]] = field(default_factory=dict)

    def write(self, payload: bytes, rows: Mapping[str, Any]) -> bytes:
        (number,) = struct.unpack_from("<q", payload)
        row = rows["x"]
        row[: WIDTH // 2] = number
        if number in self.faults:
            raise ItemError(*self.faults[number])
        self.work(number)
        self.strike("mid-write", [number])
        row[WIDTH // 2 :] = number
        self.strike_soon([number])
        return b"meta of %d" % number


@dataclass
class Infer(_Body):
    role = "infer"
    in_flight: int = 1
    fail_on: int = -1
    gears: tuple[int, ...] = ()

    def setup(self) -> Any:
        from gepipe.runtime.body import ModelInfo

        self.strike("setup")
        return ModelInfo((INPUT,), (OUTPUT,), self.gears)

    def submit(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any], count: int) -> Any:  # noqa: ARG002
        if self.in_flight == 1:
            self._execute(inputs["x"], outputs["y"])
            return None
        return inputs["x"], outputs["y"]

    def _execute(self, x: Any, y: Any) -> None:
        numbers = [int(row[0]) for row in x]
        y[:, : WIDTH // 2] = 2 * x[:, : WIDTH // 2] + 1
        self.work(numbers[0])
        if self.fail_on in numbers:
            raise RuntimeError(f"the model refuses {self.fail_on}")
        self.strike("mid-write", numbers)
        y[:, WIDTH // 2 :] = 2 * x[:, WIDTH // 2 :] + 1
        self.strike_soon(numbers)

    def collect(self, pending: Any) -> None:
        if pending is not None:
            self._execute(*pending)

    def close(self) -> None:
        self.strike("stop")


@dataclass
class Read(_Body):
    role = "post"
    size: int = 0

    def read(self, rows: Mapping[str, Any], meta: bytes) -> bytes:
        row = rows["y"]
        number = (int(row[0]) - 1) // 2
        self.work(number)
        self.strike("mid-write", [number])
        if not (row == 2 * number + 1).all() or meta != b"meta of %d" % number:
            raise AssertionError(f"torn row of {number}: {row}, {meta!r}")
        self.strike_soon([number])
        return record(number) + bytes(self.size)


def crew(body: Any, workers: int = 1, timeout_s: float = math.inf, **more: Any) -> Crew:
    import dill

    from gepipe.runtime.options import Crew

    return Crew(f"stage {body.role}", [dill.dumps(body)] * workers, timeout_s, **more)


def supervisor(
    pre: Any = None,
    infer: Any = None,
    post: Any = None,
    *,
    workers: tuple[int, int, int] = (1, 1, 1),
    batch: int = 4,
    depth: int = 2,
    timeout_s: float = math.inf,
    options: RunOptions | None = None,
    ordered: bool = False,
) -> Supervisor:
    """Return a supervisor of tiny stages."""
    from gepipe.runtime.memory import SlotLayout
    from gepipe.runtime.options import RunOptions, SlotPlan
    from gepipe.runtime.supervisor import Supervisor

    bodies = (pre or Write(), infer or Infer(), post or Read())
    crews = {
        role: crew(body, count, timeout_s, ordered=ordered and role == "post")
        for role, body, count in zip(ROLES, bodies, workers, strict=True)
    }
    return Supervisor(
        crews,  # type: ignore[arg-type]
        lambda info: SlotPlan(
            SlotLayout.of(info.inputs, batch), SlotLayout.of(info.outputs, batch), depth
        ),
        options or RunOptions(start_timeout_s=20),
    )


def listed(items: Sequence[Entry], first: int = 0, **more: Any) -> Callable[[int], Any]:
    """Return what starts a run over items that are all there."""
    from gepipe.runtime.feed import ListedFeed
    from gepipe.runtime.options import Start

    return lambda _: Start(ListedFeed(iter(items), len(items)), first, **more)


def streamed(
    subject: Supervisor, source: Iterable[Entry], emit: Callable[[Any], None], *, ahead: int = 8
) -> Any:
    """Run a supervisor over a generator; return the statistics."""
    from gepipe.runtime.feed import ThreadedFeed
    from gepipe.runtime.options import Start

    feed = ThreadedFeed(source, ahead=ahead)
    try:
        return subject.run(lambda _: Start(feed), emit)
    finally:
        feed.close()


def outcomes_of(subject: Supervisor, items: Sequence[Entry], **more: Any) -> tuple[list[Any], Any]:
    """Run items through a supervisor; return outcomes and statistics."""
    outcomes: list[Any] = []
    statistics = subject.run(listed(items, **more), outcomes.extend)
    return outcomes, statistics


def undisturbed(numbers: Sequence[int]) -> list[tuple[int, str, bytes]]:
    """Return the records of a run in which nothing happens."""
    return [(at, f"item {number}", record(number)) for at, number in enumerate(numbers)]


def leave_soon(_: Any, status: int) -> None:
    """End this process, which is a child; its end of a channel is not needed."""
    pause(0.05)
    os._exit(status)


def server_ready() -> None:
    """Have the fork server up, so that the limit of a start is not spent on what it imports."""
    from gepipe.runtime.forkserver import start_server
    from gepipe.runtime.process import ChildProcess

    start_server()
    ChildProcess("first", leave_soon, (0,)).reap()


def workers_of(subject: Supervisor, role: str = "", *, attached: bool = False) -> list[int]:
    """Return the pids of a supervisor's workers.

    Args:
        subject: The supervisor.
        role: Only those of this role.
        attached: Only those that are set up and have their memory.
    """
    pids = []
    workforce = subject._workforce
    for worker, process in list(workforce._processes.items()):
        if role in ("", worker.role) and (worker in workforce.attached or not attached):
            with suppress(ValueError):  # it has just been replaced
                pids.append(process.process.pid)
    return pids


# --- tiny models ----------------------------------------------------------------------------------


def onnx_model(
    path: Path,
    nodes: Sequence[tuple[str, Sequence[str], Sequence[str], Mapping[str, Any]]],
    inputs: Mapping[str, tuple[str, Sequence[Any]]],
    outputs: Mapping[str, tuple[str, Sequence[Any] | None]],
    constants: Mapping[str, Any] | None = None,
) -> Path:
    """Write an ONNX model of a few nodes.

    Args:
        path: Where to.
        nodes: (operator, inputs, outputs, attributes).
        inputs: Name to (dtype, shape); a text in a shape is a dynamic axis.
        outputs: Likewise; a shape of None declares nothing.
        constants: Name to array.
    """
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper

    def value(name: str, dtype: str, shape: Any) -> Any:
        code = (
            onnx.TensorProto.STRING
            if dtype == "string"
            else onnx.TensorProto.BFLOAT16
            if dtype == "bfloat16"
            else helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        )
        return helper.make_tensor_value_info(name, code, shape)

    graph = helper.make_graph(
        [helper.make_node(op, list(ins), list(outs), **attrs) for op, ins, outs, attrs in nodes],
        "tiny",
        [value(name, *spec) for name, spec in inputs.items()],
        [value(name, *spec) for name, spec in outputs.items()],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()],
    )
    sets = {"": 17} | {attrs["domain"]: 3 for _, _, _, attrs in nodes if "domain" in attrs}
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid(*each) for each in sets.items()]
    )
    model.ir_version = 8
    onnx.save(model, str(path))
    return path


def doubling_model(path: Path, batch: int | str = "n", *, dtype: str = "float32") -> Path:
    """Write a model y = 2 x + 1 over rows of four."""
    import numpy as np

    return onnx_model(
        path,
        [("Mul", ["x", "two"], ["t"], {}), ("Add", ["t", "one"], ["y"], {})],
        {"x": (dtype, [batch, 4])},
        {"y": (dtype, [batch, 4])},
        {"two": np.array(2, dtype), "one": np.array(1, dtype)},
    )


def log_model(path: Path) -> Path:
    """Write a model y = log x over rows of four: NaN where x is negative."""
    return onnx_model(
        path,
        [("Log", ["x"], ["y"], {})],
        {"x": ("float32", ["n", 4])},
        {"y": ("float32", ["n", 4])},
    )


def jpeg(height: int = 48, width: int = 64, seed: int = 0) -> bytes:
    """Return the bytes of a smooth JPEG."""
    import cv2
    import numpy as np

    coarse = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), np.uint8)
    image = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_LINEAR)
    return cv2.imencode(".jpg", image)[1].tobytes()


# --- scripts --------------------------------------------------------------------------------------


def script_environment(**extra: str) -> dict[str, str]:
    """Return the environment of a script that imports gepipe and this module."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **extra}


def python(path: Path) -> list[str]:
    return [sys.executable, str(path)]


def numbers_of(lines: Iterator[str]) -> list[int]:
    return [int(line) for line in lines]
