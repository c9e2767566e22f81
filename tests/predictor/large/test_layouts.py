"""Predictions of large models: what must be monotonic, add up, or be refused."""

from dataclasses import replace

import numpy as np
import pytest

from gpuyard.catalog.transformers import transformers
from gpuyard.errors import UserMistake
from gpuyard.hardware.clusters import read_cluster
from gpuyard.predictor.large.evaluation import Evaluation, evaluate
from gpuyard.predictor.large.interval import correction_weight
from gpuyard.predictor.large.layout import Layout
from gpuyard.predictor.large.prediction import predict_large
from gpuyard.predictor.large.search import Choices
from gpuyard.predictor.large.training import LargeTraining, MeasuredLayout
from gpuyard.specs.parallel import LargeStrategy, Offload
from gpuyard.specs.transformer import TransformerShape

LLAMA = LargeTraining("llama-3-8b", transformers().get("llama-3-8b").shape)
MIXTRAL = LargeTraining("mixtral-8x7b", transformers().get("mixtral-8x7b").shape)
DGX = read_cluster("4xdgx-h100")


def test_parts_add_up_and_every_layout_uses_all_gpus() -> None:
    evaluation = evaluate(MIXTRAL, DGX, 32)
    batch, length = evaluation.layouts.global_batch, MIXTRAL.length
    assert np.allclose(batch * length / evaluation.step.total, evaluation.tokens_per_second)
    assert np.all(evaluation.layouts.gpus == 32)
    assert all((np.asarray(part) >= 0).all() for part in vars(evaluation.step).values())
    assert all((np.asarray(part) >= 0).all() for part in vars(evaluation.memory).values())


def test_auto_is_at_least_as_fast_as_any_strategy_that_fits() -> None:
    def rate(strategy: LargeStrategy) -> float:
        training = replace(LLAMA, strategy=strategy)
        (p,) = predict_large(training, DGX, [32]).predictions
        return p.tokens_per_second if p.fits else 0.0

    assert rate("auto") >= max(rate("fsdp"), rate("megatron"))


@pytest.mark.parametrize("name", ["tensor", "pipeline"])
def test_more_model_parallelism_needs_less_memory(name: str) -> None:
    def memory(size: int) -> float:
        choices = replace(
            Choices(
                tensor=1, pipeline=1, context=1, micro_batch=1, recompute=2, virtual_pipeline=1
            ),
            **{name: size},
        )
        training = replace(LLAMA, strategy="megatron", choices=choices)
        return float(evaluate(training, DGX, 32).memory.total.min())

    assert memory(8) < memory(4) < memory(2) < memory(1)


def test_recomputation_trades_time_for_memory() -> None:
    def find(recompute: int) -> tuple[float, float]:
        choices = Choices(tensor=2, pipeline=1, context=1, micro_batch=1, recompute=recompute)
        found = evaluate(replace(LLAMA, strategy="megatron", choices=choices), DGX, 32)
        return float(found.tokens_per_second[0]), float(found.memory.total[0])

    (fast, large), _, (slow, small) = find(0), find(1), find(2)
    assert slow < fast
    assert small < large


def test_zero_stages_divide_states() -> None:
    def states(zero: int) -> float:
        choices = Choices(tensor=1, pipeline=1, context=1, zero=zero, micro_batch=1, recompute=2)
        memory = evaluate(replace(LLAMA, strategy="fsdp", choices=choices), DGX, 32).memory
        return float(memory.weights[0] + memory.gradients[0] + memory.optimizer[0])

    assert states(3) == pytest.approx(16 * 8.03e9 / 32, rel=0.01)  # 16 bytes per parameter
    assert states(3) < states(2)


def test_lora_fits_where_full_training_does_not() -> None:
    card = read_cluster("rtx-4090")
    (full,) = predict_large(replace(LLAMA, sequence=2048), card, [1]).predictions
    assert not full.fits
    assert "lora" in full.remedy
    (tuned,) = predict_large(replace(LLAMA, sequence=2048, qlora_rank=16), card, [1]).predictions
    assert tuned.fits


def test_a_faster_network_is_never_slower() -> None:
    def rate(network: str) -> float:
        cluster = read_cluster(f"4x8xh100-sxm5-80gb@{network}")
        return predict_large(LLAMA, cluster, [32]).predictions[0].tokens_per_second

    assert rate("10G") < rate("100G") <= rate("400G")


def test_a_measured_figure_moves_the_prediction_to_it() -> None:
    plain = predict_large(LLAMA, DGX, [8]).predictions[0]
    choices = Choices(tensor=1, pipeline=1, context=1, zero=3, micro_batch=1, recompute=1)
    point = MeasuredLayout("h100-sxm5-80gb", 8, 0.5 * plain.tokens_per_second, choices)
    corrected = predict_large(replace(LLAMA, measured=(point,)), DGX, [8]).predictions[0]
    assert corrected.tokens_per_second < 0.7 * plain.tokens_per_second


def test_a_measured_figure_corrects_its_own_layout_fully_and_others_less() -> None:
    measured = Layout(tensor=8, pipeline=2, micro_batch=1)
    assert correction_weight(measured, measured) == 1
    assert correction_weight(replace(measured, data=64), measured) == 1
    once = correction_weight(replace(measured, tensor=4), measured)
    twice = correction_weight(replace(measured, tensor=4, pipeline=4), measured)
    assert 1 > once > twice > 0


@pytest.mark.parametrize(
    ("choices", "batch", "words"),
    [
        (Choices(tensor=3), 128, "heads.*tp=[24]"),
        (Choices(pipeline=64), 128, "32 layers.*pp=32"),
        (Choices(pipeline=3), 128, "pp=3 does not divide 32 GPUs; .*pp=[24], or 33 GPUs"),
        (Choices(pipeline=4, virtual_pipeline=3), 128, "8 layers of a stage.*vp=2"),
        (Choices(pipeline=1, virtual_pipeline=2), 128, "vp=2 needs a pipeline.*pp=2"),
        (Choices(pipeline=1, zero_bubble=1), 128, "zb=1 needs a pipeline"),
        (Choices(expert=8), 128, "no experts"),
        (Choices(context=3), 128, "8192 tokens.*cp=[24]"),
        (Choices(zero=3, shard=3), 128, "32 replicas.*shard=[24]"),
        (Choices(zero=3, shard=64), 128, "shard=32"),
        (Choices(micro_batch=3), 128, "--micro-batch [24]"),
        (Choices(tensor=1, pipeline=1, context=1), 16, "smaller than the 32 .*--global-batch 32"),
        (Choices(tensor=1, pipeline=1, context=1, micro_batch=3), 128, "--global-batch 96"),
    ],
)
def test_a_layout_that_cannot_work_names_one_that_does(
    choices: Choices, batch: int, words: str
) -> None:
    with pytest.raises(UserMistake, match=words):
        evaluate(replace(LLAMA, choices=choices, global_batch=batch), DGX, 32)


def test_more_experts_than_the_model_has_are_refused() -> None:
    with pytest.raises(UserMistake, match="ep=8 or less"):
        evaluate(replace(MIXTRAL, choices=Choices(expert=16)), DGX, 32)


def test_expert_groups_divide_the_gpus_of_a_stage() -> None:
    with pytest.raises(UserMistake, match=r"4 GPUs of a stage.*ep=4"):
        evaluate(replace(MIXTRAL, choices=Choices(expert=8)), DGX, 4)
    layouts = evaluate(replace(MIXTRAL, choices=Choices(expert=8)), DGX, 32).layouts
    assert np.all(layouts.gpus / layouts.pipeline % 8 == 0)


@pytest.mark.parametrize(
    ("strategy", "choices", "words"),
    [
        ("fsdp", Choices(zero=0), "zero=2.*--strategy ddp"),
        ("fsdp", Choices(zero=1), "zero=2.*--strategy megatron"),
        ("ddp", Choices(zero=3), "zero=0.*--strategy fsdp"),
        ("ddp", Choices(tensor=4), "tp=4.*--strategy auto"),
    ],
)
def test_a_strategy_refuses_sizes_that_contradict_it(
    strategy: LargeStrategy, choices: Choices, words: str
) -> None:
    with pytest.raises(UserMistake, match=words):
        evaluate(replace(LLAMA, strategy=strategy, choices=choices), DGX, 32)


def test_hybrid_sharding_also_reduces_gradients_between_its_groups() -> None:
    """On a slow network, most of what groups of one machine save is spent on that reduction."""

    def wait(shard: int) -> float:
        cluster = read_cluster("4x8xh100-sxm5-80gb@10G")
        choices = Choices(zero=3, shard=shard, context=1, micro_batch=1, recompute=2)
        training = replace(LLAMA, strategy="fsdp", choices=choices, global_batch=32)
        return float(evaluate(training, cluster, 32).step.data[0])

    # each machine sends and receives an eighth of all gradients for each of its GPUs, in 32 bits
    sent = 2 * 3 / 4 * 4 * 8.03e9 / 1.25e9
    assert 0.8 * sent < wait(8) < wait(32)
    assert "shard 8" in Layout(data=32, zero=3, shard=8, family="pytorch").description


def test_a_precision_that_the_gpu_lacks_is_refused() -> None:
    with pytest.raises(UserMistake, match=r"mxfp8.*--precision"):
        predict_large(replace(LLAMA, precision="mxfp8"), DGX, [8])


def test_a_model_too_large_to_exist_is_refused() -> None:
    shape = TransformerShape(
        layers=10_000, hidden=1_000_000, heads=100, ffn=4_000_000, vocabulary=1000
    )
    with pytest.raises(UserMistake, match="parameters"):
        evaluate(LargeTraining("x", shape), DGX, 32)


def test_zero_bubble_leaves_a_third_of_the_bubble_and_the_same_memory() -> None:
    def find(zero_bubble: int) -> tuple[float, float]:
        choices = Choices(
            tensor=2,
            pipeline=8,
            virtual_pipeline=1,
            context=1,
            micro_batch=1,
            recompute=0,
            zero_bubble=zero_bubble,
        )
        found = evaluate(replace(LLAMA, strategy="megatron", choices=choices), DGX, 32)
        return float(found.step.bubble[0]), float(found.memory.total[0])

    (bubble, memory), (short, same) = find(0), find(1)
    assert short == pytest.approx(bubble / 3)
    assert same == memory


def test_uneven_stages_wait_for_the_fullest_one() -> None:
    """61 layers on 16 stages are 4 on most of them, as many as 64 layers have."""

    def find(layers: int) -> Evaluation:
        shape = LLAMA.shape.model_copy(update={"layers": layers})
        choices = Choices(
            tensor=2, pipeline=16, virtual_pipeline=1, context=1, micro_batch=1, recompute=0
        )
        training = replace(LLAMA, shape=shape, strategy="megatron", choices=choices)
        return evaluate(training, DGX, 32)

    uneven, even, fewer = find(61), find(64), find(48)
    assert uneven.memory.total[0] == pytest.approx(even.memory.total[0], rel=0.01)
    assert fewer.memory.total[0] < uneven.memory.total[0]
    assert fewer.step.total[0] < uneven.step.total[0] <= even.step.total[0]


def test_a_model_whose_layers_have_few_divisors_uses_pipelines_too() -> None:
    """126 layers are 16 stages of 8, two of which have one less (arXiv 2407.21783 reports 41% MFU)."""
    training = LargeTraining("405b", transformers().get("llama-3.1-405b").shape, global_batch=2048)
    cluster = read_cluster("2048xdgx-h100")
    half, whole = predict_large(training, cluster, [8192, 16384]).predictions
    assert whole.layout.pipeline > 1
    assert whole.tokens_per_second > 1.5 * half.tokens_per_second


def test_offloaded_parameters_travel_in_every_micro_batch() -> None:
    """Two copies of 32 GB of weights and one of gradients take 3.9 s on PCIe, whatever the micro-batch computes."""

    def find(micro: int, offload: Offload | None) -> Evaluation:
        choices = Choices(micro_batch=micro, recompute=2)
        training = replace(LLAMA, choices=choices, global_batch=8, offload=offload)
        return evaluate(training, read_cluster("h100"), 1)

    plain, often, rarely = find(1, None), find(1, "parameters"), find(8, "parameters")
    assert often.step.total[0] > 8 * 3.8
    assert plain.step.total[0] < rarely.step.total[0] < often.step.total[0]
    assert 0 < often.memory.weights[0] < 0.2 * plain.memory.weights[0]


def test_the_remedy_offloads_parameters_if_nothing_less_fits() -> None:
    training = LargeTraining("70b", transformers().get("llama-3-70b").shape)
    (row,) = predict_large(training, read_cluster("8xh100"), [8]).predictions
    assert not row.fits
    assert row.remedy.startswith("--strategy fsdp --offload parameters")


def test_the_remedy_for_a_long_sequence_is_a_shorter_one() -> None:
    (row,) = predict_large(replace(LLAMA, sequence=2**22), DGX, [32]).predictions
    assert not row.fits
    assert "--sequence" in row.remedy


def test_frozen_weights_do_not_count_as_work() -> None:
    cluster = read_cluster("a100")
    (row,) = predict_large(replace(LLAMA, sequence=2048, lora_rank=16), cluster, [1]).predictions
    computed = 4 * 8.03e9 * row.tokens_per_second / 312e12
    assert row.mfu == pytest.approx(computed, rel=0.1)
    assert row.mfu < 0.65


def test_four_bit_weights_take_time_to_convert() -> None:
    plain = replace(LLAMA, sequence=2048, choices=Choices(micro_batch=1, recompute=2))

    def rate(training: LargeTraining) -> float:
        return predict_large(training, read_cluster("a100"), [1]).predictions[0].tokens_per_second

    wide, narrow = rate(replace(plain, lora_rank=16)), rate(replace(plain, qlora_rank=16))
    assert 0.6 * wide < narrow < 0.97 * wide


def test_32_bit_activations_take_twice_the_memory() -> None:
    def find(precision: str) -> float:
        choices = Choices(micro_batch=1, recompute=0, context=1)
        training = replace(LLAMA, strategy="fsdp", choices=choices, precision=precision)
        return float(evaluate(training, DGX, 32).memory.activations[0])

    logits = 14 * 8192 * 128256  # in 32 bits with every precision
    assert find("tf32") == pytest.approx(2 * find("bf16") - logits, rel=0.1)
    assert find("fp32") == find("tf32")


def test_the_default_batch_leaves_a_choice_of_micro_batches() -> None:
    """A million tokens are 5,323 images of 197 tokens, which no micro-batch would divide."""
    vit = LargeTraining("vit", transformers().get("vit-l-16").shape)
    (row,) = predict_large(vit, read_cluster("8xa100"), [8]).predictions
    assert row.layout.global_batch == 4096
    assert row.layout.micro_batch >= 16
