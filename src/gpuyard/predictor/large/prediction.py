"""Predict training of one large model on one cluster: the layout, its step, its memory, and its interval."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from gpuyard.hardware.clusters import machine_load_watts, resolve_machine
from gpuyard.predictor.large.cluster import find_sixteen_bit_peak
from gpuyard.predictor.large.constants import load_fit
from gpuyard.predictor.large.effects import has_evidence
from gpuyard.predictor.large.evaluation import Evaluation, evaluate, select_layout, usable_bytes
from gpuyard.predictor.large.interval import find_interval
from gpuyard.predictor.large.layout import Layout
from gpuyard.predictor.large.model import describe_model
from gpuyard.predictor.large.remedies import find_remedy
from gpuyard.predictor.large.training import LargeTraining, trained_share
from gpuyard.predictor.power import PowerCap
from gpuyard.specs import Cluster

_MAX_ALTERNATIVES = 12
_NEAR = 1.3  # a layout that needs more than this much of a GPU's memory is not worth showing
LargeChoke = Literal[
    "compute", "memory", "bubble", "tensor", "context", "expert", "pipeline", "data"
]


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
    forward_flops_per_token: float
    peak_flops: float
    scaling_efficiency: float = 1.0
    days: float | None = None  # of the whole training
    energy_kwh: float | None = None  # of the machines in the whole training, without cooling
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
        again = {"none": 0.0, "selective": 0.06, "full": 1.0}[self.layout.recompute]
        return self.mfu * (1 + again * self.forward_flops_per_token / self.model_flops_per_token)

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
            "energy_kwh": self.energy_kwh,
            "remedy": self.remedy,
        }  # fmt: skip


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
    gpus: int  # of the whole cluster
    predictions: tuple[LargePrediction, ...]
    candidates: int
    pareto: tuple[Alternative, ...]  # speed against memory, for the largest number of GPUs
    simpler: Alternative | None  # runner-up with fewer kinds of parallelism
    evidence: str
    parameters: float
    active_parameters: float
    training: LargeTraining

    @property
    def largest(self) -> LargePrediction:
        """The prediction with the most GPUs."""
        return max(self.predictions, key=lambda p: p.gpus)

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
    training: LargeTraining,
    cluster: Cluster,
    gpu_counts: Sequence[int],
    compute_speed: float = 1.0,
) -> LargeResult:
    """Predict every number of GPUs, whose speed a power cap may lower; `auto` searches all layouts that fit."""
    gpu, machine = resolve_machine(cluster)
    predictions, evaluations = [], []
    for count in gpu_counts:
        evaluation = evaluate(training, cluster, count, compute_speed)
        evaluations.append(evaluation)
        prediction = _create_prediction(training, cluster, count, evaluation, evaluation.best())
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
        gpus=cluster.nodes * machine.gpus,
        predictions=tuple(predictions),
        candidates=sum(len(evaluation.layouts) for evaluation in evaluations),
        pareto=_find_pareto_front(largest, usable_bytes(gpu.memory_bytes)),
        simpler=_find_simpler_layout(largest),
        evidence=has_evidence(load_fit(), gpu, training.precision, training.shape.experts),
        parameters=float(model.parameters),
        active_parameters=float(model.active_parameters),
        training=training,
    )


def _create_prediction(
    training: LargeTraining, cluster: Cluster, count: int, evaluation: Evaluation, index: int
) -> LargePrediction:
    gpu, machine = resolve_machine(cluster)
    per_node = machine.gpus
    fit = load_fit()
    layout = select_layout(evaluation.layouts, index)
    parts = {name: float(column[index]) for name, column in vars(evaluation.step).items()}
    memory = {name: float(column[index]) for name, column in vars(evaluation.memory).items()}
    rate = float(evaluation.tokens_per_second[index])
    low, high, factor = find_interval(training, cluster, gpu, layout)
    model = describe_model(training.shape, training.sequence)
    fits = bool(evaluation.fits[index])
    watts = machine_load_watts(cluster)
    days = training.tokens / (rate * factor) / 86400 if training.tokens else None
    return LargePrediction(
        gpus=count,
        nodes=-(-count // per_node),
        gpus_per_node=min(count, per_node),
        strategy=layout.strategy if training.strategy == "auto" else training.strategy,
        layout=layout,
        sequence=training.length,
        precision=training.precision,
        tokens_per_second=rate * factor,
        low=rate * factor * low,
        high=rate * factor * high,
        step=parts,
        memory=memory,
        memory_high=sum(memory.values()) * fit.memory_high,
        memory_limit=usable_bytes(gpu.memory_bytes),
        fits=fits,
        choke=_find_choke(parts),
        model_flops_per_token=float(model.training_flops(trained_share(training, model))),
        forward_flops_per_token=float(model.forward_flops),
        peak_flops=find_sixteen_bit_peak(gpu),
        days=days,
        energy_kwh=None if days is None else -(-count // per_node) * watts * days * 0.024,
    )


def _find_choke(parts: dict[str, float]) -> LargeChoke:
    """Return the largest part other than compute if it takes a quarter of the step, else compute."""
    waits = {
        k: v
        for k, v in parts.items()
        if k in ("bubble", "tensor", "context", "expert", "pipeline", "data")
    }
    name = max(waits, key=lambda key: waits[key])
    return name if waits[name] > 0.2 * sum(parts.values()) else "compute"  # type: ignore[return-value]


def _find_pareto_front(evaluation: Evaluation, limit: float) -> tuple[Alternative, ...]:
    """Return the layouts that no other beats in both speed and memory, without those far from fitting."""
    near = evaluation.memory.total <= _NEAR * max(limit, float(evaluation.memory.total.min()))
    order = np.flatnonzero(near)
    order = order[np.argsort(-evaluation.tokens_per_second[order], kind="stable")]
    chosen, least = [], np.inf
    for index in order[:100_000]:
        total = float(evaluation.memory.total[index])
        if total < least * 0.98:
            least = total
            chosen.append(_create_alternative(evaluation, int(index)))
        if len(chosen) == _MAX_ALTERNATIVES:
            break
    return tuple(chosen)


def _find_simpler_layout(evaluation: Evaluation) -> Alternative | None:
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
    return _create_alternative(evaluation, index)


def _create_alternative(evaluation: Evaluation, index: int) -> Alternative:
    return Alternative(
        select_layout(evaluation.layouts, index),
        float(evaluation.tokens_per_second[index]),
        float(evaluation.memory.total[index]),
    )


def cap_large_prediction(prediction: LargePrediction, cap: PowerCap) -> LargePrediction:
    """Widen the interval of a prediction at the cap's speed, and count the energy that the GPUs save."""
    total = prediction.step_seconds
    compute = prediction.step["compute"] + prediction.step["recompute"]
    low, high = (
        total / (total + compute * (cap.speed / speed - 1)) for speed in (cap.low, cap.high)
    )
    energy = prediction.energy_kwh
    if energy is not None and prediction.days is not None:
        saved = prediction.gpus * (cap.rated_watts - cap.watts) * prediction.days * 0.024
        energy = max(0.0, energy - saved)
    return replace(
        prediction, low=prediction.low * low, high=prediction.high * high, energy_kwh=energy
    )
