"""The layout of one model: the whole pipeline, run by gepipe's own processes behind it."""

from __future__ import annotations

from pathlib import Path

from gepipe.serving.bundle import Files, make_bundle
from gepipe.serving.export_plan import ExportPlan
from gepipe.serving.layout_ensemble import comment_of, model_code, model_files, model_name_of
from gepipe.triton import config
from gepipe.triton.config import InstanceGroup, ModelConfig, config_text


def fused_files(plan: ExportPlan, version: int) -> tuple[Files, tuple[str, ...]]:
    """Return the files of the model, by their path in the repository, and modules needed."""
    pre = plan.spec.pre.model_copy(update={"batch_size": plan.batch})
    stages = (pre, *plan.spec.stages[1:])
    spec = plan.spec.model_copy(update={"stages": stages, "profile": plan.profile})
    folders = _folders(plan)
    names = {
        stage: f"{folders[model]}{model_name_of(model)}"
        for stage, model in plan.models.items()
        if model is not None
    }
    bundle = make_bundle(spec, names)
    folder = f"{plan.name}/{version}"
    files: Files = {
        f"{plan.name}/{config.FILE_NAME}": config_text(fused_config(plan)).encode(),
        f"{folder}/model.py": model_code(plan, "Fused", "gepipe.serving.fused"),
    }
    files |= {f"{folder}/{name}": data for name, data in bundle.files.items()}
    for model, its in folders.items():
        files |= {f"{folder}/{its}{name}": data for name, data in model_files(model).items()}
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


def _folders(plan: ExportPlan) -> dict[Path, str]:
    """Return where each model lies in the version folder: with others, in a folder of its own.

    What lies beside a model, such as weights, has a name that is given.
    """
    models = dict.fromkeys(model for model in plan.models.values() if model is not None)
    if len(models) == 1:
        return dict.fromkeys(models, "")
    return {model: f"model{number}/" for number, model in enumerate(models, 1)}
