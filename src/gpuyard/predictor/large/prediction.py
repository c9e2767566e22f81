"""Predict training of one large model on one cluster: the layout, its step, its memory, and its interval."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np

from gpuyard.catalog import Gpu
from gpuyard.errors import UserMistake
from gpuyard.hardware.clusters import resolve_machine
from gpuyard.predictor.large.cluster import NARROW, describe_cluster
from gpuyard.predictor.large.constants import LargeFit, load_fit
from gpuyard.predictor.large.effects import apply_effects, effect_keys, has_evidence
from gpuyard.predictor.large.layout import RECOMPUTE, Family, Layout, LayoutColumns, Recompute
from gpuyard.predictor.large.memory import MemoryColumns, StateBytes, compute_memory
from gpuyard.predictor.large.model import ModelColumns, describe_model
from gpuyard.predictor.large.rules import check_request
from gpuyard.predictor.large.search import Choices, SearchSpace
from gpuyard.predictor.large.step import StepColumns, TrainingOptions, compute_step
from gpuyard.predictor.table import Booleans, Floats
from gpuyard.specs import Cluster
from gpuyard.specs.parallel import LargeStrategy, Offload
from gpuyard.specs.transformer import TransformerShape

LargeChoke = Literal[
    "compute", "memory", "bubble", "tensor", "context", "expert", "pipeline", "data"
]
_DEFAULT_TOKENS = 2**20  # tokens per step if no batch is given
_USABLE_SHARE = 0.97  # of a GPU's memory that a program can allocate
_HOST_LINK_BYTES_PER_SECOND = 25e9  # PCIe 4 x16, for offloaded states


@dataclass(frozen=True)
class LargeTraining:
    """What is trained and how: everything a prediction needs besides the cluster."""

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

    gpus: int
    tokens_per_second: float
    choices: Choices
    global_batch: int | None = None


@dataclass(frozen=True)
class LargePrediction:
    """The prediction of one layout on a number of GPUs."""

    gpus: int
    nodes: int
    gpus_per_node: int
    strategy: str
    layout: Layout
    sequence: int
    precision: str
    tokens_per_second: float
    low: float  # of tokens_per_second
    high: float
    step: dict[str, float]  # seconds by part
    memory: dict[str, float]  # bytes by part on the fullest GPU
    memory_high: float  # upper end of the memory interval
    memory_limit: float  # bytes that a program can allocate
    fits: bool
    choke: LargeChoke
    model_flops_per_token: float
    peak_flops: float
    scaling_efficiency: float = 1.0
    days: float | None = None
    remedy: str = ""  # smallest change that would make it fit

    @property
    def step_seconds(self) -> float:
        return sum(self.step.values())

    @property
    def memory_needed_over(self) -> float:
        """Bytes that the fullest GPU lacks; 0 if it fits."""
        return max(0.0, sum(self.memory.values()) - self.memory_limit)

    @property
    def tokens_per_second_per_gpu(self) -> float:
        return self.tokens_per_second / self.gpus

    @property
    def samples_per_second(self) -> float:
        return self.tokens_per_second / self.sequence

    @property
    def tflops_per_gpu(self) -> float:
        return self.tokens_per_second_per_gpu * self.model_flops_per_token / 1e12

    @property
    def mfu(self) -> float:
        """Model FLOPs utilization: as papers count it, without recomputation, of the 16-bit peak."""
        return self.tflops_per_gpu * 1e12 / self.peak_flops

    @property
    def hfu(self) -> float:
        """Hardware FLOPs utilization: with recomputation."""
        again = {"none": 0.0, "selective": 0.02, "full": 1 / 3}[self.layout.recompute]
        return self.mfu * (1 + again)

    def as_json(self) -> dict[str, Any]:
        return {
            "gpus": self.gpus, "nodes": self.nodes, "gpus_per_node": self.gpus_per_node,
            "strategy": self.strategy, "batch_per_gpu": self.layout.global_batch / self.gpus,
            "samples_per_second": self.samples_per_second,
            "low": self.low / self.sequence, "high": self.high / self.sequence,
            "tokens_per_second": self.tokens_per_second,
            "tokens_per_second_low": self.low, "tokens_per_second_high": self.high,
            "tokens_per_second_per_gpu": self.tokens_per_second_per_gpu,
            "tflops_per_gpu": self.tflops_per_gpu, "mfu": self.mfu, "hfu": self.hfu,
            "scaling_efficiency": self.scaling_efficiency, "layout": self.layout.as_json(),
            "micro_batch": self.layout.micro_batch, "global_batch": self.layout.global_batch,
            "recompute": self.layout.recompute, "sequence": self.sequence,
            "precision": self.precision, "step_seconds": self.step_seconds,
            "step": {f"{name}_seconds": value for name, value in self.step.items()},
            "choke": self.choke, "memory": {**self.memory, "total": sum(self.memory.values())},
            "memory_high": self.memory_high, "fits": self.fits, "days": self.days,
            "remedy": self.remedy,
        }  # fmt: skip


@dataclass(frozen=True)
class Evaluation:
    """All candidate layouts of one number of GPUs, evaluated."""

    layouts: LayoutColumns
    tokens_per_second: Floats
    step: StepColumns
    memory: MemoryColumns
    fits: Booleans

    def best(self) -> int:
        """Return the fastest layout that fits, or the one that needs least memory."""
        speed = np.where(self.fits, self.tokens_per_second, 0.0)
        return int(speed.argmax()) if speed.any() else int(self.memory.total.argmin())


@dataclass(frozen=True)
class Alternative:
    """A layout that was not chosen, and how it compares."""

    layout: Layout
    tokens_per_second: float
    memory_bytes: float


@dataclass(frozen=True)
class LargeResult:
    """All predictions for one model on one cluster."""

    workload: str
    cluster: str
    predictions: tuple[LargePrediction, ...]
    candidates: int
    pareto: tuple[Alternative, ...]  # speed against memory, for the largest number of GPUs
    simpler: Alternative | None  # runner-up with fewer kinds of parallelism
    evidence: str
    parameters: float
    active_parameters: float

    def as_json(self) -> dict[str, Any]:
        return {
            "workload": self.workload, "cluster": self.cluster,
            "parameters": self.parameters, "active_parameters": self.active_parameters,
            "candidates": self.candidates, "evidence": self.evidence,
            "predictions": [prediction.as_json() for prediction in self.predictions],
            "pareto": [
                {"layout": a.layout.as_json(), "micro_batch": a.layout.micro_batch,
                 "recompute": a.layout.recompute, "tokens_per_second": a.tokens_per_second,
                 "memory": a.memory_bytes}
                for a in self.pareto
            ],
        }  # fmt: skip


def predict_large(
    training: LargeTraining, cluster: Cluster, gpu_counts: Sequence[int]
) -> LargeResult:
    """Predict every number of GPUs; `auto` searches all layouts that fit."""
    gpu, _ = resolve_machine(cluster)
    predictions, evaluations = [], []
    for count in gpu_counts:
        evaluation = evaluate(training, cluster, count)
        evaluations.append(evaluation)
        prediction = _describe(training, cluster, count, evaluation, evaluation.best())
        if not prediction.fits:
            prediction = replace(prediction, remedy=find_remedy(training, cluster, count))
        predictions.append(prediction)
    base = predictions[0]
    predictions = [
        replace(
            p,
            scaling_efficiency=p.tokens_per_second_per_gpu / base.tokens_per_second_per_gpu,
        )
        for p in predictions
    ]
    model = describe_model(training.shape, training.sequence)
    largest = evaluations[-1]
    return LargeResult(
        workload=training.name,
        cluster=cluster.name,
        predictions=tuple(predictions),
        candidates=sum(len(evaluation.layouts) for evaluation in evaluations),
        pareto=_pareto(largest),
        simpler=_simpler(largest),
        evidence=has_evidence(load_fit(), gpu, training.precision),
        parameters=float(model.parameters),
        active_parameters=float(model.active_parameters),
    )


def evaluate(training: LargeTraining, cluster: Cluster, gpus: int) -> Evaluation:
    """Evaluate all candidate layouts on a number of GPUs."""
    gpu, machine = resolve_machine(cluster)
    if gpus > cluster.nodes * machine.gpus:
        raise UserMistake(
            f"{cluster.name} has {cluster.nodes * machine.gpus} GPUs; {gpus} were asked for"
        )
    batch = training.global_batch or default_global_batch(gpus, training.length)
    space = SearchSpace(
        training.shape, gpus, machine.gpus, batch, training.length, _narrow(training, gpus)
    )
    check_request(space, training.strategy)
    layouts = space.enumerate(_families(training.strategy, gpus))
    if not len(layouts):
        raise UserMistake(
            f"no layout divides {gpus} GPUs, {training.shape.heads} heads, {training.shape.layers} layers, and "
            f"a global batch of {batch} evenly; try --global-batch {-(-batch // gpus) * gpus}"
        )
    fit = load_fit()
    model = describe_model(training.shape, training.sequence)
    nodes = -(-gpus // machine.gpus)
    columns = describe_cluster(cluster, training.precision, nodes)
    constants = apply_effects(fit.constants, fit.effects, [effect_keys(gpu, training.precision)])
    trained = trained_share(training, model)
    options = TrainingOptions(
        narrow=float(training.precision in NARROW),
        flash=float(training.flash),
        trained_share=trained,
    )
    step = compute_step(model, layouts, columns, options, constants)
    step = _add_offload(step, training, model, layouts)
    memory = compute_memory(model, layouts, states_of(training, layouts, trained), fit.memory)
    memory = _remove_offloaded(memory, training)
    limit = gpu.memory_bytes * _USABLE_SHARE
    fits = memory.total * fit.memory_margin <= limit
    total = step.total
    return Evaluation(layouts, batch * training.length / total, step, memory, fits)


def default_global_batch(gpus: int, sequence: int) -> int:
    """Return about a million tokens per step, a multiple of the GPUs."""
    return max(1, round(_DEFAULT_TOKENS / sequence / gpus)) * gpus


def _families(strategy: LargeStrategy, gpus: int) -> tuple[Family, ...]:
    """Return the families to search; a single GPU needs no Megatron-LM."""
    if strategy in ("ddp", "fsdp") or (strategy == "auto" and gpus == 1):
        return ("pytorch",)
    return ("megatron",) if strategy == "megatron" else ("pytorch", "megatron")


def _narrow(training: LargeTraining, gpus: int) -> Choices:
    """Return the choices with what a strategy fixes."""
    choices = training.choices
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


_OPTIMIZER_BYTES = {"adamw": 8.0, "adam": 8.0, "adam-8bit": 2.0, "momentum": 4.0, "sgd": 0.0}


def states_of(training: LargeTraining, layouts: LayoutColumns, trained: float) -> StateBytes:
    """Return the bytes per parameter of weights, gradients, and optimizer."""
    moments = _OPTIMIZER_BYTES[training.optimizer]
    narrow, flash = float(training.precision in NARROW), float(training.flash)
    if trained < 1:
        weights = 0.56 if training.qlora_rank else 2.0
        return StateBytes(weights, 4.0, moments + 4, trained, narrow, flash)
    pytorch = np.asarray(layouts.pytorch) > 0
    if training.precision in ("fp32", "tf32"):
        return StateBytes(4.0, 4.0, moments, 1.0, narrow, flash)
    return StateBytes(
        np.where(pytorch, 4.0, 2.0),
        4.0,
        np.where(pytorch, moments, moments + 4),
        1.0,
        narrow,
        flash,
    )


def _add_offload(
    step: StepColumns, training: LargeTraining, model: ModelColumns, layouts: LayoutColumns
) -> StepColumns:
    """Add the transfers of offloaded states over PCIe and the optimizer on the CPU."""
    if training.offload is None:
        return step
    share = model.parameters / (layouts.tensor * layouts.pipeline * np.maximum(layouts.shard, 1.0))
    moved = share * (6.0 if training.offload == "optimizer" else 10.0)
    return replace(step, optimizer=step.optimizer + moved / _HOST_LINK_BYTES_PER_SECOND)


def _remove_offloaded(memory: MemoryColumns, training: LargeTraining) -> MemoryColumns:
    if training.offload is None:
        return memory
    nothing = np.zeros_like(memory.optimizer)
    weights = nothing if training.offload == "parameters" else memory.weights
    return replace(memory, optimizer=nothing, weights=weights)


def layout_at(layouts: LayoutColumns, index: int) -> Layout:
    """Return one row as a layout."""
    row = {f.name: float(np.asarray(getattr(layouts, f.name))[index]) for f in fields(layouts)}
    names: tuple[Recompute, ...] = RECOMPUTE
    return Layout(
        tensor=int(row["tensor"]), pipeline=int(row["pipeline"]),
        virtual_pipeline=int(row["virtual_pipeline"]), context=int(row["context"]),
        expert=int(row["expert"]), data=int(row["data"]), zero=int(row["zero"]),
        shard=int(row["shard"]), micro_batch=int(row["micro_batch"]),
        global_batch=int(row["global_batch"]), recompute=names[int(row["recompute"])],
        family="pytorch" if row["pytorch"] else "megatron",
    )  # fmt: skip


def _describe(
    training: LargeTraining, cluster: Cluster, count: int, evaluation: Evaluation, index: int
) -> LargePrediction:
    gpu, machine = resolve_machine(cluster)
    per_node = machine.gpus
    fit = load_fit()
    layout = layout_at(evaluation.layouts, index)
    parts = {name: float(column[index]) for name, column in vars(evaluation.step).items()}
    memory = {name: float(column[index]) for name, column in vars(evaluation.memory).items()}
    rate = float(evaluation.tokens_per_second[index])
    low, high, factor = _interval(training, cluster, gpu, fit)
    model = describe_model(training.shape, training.sequence)
    sixteen = gpu.bf16_tflops or gpu.fp16_tflops or gpu.fp32_tflops or 1.0
    fits = bool(evaluation.fits[index])
    name = training.strategy
    if name == "auto":
        name = ("fsdp" if layout.zero >= 2 else "ddp") if layout.family == "pytorch" else "megatron"
    return LargePrediction(
        gpus=count,
        nodes=-(-count // per_node),
        gpus_per_node=min(count, per_node),
        strategy=name,
        layout=layout,
        sequence=training.length,
        precision=training.precision,
        tokens_per_second=rate * factor,
        low=rate * factor * low,
        high=rate * factor * high,
        step=parts,
        memory=memory,
        memory_high=sum(memory.values()) * fit.memory_high,
        memory_limit=gpu.memory_bytes * _USABLE_SHARE,
        fits=fits,
        choke=_find_choke(parts),
        model_flops_per_token=float(model.model_flops),
        peak_flops=sixteen * 1e12,
        days=training.tokens / (rate * factor) / 86400 if training.tokens else None,
    )


def _interval(
    training: LargeTraining, cluster: Cluster, gpu: Gpu, fit: LargeFit
) -> tuple[float, float, float]:
    """Return the ends of the interval over the prediction, and the correction by measured figures."""
    if training.measured:
        ratios = [_measured_ratio(training, cluster, point) for point in training.measured]
        return (*fit.spread_with_point, float(np.exp(np.mean(np.log(ratios)))))
    kind = "moe" if training.shape.experts else "dense"
    known = bool(has_evidence(fit, gpu, training.precision))
    return (*fit.spread[f"{kind}/{'known' if known else 'unknown'}"], 1.0)


def _measured_ratio(training: LargeTraining, cluster: Cluster, point: MeasuredLayout) -> float:
    """Return measured over predicted for a user's own figure."""
    plain = replace(
        training, measured=(), choices=point.choices, global_batch=point.global_batch or training.global_batch
    )  # fmt: skip
    evaluation = evaluate(plain, cluster, point.gpus)
    index = int(np.argmax(evaluation.tokens_per_second))
    return point.tokens_per_second / float(evaluation.tokens_per_second[index])


def _find_choke(parts: dict[str, float]) -> LargeChoke:
    """Return the largest part other than compute if it takes a quarter of the step, else compute."""
    waits = {
        k: v
        for k, v in parts.items()
        if k in ("bubble", "tensor", "context", "expert", "pipeline", "data")
    }
    name = max(waits, key=lambda key: waits[key])
    return name if waits[name] > 0.2 * sum(parts.values()) else "compute"  # type: ignore[return-value]


def _pareto(evaluation: Evaluation, most: int = 12) -> tuple[Alternative, ...]:
    """Return the layouts that no other beats in both speed and memory."""
    order = np.argsort(-evaluation.tokens_per_second)
    chosen, least = [], np.inf
    for index in order[:100_000]:
        total = float(evaluation.memory.total[index])
        if total < least * 0.98:
            least = total
            chosen.append(_alternative(evaluation, int(index)))
        if len(chosen) == most:
            break
    return tuple(chosen)


def _simpler(evaluation: Evaluation) -> Alternative | None:
    """Return the fastest layout that fits and uses fewer kinds of parallelism than the best, if it comes close."""
    best = evaluation.best()
    layouts = evaluation.layouts
    columns = (layouts.tensor, layouts.pipeline, layouts.context, layouts.expert)
    kinds = np.sum([np.asarray(column) > 1 for column in columns], axis=0)
    speed = np.where(
        np.asarray(evaluation.fits) & (kinds < kinds[best]), evaluation.tokens_per_second, 0.0
    )
    index = int(speed.argmax())
    if speed[index] < 0.5 * evaluation.tokens_per_second[best]:
        return None
    return _alternative(evaluation, index)


def _alternative(evaluation: Evaluation, index: int) -> Alternative:
    return Alternative(
        layout_at(evaluation.layouts, index),
        float(evaluation.tokens_per_second[index]),
        float(evaluation.memory.total[index]),
    )


def find_remedy(training: LargeTraining, cluster: Cluster, gpus: int) -> str:
    """Return the smallest change that makes a model fit, as options to add, or an empty string."""
    choices = training.choices
    changes: list[tuple[str, LargeTraining]] = [
        ("--recompute full", replace(training, choices=replace(choices, recompute=2))),
        (
            "--recompute full --micro-batch 1",
            replace(training, choices=replace(choices, recompute=2, micro_batch=1)),
        ),
        ("--strategy fsdp", replace(training, strategy="fsdp", choices=Choices())),
        ("--strategy auto", replace(training, strategy="auto", choices=Choices())),
        (
            "--strategy fsdp --offload optimizer",
            replace(training, strategy="fsdp", choices=Choices(), offload="optimizer"),
        ),
        ("--lora 16", replace(training, strategy="auto", choices=Choices(), lora_rank=16)),
        ("--qlora 16", replace(training, strategy="auto", choices=Choices(), qlora_rank=16)),
    ]
    _, machine = resolve_machine(cluster)
    for option, changed in changes:
        try:
            evaluation = evaluate(changed, cluster, gpus)
        except UserMistake:
            continue
        if evaluation.fits.any():
            return option
    count = gpus
    while (count := count * 2) <= cluster.nodes * machine.gpus:
        whole = replace(training, strategy="auto", choices=Choices())
        if evaluate(whole, cluster, count).fits.any():
            return f"--gpus {count} --strategy auto"
    return ""
