"""EfficientNet-Lite0 on the CPU, on the same 720p photos: gepipe against hand-written loops.

Without an accelerator the processors do everything, so the best loop wastes none of their time.
"""

from __future__ import annotations

import zlib
from typing import Any

import harness
import media
from harness import Figure

NAME = "real_inference"
PHOTOS = 512
_LOOPS: dict[str, tuple[str, dict[str, Any]]] = {
    "2 threads do all, fused pre": ("whole_threads", {"batch": 1}),
    "2 threads do all, fused pre, batch 8": ("whole_threads", {"batch": 8}),
    "2 threads do all, one session": ("whole_threads", {"batch": 1, "shared": True}),
    "2 processes do all, fused pre": ("whole_processes", {}),
    "pre thread + session of 2 threads": ("ahead", {"batch": 8, "fused": True}),
    "pre thread + session of 2 threads, plain pre": ("ahead", {"batch": 8, "fused": False}),
    "plain serial loop": ("simple", {}),
}
_GEPIPE: dict[str, tuple[str, ...]] = {
    "gepipe": (),
    "gepipe 2 pre workers, batch 4": ("preprocess.threads=2", "preprocess.batch_size=4"),
    "gepipe 2 pre workers, 2 instances, batch 2": (
        "preprocess.threads=2",
        "preprocess.batch_size=2",
        "inference.instances=2",
        "depth=6",
    ),
}
_PIPELINE = """
stages:
  - name: preprocess
    ops:
      - decode_image: {color: rgb}
      - resize: {short_side: 256}
      - center_crop: {size: [224, 224]}
      - normalize: {mean: 127, std: 128}
      - to_tensor: {layout: nchw}
  - {name: inference, model: samples/models/efficientnet_lite0.onnx}
  - {name: postprocess, ops: [top_k: 5]}
"""


def trial(variant: str, photos: int = PHOTOS) -> dict[str, float]:
    """Measure one variant, from workers ready to the last result."""
    paths = media.jpegs(2048)[:photos]
    if variant in _LOOPS:
        import onnx_loops
        from loops import timed

        function, options = _LOOPS[variant]
        results, seconds = timed(getattr(onnx_loops, function)(paths, **options))
        return {"rate": len(results) / seconds, "answer": _answer(results)}
    import time

    from gepipe.pipeline.pipeline import Pipeline
    from gepipe.spec.load import loads

    with Pipeline(loads(_PIPELINE, overrides=_GEPIPE.get(variant, variant.split()))) as pipeline:
        for _ in pipeline.run(paths[:32]):
            pass
        begin = time.perf_counter()
        values = [result.value for result in pipeline.run(paths)]
        seconds = time.perf_counter() - begin
        stages = pipeline.statistics().stages  # type: ignore[union-attr]
    results = [[entry["class"] for entry in value["top_k"]] for value in values]
    return {
        "rate": len(results) / seconds,
        "answer": _answer(results),
        **{f"{role}_busy": stage.utilisation for role, stage in stages.items()},
    }


def _answer(results: list[Any]) -> float:
    return zlib.crc32(repr([row[0] for row in results]).encode())


def measure(rounds: int, photos: int = PHOTOS) -> list[Figure]:
    """Measure all variants."""
    media.jpegs(2048)
    results = harness.interleave(NAME, [*_GEPIPE, *_LOOPS], rounds, photos=photos)
    rates = {name: harness.medians(run)["rate"] for name, run in results.items()}
    loop = max(_LOOPS, key=rates.__getitem__)
    ours = max(_GEPIPE, key=rates.__getitem__)
    details = {
        "photos": photos,
        "rates": rates,
        "lowest_highest": {name: harness.spread(run) for name, run in results.items()},
        "best_loop": loop,
        "best_gepipe": ours,
    }
    default = harness.ratio(results["gepipe"], results[loop])
    best = harness.ratio(results[ours], results[loop])
    return [
        Figure(NAME, f"real inference / best loop ({loop})", default, 1.0, True, details),
        Figure(NAME, f"… {ours} / best loop", best),
    ]
