"""What a served model counts, on the server's `/metrics`.

    gepipe_requests_total           requests, well answered or not
    gepipe_rows_total               rows executed
    gepipe_failures_total           requests that failed, by `kind`
    gepipe_device_busy_seconds_total    how long the device has worked
    gepipe_restarts_total           worker processes that were replaced
    gepipe_available                1, or 0 while the model is being opened again
    gepipe_open_requests            requests that were taken and are not answered yet
    gepipe_batch_rows               histogram: rows of an execution
    gepipe_wait_seconds             histogram: from the server's hand-over to the execution
    gepipe_execution_seconds        histogram: an execution, as the server's process sees it

Labels: model, device, instance. Where an instance works on several devices at once, executions are
counted for each, and requests, failures, restarts and availability once, with all of them as
`device`. How long requests queue before they are handed over is the
server's own `nv_inference_queue_duration_us`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

_ROWS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class _Executions(NamedTuple):
    """What is counted of one device."""

    rows: Any
    busy: Any
    batch: Any
    wait: Any
    execution: Any


class Metrics:
    """The metrics of one instance. An increment takes 16 microseconds, so there are few a batch."""

    def __init__(self, labels: Mapping[str, str], devices: Sequence[int]) -> None:
        """Begin at none.

        Args:
            labels: Labels of all of them, but for `device`.
            devices: The devices that the instance works on, each once.
        """
        self._labels = {**labels, "device": ",".join(map(str, devices))}
        self._families: dict[str, Any] = {}
        self._requests = self._counter("requests_total", "requests, well answered or not")
        self._restarts = self._counter("restarts_total", "worker processes that were replaced")
        self._available = self._metric("available", "whether the model is open", "GAUGE")
        self._failures: dict[str, Any] = {}
        self._devices = {each: self._executions(device=str(each)) for each in devices}

    def executed(
        self, device: int, rows: int, *, wait_s: float, took_s: float, busy_s: float
    ) -> None:
        """Count an execution on a device."""
        counts = self._devices[device]
        counts.rows.increment(rows)
        counts.busy.increment(busy_s)
        counts.batch.observe(rows)
        counts.wait.observe(wait_s)
        counts.execution.observe(took_s)

    def answered(self, requests: int, failures: Sequence[str]) -> None:
        """Count answers, and the kinds of those that are failures."""
        self._requests.increment(requests)
        for kind in failures:
            if kind not in self._failures:
                self._failures[kind] = self._metric(
                    "failures_total", "requests that failed, by kind", "COUNTER", kind=kind
                )
            self._failures[kind].increment(1)

    def replaced(self, processes: int) -> None:
        """Count processes that were replaced while the others went on."""
        if processes:
            self._restarts.increment(processes)

    def changed(self, is_open: bool) -> None:
        """Say that the process was lost, or that the model is open."""
        if not is_open:
            self._restarts.increment(1)
        self._available.set(int(is_open))

    def _executions(self, **labels: str) -> _Executions:
        return _Executions(
            self._counter("rows_total", "rows executed", **labels),
            self._counter("device_busy_seconds_total", "seconds the device has worked", **labels),
            self._histogram("batch_rows", "rows of an execution", _ROWS, **labels),
            self._histogram("wait_seconds", "from hand-over to execution", _SECONDS, **labels),
            self._histogram("execution_seconds", "of an execution", _SECONDS, **labels),
        )

    def _counter(self, name: str, text: str, **labels: str) -> Any:
        return self._metric(name, text, "COUNTER", **labels)

    def _histogram(self, name: str, text: str, buckets: Sequence[float], **labels: str) -> Any:
        return _kept(
            self._family(name, text, "HISTOGRAM").Metric(
                labels={**self._labels, **labels}, buckets=[float(each) for each in buckets]
            )
        )

    def _metric(self, name: str, text: str, type_: str, **labels: str) -> Any:
        return _kept(self._family(name, text, type_).Metric(labels={**self._labels, **labels}))

    def _family(self, name: str, text: str, type_: str) -> Any:
        if name not in self._families:
            self._families[name] = _new_family(name, text, type_)
        return self._families[name]


def labels_of(args: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of an instance; `args` is what the server hands to `initialize`."""
    return {"model": args["model_name"], "instance": args["model_instance_name"]}


class OpenRequests:
    """How many requests an instance has taken and not answered.

    The server does not count them where answers come later; whoever watches for hangs needs it.
    """

    def __init__(self, args: Mapping[str, str]) -> None:
        """Begin at none; `args` is what the server hands to `initialize`."""
        self._family = _new_family("open_requests", "requests taken and not answered", "GAUGE")
        self._metric = _kept(self._family.Metric(labels=labels_of(args)))
        self._told = 0
        self._metric.set(0)  # one that was killed may have left another number

    def tell(self, count: int) -> None:
        """Say how many there are."""
        if count != self._told:
            self._told = count
            self._metric.set(count)


def _new_family(name: str, text: str, type_: str) -> Any:
    import triton_python_backend_utils as pb_utils

    kind = getattr(pb_utils.MetricFamily, type_)
    return _kept(pb_utils.MetricFamily(name=f"gepipe_{name}", description=text, kind=kind))


def _kept(thing: Any) -> Any:
    """Return a family or a metric, which is never freed from now on.

    Freed, it is removed from the server. That ends the server when another instance counts there,
    as the new version of a model does that is replaced. And freed at the stub's end, it crashes the
    stub.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    return thing
