"""Whether a model fits into the memory of its devices, before anything is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gepipe.pipeline.plan import StartPlan
    from gepipe.spec.model import PipelineSpec


def device_memory(spec: PipelineSpec, start: StartPlan) -> tuple[str, ...]:
    """Say what the devices have free and what the model needs on each; for the engine `ge`.

    Args:
        spec: The pipeline as it is run.
        start: Which devices it uses, and how often.

    Raises:
        BackendError: A device cannot be used.
        ModelLoadError: The model does not fit; the message has the sums.
    """
    if start.engine != "ge" or start.model is None:
        return ()
    from gepipe.engines.ge.placement import place, survey
    from gepipe.errors import BackendError

    found = survey([start.model], spec.infer.backend.options)
    states = {state.device: state for state in found.devices}
    need = found.needs.get(str(start.model), 0)
    used = [options.device for options in start.engines]
    notes = []
    for device in sorted(set(used)):
        state = states.get(device)
        if state is None or state.error:
            why = state.error if state is not None else _count(len(states))
            raise BackendError(f"{spec.infer.name}: device {device} cannot be used: {why}")
        count = used.count(device)
        place([(start.model.name, need)] * count, {device: state.free})
        notes.append(
            f"device {device}: {count} x {need / 2**20:.1f} MiB of {state.free / 2**30:.2f} GiB "
            "free memory"
        )
    return tuple(notes)


def _count(devices: int) -> str:
    return "there is only one" if devices == 1 else f"there are {devices}"
