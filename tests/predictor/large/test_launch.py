"""The command lines of frameworks: they start what was predicted, or say why they cannot."""

from dataclasses import replace
from typing import Any

import pytest

from gpuyard.catalog.transformers import transformers
from gpuyard.hardware.clusters import read_cluster
from gpuyard.predictor.large.launch import LaunchLines, write_launch_lines
from gpuyard.predictor.large.prediction import predict_large
from gpuyard.predictor.large.search import Choices
from gpuyard.predictor.large.training import LargeTraining

ALL = {"torchtitan", "Megatron-LM", "DeepSpeed", "accelerate"}
FSDP: dict[str, Any] = {
    "strategy": "fsdp",
    "choices": Choices(zero=3, recompute=2, micro_batch=1, context=1),
}


def lines(
    model: str = "llama-3-8b", cluster: str = "2xdgx-h100", gpus: int = 16, **changes: Any
) -> LaunchLines:
    training = replace(LargeTraining(model, transformers().get(model).shape), **changes)
    (prediction,) = predict_large(training, read_cluster(cluster), [gpus]).predictions
    answer = write_launch_lines(prediction, training)
    assert set(answer.commands) | set(answer.left_out) == ALL
    return answer


@pytest.mark.parametrize(
    ("changes", "flags"),
    [
        (
            {"precision": "fp8"},
            {"torchtitan": "quantize.linear.float8", "accelerate": "--mixed_precision fp8"},
        ),
        ({"precision": "fp16"}, {"DeepSpeed": '"fp16"', "accelerate": "fp16"}),
        ({"lora_rank": 16}, {"accelerate": "--lora_r 16"}),
        ({"qlora_rank": 8}, {"accelerate": "--load_in_4bit"}),
        (
            {"offload": "parameters"},
            {"torchtitan": "enable_cpu_offload", "DeepSpeed": "offload_param", "accelerate": "--fsdp_offload_params true"},
        ),
        ({"offload": "optimizer"}, {"DeepSpeed": "offload_optimizer"}),
    ],
)  # fmt: skip
def test_fsdp_trains_what_was_predicted_or_is_left_out(
    changes: dict[str, Any], flags: dict[str, str]
) -> None:
    answer = lines(**{**FSDP, **changes})
    assert set(answer.commands) == set(flags)
    for name, flag in flags.items():
        assert flag in answer.commands[name]


def test_only_megatron_trains_in_four_bits() -> None:
    answer = lines(cluster="8xb200", gpus=8, strategy="megatron", precision="nvfp4")
    assert set(answer.commands) == {"Megatron-LM"}
    assert "--fp4-recipe nvfp4" in answer.commands["Megatron-LM"]


def test_smaller_groups_of_shards_are_passed_on() -> None:
    choices = replace(FSDP["choices"], shard=8)
    answer = lines(strategy="fsdp", choices=choices)
    assert "shard_degree 8" in answer.commands["torchtitan"]
    assert "replicate_degree 2" in answer.commands["torchtitan"]
    assert "dp_shard_size 8" in answer.commands["accelerate"]
    assert '"mics_shard_size": 8' in answer.commands["DeepSpeed"]


def test_experts_are_passed_on() -> None:
    choices = replace(FSDP["choices"], expert=8)
    answer = lines("mixtral-8x7b", "4xdgx-h100", 32, strategy="fsdp", choices=choices)
    assert "expert_parallel_degree 8" in answer.commands["torchtitan"]


@pytest.mark.parametrize(
    ("layers", "chunks", "text"),
    [(126, 8, "E|(t|)*126L"), (61, 1, "Ettt|(ttt|)*1(tttt|)*13tttL")],
)
def test_megatron_is_given_uneven_stages(layers: int, chunks: int, text: str) -> None:
    shape = transformers().get("llama-3-8b").shape.model_copy(update={"layers": layers})
    choices = Choices(tensor=8, pipeline=16, virtual_pipeline=chunks, context=1, recompute=2)
    answer = lines(
        cluster="16xdgx-h100", gpus=128, shape=shape, strategy="megatron", choices=choices
    )
    layout = answer.commands["Megatron-LM"].split('--pipeline-model-parallel-layout "')[1]
    assert layout.split('"')[0] == text


def test_zero_bubble_schedules_say_who_lacks_them() -> None:
    choices = Choices(tensor=1, pipeline=8, virtual_pipeline=1, context=1, zero_bubble=1)
    answer = lines(strategy="megatron", choices=choices)
    assert not answer.commands
    assert "zero-bubble" in answer.left_out["Megatron-LM"]
