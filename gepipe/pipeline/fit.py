"""Which devices have room for a model, before anything is loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gepipe.errors import BackendError, ModelLoadError

if TYPE_CHECKING:
    from pathlib import Path

    from gepipe.pipeline.startplan import StartPlan
    from gepipe.spec.model import PipelineSpec


def fit_devices(
    spec: PipelineSpec, model: Path, devices: Sequence[int], instances: int
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Compare what devices have free with what a model needs there; for the engine `ge`.

    Args:
        spec: The pipeline as it is run.
        model: The model file.
        devices: Those to use; with `devices: auto`, those that could be.
        instances: How often the model is opened on each.

    Returns:
        The devices to use, with `devices: auto` only those with room, and what to tell the user.

    Raises:
        BackendError: ACL, or a device that the YAML names, cannot be used.
        ModelLoadError: The model does not fit; the message has the sums.
    """
    from gepipe.engines.ge.placement import place, survey

    infer = spec.infer
    found = survey([model], infer.backend.options)
    states = {state.device: state for state in found.devices}
    need = found.needs.get(str(model), 0)
    fitting: list[int] = []
    notes: list[str] = []
    left_out: list[str] = []
    for device, times in sorted(Counter(devices).items()):
        state, count = states.get(device), times * instances
        if state is None or state.error:
            seen = "there is only one" if len(states) == 1 else f"there are {len(states)}"
            why = f"device {device} cannot be used: {state.error if state else seen}"
            refusal = BackendError(f"{infer.name}: {why}")
        else:
            sums = f"{count} x {need / 2**20:.1f} MiB of {state.free / 2**30:.2f} GiB free memory"
            try:
                place([(model.name, need)] * count, {device: state.free})
            except ModelLoadError as error:
                why = f"device {device} has no room: {sums}"
                refusal = ModelLoadError(f"{infer.name}: device {device}: {error}")
            else:
                fitting += [device] * times
                notes.append(f"device {device}: {sums}")
                continue
        if infer.devices != "auto":
            raise refusal
        left_out.append(why)
    if not fitting:
        raise ModelLoadError(
            f"{infer.name}: {model.name} fits on no device: {'; '.join(left_out)}; use fewer "
            "instances, or convert the model with smaller gears"
        )
    return tuple(fitting), (*notes, *(f"left out: {why}" for why in left_out))


def require_room_together(legs: Sequence[PipelineSpec], starts: Sequence[StartPlan]) -> None:
    """Check that the models of a chain fit into the devices that they share; for the engine `ge`.

    Args:
        legs: The legs of the chain, as they are run.
        starts: How each starts.

    Raises:
        BackendError: ACL cannot be used.
        ModelLoadError: They do not fit; the message has the sums.
    """
    from gepipe.engines.ge.placement import place, survey

    wanted: dict[int, list[Path]] = {}
    for start in starts:
        if start.engine == "ge" and start.model is not None:
            for options in start.engines:
                wanted.setdefault(options.device, []).append(start.model)
    models = list(dict.fromkeys(model for its in wanted.values() for model in its))
    if len(models) < 2:
        return
    ge = next(leg for leg, start in zip(legs, starts, strict=True) if start.engine == "ge")
    found = survey(models, ge.infer.backend.options)
    free = {state.device: state.free for state in found.devices if not state.error}
    for device, its in sorted(wanted.items()):
        if len(set(its)) > 1 and device in free:
            needs = [(model.name, found.needs.get(str(model), 0)) for model in its]
            try:
                place(needs, {device: free[device]})
            except ModelLoadError as error:
                names = ", ".join(leg.infer.name for leg in legs)
                raise ModelLoadError(f"{names} on device {device}: {error}") from error
