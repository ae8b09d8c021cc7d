"""A pipeline in the form that its engine runs: for `ge`, with its ONNX model converted."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gepipe.errors import ConfigError
from gepipe.ops.parts import Splitter
from gepipe.ops.plan import plan_pre
from gepipe.pipeline.plan import engine_of
from gepipe.spec.settled import settle, wished_batch

if TYPE_CHECKING:
    from gepipe.spec.model import PipelineSpec

log = logging.getLogger(__name__)

#: Batch sizes that an ONNX model is converted for where the YAML names neither gears nor a batch:
#: the last batch, which is not full, is padded to the smallest that holds it.
_GEARS: Final = (1, 4, 8)


def prepare(spec: PipelineSpec) -> PipelineSpec:
    """Return the pipeline as it is run, with what its profile says.

    With the engine `ge`, an ONNX model is converted once and kept; one that takes any size, for a
    few sizes, to which pre then pads its pictures. With its option `aipp: true`,
    the normalize and to_tensor operators at the end of pre become part of the model, which then
    takes 8-bit pixels: a quarter of the bytes go to the card.

    Raises:
        ConfigError: The conversion's tool is missing, or an option does not fit the model.
        ModelLoadError: The model cannot be converted.
        BackendError: There is no NPU to run it on.
    """
    spec = settle(spec)
    infer = spec.infer
    if infer.model is None or engine_of(spec) != "ge" or not infer.model.is_file():
        return spec
    from gepipe.engines.ge import library
    from gepipe.engines.ge.pinned import parse_pinned
    from gepipe.engines.ge.placement import chip
    from gepipe.models.aipp import split_for_aipp
    from gepipe.models.convert import ensure_om
    from gepipe.models.kind import kind_of
    from gepipe.models.options import ConvertOptions
    from gepipe.pipeline.buckets import bucketed

    extra = dict(infer.backend.options)
    aipp = extra.pop("aipp", False)
    if not isinstance(aipp, bool):
        raise ConfigError(f"ge: aipp: expected true or false, got {aipp!r}")
    model, is_onnx = infer.model, kind_of(infer.model)[0] == "onnx"
    if is_onnx and not extra.get("shapes"):
        spec = bucketed(spec)
    pre, batch = spec.pre, wished_batch(spec) or spec.pre.batch_size
    split = split_for_aipp(pre.ops) if aipp else None
    if is_onnx:
        program = plan_pre(pre.ops)
        made, variants = program.output_specs(), program.variants()
        several = variants is not None and variants.complete and len(variants.specs) > 1
        # Pictures of several sizes go through the model one by one, parts of them in batches.
        alone = several and not isinstance(pre.ops[0], Splitter)
        default_gears = _GEARS if batch == "auto" else tuple(sorted({1, batch}))
        emulated = library.wants_emulator(extra.get("device", "auto"))
        options = ConvertOptions(
            soc="emulator" if emulated else chip(extra),  # without ACL, minutes of atc are in vain
            gears=infer.gears,
            default_gears=(1,) if alone else default_gears,
            rows=tuple(parse_pinned(extra.get("shapes")).rows.items()),
            row=made.shape if made is not None and made.is_static else (),
            choices=tuple(its.shape for its in variants.specs) if variants and several else (),
            precision=infer.precision,
            aipp=split.aipp if split is not None else None,
        )
        model = ensure_om(model, options, say=_say)
    if split is not None:
        pre = pre.model_copy(update={"ops": split.ops})
    backend = replace(infer.backend, options=extra)
    changed = {
        spec.pre.name: pre,
        infer.name: infer.model_copy(update={"model": model, "backend": backend}),
    }
    stages = tuple(changed.get(stage.name, stage) for stage in spec.stages)
    return spec.model_copy(update={"stages": stages})


def _say(text: str) -> None:
    """Tell what takes long to whoever sees warnings, as the command line does; it is none."""
    log.warning("%s", text, extra={"word": "note"})
