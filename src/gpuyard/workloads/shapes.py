"""Find the shape of a workload's transformer: in the spec, in a `config.json`, or in the catalog."""

from pathlib import Path

from gpuyard.catalog.models import models
from gpuyard.catalog.transformers import transformers
from gpuyard.specs import Workload
from gpuyard.specs.transformer import TransformerShape
from gpuyard.workloads.hugging_face import read_hugging_face_config


def find_shape(workload: Workload) -> TransformerShape | None:
    """Return the shape, or None if the model is not a transformer that gpuyard knows by shape."""
    model = workload.model
    if not isinstance(model, str):
        return model
    if model.endswith(".json"):
        directory = workload.file.parent if workload.file else Path()
        return read_hugging_face_config(directory / model)
    return transformers().get(model).shape if model in transformers() else None


def has_profile(workload: Workload) -> bool:
    """Return whether gpuyard can profile the model layer by layer, as data-parallel predictions need."""
    model = workload.model
    if not isinstance(model, str) or model.endswith(".json"):
        return False
    return model in models() or model not in transformers()


def advise_sharding(workload: Workload) -> str:
    """Return how to divide the model among GPUs, as a clause; empty if it is no transformer."""
    if find_shape(workload) is not None:
        return "to divide the model among GPUs, use gpuyard predict --strategy auto"
    if ":" in workload.model_name:
        return "to divide a transformer among GPUs, give its shape as 'model'"
    return ""


def needs_layout(workload: Workload, strategy: str | None, options_named: bool) -> bool:
    """Return whether a prediction needs a parallel layout: asked for, or the only way to know the model."""
    asked = options_named or strategy in ("fsdp", "megatron", "auto")
    return asked or workload.parallel is not None or not has_profile(workload)
