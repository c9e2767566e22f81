"""A training without its cluster: the model, its batch, the fixed choices, and the states that it keeps."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gpuyard.catalog import Gpu, gpus
from gpuyard.errors import UserMistake
from gpuyard.predictor.large.cluster import NARROW_PRECISIONS, choose_usual_precision
from gpuyard.predictor.large.layout import RECOMPUTE, Family, LayoutColumns
from gpuyard.predictor.large.memory import StateBytes
from gpuyard.predictor.large.model import ModelColumns, describe_model
from gpuyard.predictor.large.rules import find_contradiction
from gpuyard.predictor.large.search import Choices
from gpuyard.specs import Workload
from gpuyard.specs.parallel import (
    LargeStrategy,
    MeasuredTokens,
    Offload,
    Parallel,
    ParallelDegrees,
    Recompute,
)
from gpuyard.specs.transformer import TransformerShape
from gpuyard.workloads.profiles import find_shape

_DEFAULT_TOKENS = 2**20  # tokens per step if no batch is given
OPTIMIZER_BYTES = {"adamw": 8.0, "adam": 8.0, "adam-8bit": 2.0, "momentum": 4.0, "sgd": 0.0}

QLORA_BYTES = 0.56  # per parameter: 4 bits, and the scales of their blocks


@dataclass(frozen=True)
class LargeTraining:
    """A training: everything that a prediction needs except the cluster."""

    name: str
    shape: TransformerShape
    strategy: LargeStrategy = "auto"
    choices: Choices = field(default_factory=Choices)
    global_batch: int | None = None
    sequence: int | None = None
    precision: str = "bf16"
    optimizer: str = "adamw"
    lora_rank: int | None = None
    qlora_rank: int | None = None
    offload: Offload | None = None
    flash: bool = True
    tokens: float | None = None  # tokens of the whole training
    measured: tuple["MeasuredLayout", ...] = ()

    @property
    def length(self) -> int:
        return self.sequence or self.shape.sequence


@dataclass(frozen=True)
class MeasuredLayout:
    """A user's own figure: tokens per second of all GPUs at a layout."""

    gpu: str
    gpus: int
    tokens_per_second: float
    choices: Choices
    global_batch: int | None = None


def create_training(workload: Workload, gpu: Gpu | None = None) -> LargeTraining:
    """Describe the training of a workload whose model is known by its shape; `parallel` says what is fixed.

    If no precision is given, it is the usual one of the GPU.
    """
    shape = find_shape(workload)
    if shape is None:
        raise UserMistake(
            f"{workload.model_name} is not a transformer that gpuyard knows by shape: give model: {{layers: …, hidden: …, "
            "heads: …, ffn: …, vocabulary: …} or the path of its config.json"
        )
    spec = workload.parallel or Parallel()
    usual = "bf16" if gpu is None else choose_usual_precision(gpu)
    precision = spec.precision or workload.precision or usual
    if (rank := spec.lora or spec.qlora) and rank > shape.hidden:
        name = "lora" if spec.lora else "qlora"
        raise UserMistake(
            f"--{name} must be at most {shape.hidden:,}, the model's width, got {rank:,}"
        )
    for point in spec.measured:
        _check_figure(point, shape, spec.sequence)
    return LargeTraining(
        name=workload.name,
        shape=shape,
        strategy=spec.strategy,
        choices=_read_choices(spec, spec.recompute),
        global_batch=spec.global_batch,
        sequence=spec.sequence,
        precision=precision,
        optimizer=spec.optimizer or workload.optimizer or "adamw",
        lora_rank=spec.lora,
        qlora_rank=spec.qlora,
        offload=spec.offload,
        tokens=workload.tokens,
        measured=tuple(
            MeasuredLayout(
                gpus().get(point.gpu).id,
                point.gpus,
                point.tokens_per_second,
                _read_choices(point, point.recompute),
                point.global_batch,
            )
            for point in spec.measured
        ),
    )


def _check_figure(point: MeasuredTokens, shape: TransformerShape, sequence: int | None) -> None:
    """Raise UserMistake if a GPU would have computed faster than its highest peak."""
    gpu, model = gpus().get(point.gpu), describe_model(shape, sequence)
    peaks = (gpu.fp4_tflops, gpu.fp8_tflops, gpu.bf16_tflops, gpu.fp16_tflops, gpu.fp32_tflops)
    fastest = max(peak or 0.0 for peak in peaks)
    each = point.tokens_per_second / point.gpus
    computed = each * float(model.training_flops(0.0)) / 1e12
    if computed > fastest:
        raise UserMistake(
            f"parallel.measured: {each:,.0f} tokens/s on each {gpu.name} are {computed:,.0f} TFLOP/s, more than its "
            f"peak of {fastest:,.0f}; give the tokens per second of all {point.gpus} GPUs together"
        )


def _read_choices(spec: ParallelDegrees, recompute: Recompute | None) -> Choices:
    return Choices(
        tensor=spec.tp,
        pipeline=spec.pp,
        virtual_pipeline=spec.vp,
        context=spec.cp,
        expert=spec.ep,
        zero=spec.zero,
        shard=spec.shard,
        zero_bubble=spec.zb,
        micro_batch=spec.micro_batch,
        recompute=RECOMPUTE.index(recompute) if recompute else None,
    )


def default_global_batch(gpus: int, sequence: int) -> int:
    """Return the samples per step that make about a million tokens; each GPU gets a power of two of them."""
    per_gpu = _DEFAULT_TOKENS / sequence / gpus
    return int(2 ** max(0, round(math.log2(per_gpu)))) * gpus


def find_families(strategy: LargeStrategy, gpus: int) -> tuple[Family, ...]:
    """Return the families to search; a single GPU needs no Megatron-LM."""
    if strategy in ("ddp", "fsdp") or (strategy == "auto" and gpus == 1):
        return ("pytorch",)
    return ("megatron",) if strategy == "megatron" else ("pytorch", "megatron")


def narrow_choices(training: LargeTraining, gpus: int) -> Choices:
    """Return the choices, narrowed to those that the strategy allows."""
    choices = training.choices
    if problem := find_contradiction(training.strategy, choices):
        raise UserMistake(problem)
    if training.strategy == "ddp":
        return replace(choices, tensor=1, pipeline=1, context=1, expert=1, zero=0)
    if training.strategy == "fsdp":
        defaults = {"tensor": 1, "pipeline": 1, "zero": 3 if gpus > 1 else 0}
        return replace(
            choices, **{k: v for k, v in defaults.items() if getattr(choices, k) is None}
        )
    return choices


def trained_share(training: LargeTraining, model: ModelColumns) -> float:
    """Return the share of trained parameters: all, or the adapters' of LoRA on every projection."""
    rank = training.lora_rank or training.qlora_rank
    if not rank:
        return 1.0
    widths = (
        4 * float(model.hidden) + float(model.query_width) + float(model.kv_width)
        + float(model.value_width)
        + (float(model.gates) + 1) * (float(model.hidden) + float(model.ffn))
    )  # fmt: skip
    return min(1.0, rank * widths * float(model.layers) / float(model.parameters))


def activation_number_bytes(precision: str) -> float:
    """Return the bytes of an activation; tf32 rounds only inside products, and narrower precisions keep 16 bits."""
    return 4.0 if precision in ("fp32", "tf32") else 2.0


def describe_states(training: LargeTraining, layouts: LayoutColumns, trained: float) -> StateBytes:
    """Return the bytes per parameter of weights, gradients, and optimizer."""
    moments = OPTIMIZER_BYTES[training.optimizer]
    pytorch = np.asarray(layouts.pytorch) > 0
    how: dict[str, Any] = {
        "narrow": float(training.precision in NARROW_PRECISIONS),
        "flash": float(training.flash),
        "eager": pytorch.astype(float),
        "activation_bytes": activation_number_bytes(training.precision),
    }
    if trained < 1:
        weights = QLORA_BYTES if training.qlora_rank else 2.0
        return StateBytes(weights, 4.0, moments + 4, trained, **how)
    if training.precision in ("fp32", "tf32"):
        return StateBytes(4.0, 4.0, moments, 1.0, **how)
    return StateBytes(
        np.where(pytorch, 4.0, 2.0), 4.0, np.where(pytorch, moments, moments + 4), 1.0, **how
    )


def count_checkpoint_bytes(training: LargeTraining, strategy: str) -> float:
    """Return the bytes of a checkpoint of all GPUs together: weights and optimizer; of LoRA, only its adapters'.

    Both families keep the weights in fp32; Megatron-LM also saves their 16-bit copy.
    """
    model = describe_model(training.shape, training.sequence)
    moments = OPTIMIZER_BYTES[training.optimizer]
    copies = 2.0 if strategy == "megatron" and training.precision != "fp32" else 0.0
    return float(model.parameters) * trained_share(training, model) * (4.0 + moments + copies)
