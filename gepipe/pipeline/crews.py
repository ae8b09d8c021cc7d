"""Puts a pipeline's stages into the terms of the runtime."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gepipe.errors import ConfigError
from gepipe.io.original import Original, takes_origin
from gepipe.ops.plan import plan_post, plan_pre
from gepipe.pipeline.bodies import InferBody, PostBody, PreBody
from gepipe.runtime.options import Crew

if TYPE_CHECKING:
    from gepipe.io.source import Reader
    from gepipe.pipeline.startplan import StartPlan
    from gepipe.runtime.events import Role
    from gepipe.spec.model import PipelineSpec


def make_crews(
    spec: PipelineSpec, start: StartPlan, reader: Reader, encode: Callable[..., bytes]
) -> dict[Role, Crew]:
    """Return the workers of each role.

    Args:
        spec: The pipeline.
        start: How many workers, and with which engine.
        reader: Reads the source's payloads in the pre workers.
        encode: Makes a record of a result in the post workers; of a result and its `Origin` if it
            has `takes_origin` set.

    Raises:
        ConfigError: An operator cannot be sent to another process.
    """
    twice = takes_origin(encode)
    original = Original.of(reader, spec.pre.ops) if twice else None
    pre = PreBody(reader, plan_pre(spec.pre.ops), keep=twice)
    post = PostBody(plan_post(spec.post.ops), encode, spec.infer.nan, original)
    ordered = any(op.ordered for op in spec.post.ops)
    return {
        "pre": Crew(
            spec.pre.name, [pickled(pre, spec.pre.name)] * start.pre_workers, spec.pre.timeout
        ),
        "infer": Crew(
            spec.infer.name,
            [
                pickled(InferBody(start.engine, start.model, options), spec.infer.name)
                for options in start.engines
            ],
            start.timeout_s or math.inf,
            # Sessions on the CPU compete with what else has to start; one is enough to begin with.
            1 if start.on_cpu else len(start.engines),
        ),
        "post": Crew(
            spec.post.name,
            [pickled(post, spec.post.name)] * (1 if ordered else start.post_workers),
            spec.post.timeout,
            ordered=ordered,
        ),
    }


def worker_environment() -> Mapping[str, str]:
    """Return the variables that workers must have as they are now.

    The fork server may have started before the caller set them.
    """
    prefixes = ("ASCEND", "GEPIPE", "NPU", "LD_LIBRARY_PATH", "PYTHONPATH", "HOME", "TMP")
    return {name: value for name, value in os.environ.items() if name.startswith(prefixes)}


def pickled(body: object, stage: str) -> bytes:
    """Return what a worker of `stage` is sent.

    Raises:
        ConfigError: It cannot be sent to another process.
    """
    import dill

    try:
        # With `recurse`, a function of the caller's script takes along only what it names.
        return bytes(dill.dumps(body, recurse=True))
    except Exception as error:
        raise ConfigError(
            f"{stage}: cannot be sent to a worker process: {type(error).__name__}: {error}; "
            "name functions of a module (`python: module:function`) and keep open files, locks "
            "and sessions out of them"
        ) from error
