"""Estimate what failures, checkpoints, and spot interruptions take from a training."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuyard import units
from gpuyard.api.inputs import read_cluster, read_workload
from gpuyard.api.plotting import Line, Plot
from gpuyard.api.result import Result, Row, wrap
from gpuyard.catalog import Price, prices
from gpuyard.catalog.short_names import find_hardware
from gpuyard.errors import UserMistake
from gpuyard.hardware.clusters import resolve_machine
from gpuyard.planner.goodput import GoodputResult, checkpoint_bytes_of, estimate_goodput
from gpuyard.report.answers.goodput import goodput_answer, goodput_svg
from gpuyard.specs.base import ShortCluster
from gpuyard.workloads.profiles import find_shape

if TYPE_CHECKING:
    from gpuyard.specs import Cluster, Workload


class Goodputs(Result[Row]):
    """The goodput of a training; its rows are the numbers of GPUs of the curve."""

    def __init__(self, result: GoodputResult, misfit: str | None = None) -> None:
        answer = goodput_answer(result, misfit)
        super().__init__(
            answer,
            wrap(answer.document["by_gpus"]),
            plot=self._create_plot,
            draw=lambda: goodput_svg(result, answer.title),
        )
        self.result = result

    def _create_plot(self) -> Plot:
        points = self.result.by_interval
        line = Line(
            self.result.cluster,
            [seconds / 60 for seconds, _ in points],
            [point.share for _, point in points],
            [point.low for _, point in points],
            [point.high for _, point in points],
        )
        return Plot(self.answer.title, "minutes between checkpoints", "goodput", [line])


def goodput(
    workload: "str | Path | Workload",
    *,
    on: "str | Path | Cluster",
    gpus: int | None = None,
    tokens: str | float | None = None,
    days: float | None = None,
    storage: str | None = None,
    checkpoint_size: str | float | None = None,
    checkpoint_time: str | float | None = None,
    checkpoint_every: str | float | None = None,
    restart: str | float | None = None,
    mean_gpu_hours: float | None = None,
    strategy: str | None = None,
    precision: str | None = None,
) -> Goodputs:
    """Estimate goodput, the best checkpoint interval, and what spot saves after restarts.

    `days` is the length of the training without losses; with `tokens`, gpuyard predicts it. `mean_gpu_hours` is the mean
    time between interruptions of one GPU. The other parameters are the options of `gpuyard goodput`.
    """
    spec, cluster = read_workload(workload), read_cluster(on)
    if tokens is not None and days is not None:
        raise UserMistake("give --tokens or --days, not both: --tokens predicts the days")
    size = None if checkpoint_size is None else units.parse_bytes(checkpoint_size)
    useful = None if days is None else (days, days, days)
    _, machine = resolve_machine(cluster)
    count = gpus or cluster.nodes * machine.gpus
    misfit = None
    if find_shape(spec) is not None:
        model_size, predicted, misfit = _describe_large(
            spec, cluster, count, tokens=tokens, strategy=strategy, precision=precision
        )
        size, useful = size or model_size, useful or predicted
    elif tokens is not None:
        raise UserMistake(f"--tokens needs a transformer; {spec.name} is none: use --days")
    if size is None:
        from gpuyard.workloads import profile_model

        size = checkpoint_bytes_of(profile_model(spec).parameters)
    return Goodputs(
        estimate_goodput(
            spec.name,
            cluster,
            gpus=count,
            checkpoint_bytes=size,
            checkpoint_seconds=_parse_time(checkpoint_time),
            restart_seconds=_parse_time(restart),
            interval_seconds=_parse_time(checkpoint_every),
            storage=storage,
            gpu_hours=mean_gpu_hours,
            instance=find_instance(on),
            useful_days=useful,
        ),
        misfit,
    )


def _describe_large(
    spec: "Workload",
    cluster: "Cluster",
    gpus: int,
    *,
    tokens: Any,
    strategy: str | None,
    precision: str | None,
) -> tuple[float, tuple[float, float, float] | None, str | None]:
    """Return the bytes of a checkpoint, the days without losses if the tokens are known, and what does not fit."""
    from gpuyard.api.large import apply_options
    from gpuyard.predictor.large.evaluation import evaluate
    from gpuyard.predictor.large.prediction import predict_large
    from gpuyard.predictor.large.remedies import find_remedy
    from gpuyard.predictor.large.training import count_checkpoint_bytes, create_training

    gpu, _ = resolve_machine(cluster)
    training = create_training(
        apply_options(spec, strategy=strategy, precision=precision, tokens=tokens), gpu
    )
    where = f"{units.format_count(gpus, 'GPU')} of {cluster.name}"
    if training.tokens is None:
        size = count_checkpoint_bytes(training, strategy or "fsdp")
        try:
            fits = bool(evaluate(training, cluster, gpus).fits.any())
        except UserMistake:  # no layout divides these GPUs: other numbers of the curve may have one
            return size, None, None
        remedy = "" if fits else find_remedy(training, cluster, gpus)
        advice = f"; it would fit with {remedy}" if remedy else ""
        return size, None, "" if fits else f"{spec.name} does not fit on {where}{advice}."
    (row,) = predict_large(training, cluster, [gpus]).predictions
    if not row.fits or row.days is None:
        remedy = f"; it would fit with {row.remedy}" if row.remedy else ""
        raise UserMistake(f"{spec.name} does not fit on {where}{remedy}")
    days = (
        row.days,
        row.days * row.tokens_per_second / row.high,
        row.days * row.tokens_per_second / row.low,
    )
    return count_checkpoint_bytes(training, row.strategy), days, ""


def find_instance(on: object) -> Price | None:
    """Return the price if the cluster is named by a cloud instance, like 4xp5.48xlarge."""
    short = ShortCluster.parse(on) if isinstance(on, str) else None
    hardware = find_hardware(short.name) if short is not None else None
    if hardware is None or hardware.kind != "instance":
        return None
    return prices().get(hardware.id)


def _parse_time(text: str | float | None) -> float | None:
    if text is None or isinstance(text, int | float):
        return text
    return units.parse_seconds(text, "5 min")
