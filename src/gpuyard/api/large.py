"""Predict training of a large transformer: which layout fits, how fast it is, and what it costs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from gpuyard import units
from gpuyard.api.inputs import NONE, read_counts
from gpuyard.api.plotting import Line, Plot
from gpuyard.api.result import Result, Row, wrap
from gpuyard.economics.goodput import Goodput
from gpuyard.errors import UnknownName, UserMistake
from gpuyard.hardware.clusters import resolve_machine
from gpuyard.planner import find_cheapest_rental
from gpuyard.planner.goodput import estimate_goodput
from gpuyard.predictor.large.prediction import (
    LargeResult,
    cap_large_prediction,
    predict_large,
)
from gpuyard.predictor.large.training import LargeTraining, count_checkpoint_bytes, create_training
from gpuyard.predictor.power import cap_power
from gpuyard.report.answer import Answer
from gpuyard.report.answers.large import large_answer, layouts_svg
from gpuyard.specs import Cluster, Workload
from gpuyard.specs.parallel import LARGE_STRATEGIES, Parallel
from gpuyard.specs.spec_errors import explain_value

_COPIES_ONLY = "is known only for whole copies of a model on each GPU; leave it out"
_INSTEAD = {
    "gpus_per_node": "changes no layout: name smaller machines instead, as in --on 4x4xh100",
    "batch": "is --micro-batch and --global-batch for a large model",
    "accumulate": "follows from --micro-batch and --global-batch for a large model",
    "results": "is not used for a large model: add your figures under parallel.measured in its workload file",
}
_UNSET = {"accumulate": 1, "local_sgd": 1, "other_jobs": 0, "calibration": NONE, "results": NONE}
"""The values with which an option changes nothing."""
_DEGREES = ("tp", "pp", "vp", "cp", "ep", "zero", "shard", "zb")


class LargePredictions(Result[Row]):
    """Predictions for one large model on one cluster, one row for each number of GPUs."""

    def __init__(self, answer: Answer, result: LargeResult, **more: Any) -> None:
        super().__init__(
            answer, wrap(answer.document["predictions"]), plot=self._create_plot, **more
        )
        self.result = result

    def _create_plot(self) -> Plot:
        rows = self.result.predictions
        line = Line(
            self.result.cluster,
            [p.gpus for p in rows],
            [p.tokens_per_second for p in rows],
            [p.low for p in rows],
            [p.high for p in rows],
        )
        return Plot(self.answer.title, "GPUs", "tokens per second", [line])


def predict_layouts(
    workload: Workload,
    clusters: Sequence[Cluster],
    *,
    gpus: "str | int | Sequence[int] | None",
    strategy: str | None,
    precision: str | None,
    why: bool,
    **options: Any,
) -> LargePredictions:
    """Predict a large model; `options` are those of the command line that concern layouts."""
    if len(clusters) != 1:
        raise UserMistake("a large model is predicted for a single cluster: pass only one --on")
    (cluster,) = clusters
    workload = apply_options(workload, strategy=strategy, precision=precision, **options)
    gpu, machine = resolve_machine(cluster)
    training = create_training(workload, gpu)
    most = cluster.nodes * machine.gpus
    counts = read_counts(gpus, "number of GPUs") if gpus is not None else _usual_counts(most)
    cap = None if cluster.power_cap is None else cap_power(gpu, cluster.power_cap)
    result = predict_large(training, cluster, sorted(counts), cap.speed if cap else 1.0)
    if cap is not None:
        capped = tuple(cap_large_prediction(p, cap) for p in result.predictions)
        result = replace(result, predictions=capped)
    losses = _estimate_losses(training, cluster, result)

    cheapest = None
    if training.tokens is not None and result.largest.fits:
        cheapest = find_cheapest_rental(workload, gpu.id, result.largest.gpus)

    def draw() -> str:
        return layouts_svg(result)

    def explain() -> LargePredictions:
        return LargePredictions(
            large_answer(result, why=True, cheapest=cheapest, losses=losses, power_cap=cap),
            result,
            draw=draw,
        )

    answer = large_answer(result, why=why, cheapest=cheapest, losses=losses, power_cap=cap)
    return LargePredictions(answer, result, explain=explain, draw=draw)


def refuse_copy_options(**options: Any) -> None:
    """Raise UserMistake if an option was given that predictions of large models would ignore."""
    for name, value in options.items():
        if value not in (_UNSET.get(name), None, False):
            raise UserMistake(f"--{name.replace('_', '-')} {_INSTEAD.get(name, _COPIES_ONLY)}")


def _estimate_losses(
    training: LargeTraining, cluster: Cluster, result: LargeResult
) -> dict[int, Goodput]:
    """Return the goodput by number of GPUs if the length of the training is known."""
    return {
        row.gpus: estimate_goodput(
            training.name,
            cluster,
            gpus=row.gpus,
            checkpoint_bytes=count_checkpoint_bytes(training, row.strategy),
        ).goodput
        for row in result.predictions
        if row.days is not None and row.fits
    }


def apply_options(
    workload: Workload, *, strategy: str | None, precision: str | None, **options: Any
) -> Workload:
    """Return the workload with options in place of its keys under `parallel`."""
    if strategy is not None and strategy not in LARGE_STRATEGIES:
        raise UserMistake(
            f"{strategy} does not shard a model: use --strategy {', '.join(LARGE_STRATEGIES)}"
        )
    names = (
        "micro_batch",
        "global_batch",
        "sequence",
        "recompute",
        "optimizer",
        "offload",
        "lora",
        "qlora",
    )
    changes = {name: value for name in names if (value := options.get(name)) is not None}
    changes |= parse_layout(options.get("layout"))
    changes |= {
        k: v for k, v in (("strategy", strategy), ("precision", precision)) if v is not None
    }
    if "lora" in changes and "qlora" in changes:
        raise UserMistake(
            "--lora and --qlora exclude each other: --qlora keeps the weights in 4 bits"
        )
    if "lora" in changes or "qlora" in changes:  # one replaces the other
        changes = {"lora": None, "qlora": None} | changes
    checked = _check_values(changes)
    parallel = (workload.parallel or Parallel()).model_copy(update=checked)
    tokens = options.get("tokens")
    return workload.model_copy(
        update={
            "parallel": parallel,
            "tokens": workload.tokens if tokens is None else units.parse_tokens(tokens),
        }
    )


def _check_values(changes: dict[str, Any]) -> dict[str, Any]:
    """Return the values of options as a workload file would have them. Raise UserMistake for one that it refuses."""
    try:
        checked = Parallel.model_validate(changes)
    except ValidationError as invalid:
        mistake = invalid.errors()[0]
        option = f"--{str(mistake['loc'][0]).replace('_', '-')}"
        raise UserMistake(f"{option}: {explain_value(mistake)}") from None
    return {name: getattr(checked, name) for name in changes}


def parse_layout(text: str | None) -> dict[str, int]:
    """ "tp=4,pp=2" → {"tp": 4, "pp": 2}."""
    degrees: dict[str, int] = {}
    for part in (text or "").split(","):
        if not part.strip():
            continue
        name, _, value = (word.strip() for word in part.partition("="))
        if name not in _DEGREES:
            raise UnknownName("part of a layout", name, _DEGREES)
        least, most = {"zero": (0, 3), "zb": (0, 1)}.get(name, (1, 100_000))
        if not value.isdecimal() or not least <= int(value) <= most:
            raise UserMistake(
                f"--layout: {name} must be a whole number from {least:,} to {most:,}, as in {name}={max(1, least)}; got {value!r}"
            )
        if degrees.setdefault(name, int(value)) != int(value):
            raise UserMistake(
                f"--layout names {name} twice: {name}={degrees[name]} and {part.strip()}"
            )
    return degrees


def _usual_counts(most: int) -> list[int]:
    """Return the GPU counts of whole powers of two, and the whole cluster."""
    counts = [2**power for power in range(most.bit_length()) if 2**power <= most]
    return sorted({*counts[-4:], most})
