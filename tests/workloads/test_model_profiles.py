"""The profiles in the catalog are current and complete."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from gpuyard.catalog.models import models
from gpuyard.errors import UnknownName
from gpuyard.workloads.zoo import MODELS


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = Path(__file__).parents[2] / "scripts" / "profile_models.py"
    spec = importlib.util.spec_from_file_location("profile_models", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_built_in_model_has_a_profile() -> None:
    assert models().ids() == list(MODELS)


@pytest.mark.parametrize(
    "model", ["alexnet", "resnet18", "bert-base", "spoken-digits-linear", "spoken-digits-conv"]
)
def test_the_profiler_reproduces_the_profile(script: ModuleType, model: str) -> None:
    assert models().get(model) == script.profile_model(model)


def test_gradients_and_flops_of_all_layers_add_up() -> None:
    for profile in models():
        assert profile.gradient_bytes == 4 * profile.parameters, profile.id
        assert sum(layer.forward_flops for layer in profile.layers) == profile.forward_flops
        assert profile.activation_bytes > profile.input_bytes / 4


def test_a_misspelled_model_gets_the_closest_name() -> None:
    with pytest.raises(UnknownName, match="did you mean 'resnet50'"):
        models().get("resnet-50")
