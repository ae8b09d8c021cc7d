"""The layout of one model: the whole pipeline, run by gepipe's own processes behind it."""

from __future__ import annotations

from gepipe.serving.bundle import Files, make_bundle
from gepipe.serving.export_plan import ExportPlan
from gepipe.serving.layout_ensemble import comment_of, model_code, model_files, model_name_of
from gepipe.triton import config
from gepipe.triton.config import InstanceGroup, ModelConfig, config_text


def fused_files(plan: ExportPlan, version: int) -> tuple[Files, tuple[str, ...]]:
    """Return the files of the model, by their path in the repository, and modules needed."""
    model = plan.start.model
    pre = plan.spec.pre.model_copy(update={"batch_size": plan.batch})
    stages = tuple(pre if stage.role == "pre" else stage for stage in plan.spec.stages)
    spec = plan.spec.model_copy(update={"stages": stages, "profile": plan.profile})
    bundle = make_bundle(spec, model_name_of(model) if model is not None else None)
    folder = f"{plan.name}/{version}"
    files: Files = {
        f"{plan.name}/{config.FILE_NAME}": config_text(fused_config(plan)).encode(),
        f"{folder}/model.py": model_code(plan, "Fused", "gepipe.serving.fused"),
    }
    for name, data in {**bundle.files, **model_files(plan)}.items():
        files[f"{folder}/{name}"] = data
    return files, bundle.modules


def fused_config(plan: ExportPlan) -> ModelConfig:
    """Return the configuration of the model.

    There is no batcher: the model takes each request at once, answers it later, and merges, bounds
    and prioritises by itself.
    """
    return ModelConfig(
        plan.batch,
        [plan.given],
        [plan.made],
        backend="python",
        instances=InstanceGroup("KIND_CPU", 1),
        comment=comment_of(plan),
    )
