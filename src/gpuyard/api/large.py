"""Predict training of a large transformer: which layout fits, how fast it is, and what it costs."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from gpuyard.api.inputs import read_counts
from gpuyard.api.result import Line, Plot, Result
from gpuyard.economics.goodput import Goodput
from gpuyard.errors import UnknownName, UserMistake
from gpuyard.hardware.clusters import resolve_machine
from gpuyard.planner.goodput import estimate_goodput
from gpuyard.predictor.large.checkpoints import count_checkpoint_bytes
from gpuyard.predictor.large.layout import RECOMPUTE
from gpuyard.predictor.large.prediction import LargePrediction, LargeResult, predict_large
from gpuyard.predictor.large.search import Choices
from gpuyard.predictor.large.training import LargeTraining, MeasuredLayout
from gpuyard.report.answer import Answer
from gpuyard.report.answers.large import large_answer
from gpuyard.specs import Cluster, Workload
from gpuyard.specs.parallel import LARGE_STRATEGIES, Degrees, LargePrecision, Parallel
from gpuyard.workloads.shapes import find_shape

_DEGREES = {
    "tp": "tensor", "pp": "pipeline", "vp": "virtual_pipeline", "cp": "context", "ep": "expert",
    "zero": "zero", "shard": "shard",
}  # fmt: skip
_TOKENS = re.compile(r"([\d.]+)\s*([kKMBGT]?)")
_SCALE = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}


class LargePredictions(Result[LargePrediction]):
    """Predictions for one large model on one cluster, one row for each number of GPUs."""

    def __init__(self, answer: Answer, result: LargeResult, **more: Any) -> None:
        super().__init__(answer, result.predictions, plot=self._create_plot, **more)
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
    training = create_training(workload, strategy=strategy, precision=precision, **options)
    _, machine = resolve_machine(cluster)
    most = cluster.nodes * machine.gpus
    counts = read_counts(gpus, "number of GPUs") if gpus is not None else _usual_counts(most)
    result = predict_large(training, cluster, sorted(counts))
    losses = _estimate_losses(training, cluster, result)

    def explain() -> LargePredictions:
        return LargePredictions(large_answer(result, why=True, losses=losses), result)

    answer = large_answer(result, why=why, losses=losses)
    return LargePredictions(answer, result, explain=explain)


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


def create_training(
    workload: Workload, *, strategy: str | None, precision: str | None, **options: Any
) -> LargeTraining:
    """Combine the workload's `parallel:` with options, which take precedence."""
    shape = find_shape(workload)
    if shape is None:
        raise UserMistake(
            f"{workload.model_name} is not a transformer that gpuyard knows by shape: give model: {{layers: …, hidden: …, "
            "heads: …, ffn: …, vocabulary: …}} or the path of its config.json"
        )
    spec = workload.parallel or Parallel()
    if strategy is not None and strategy not in LARGE_STRATEGIES:
        raise UserMistake(
            f"{strategy} does not shard a model: use --strategy {', '.join(LARGE_STRATEGIES)}"
        )
    chosen = precision or spec.precision
    if chosen not in get_args(LargePrecision):
        raise UnknownName("precision", chosen, get_args(LargePrecision))
    degrees = parse_layout(options.get("layout"))
    recompute = options.get("recompute") or spec.recompute
    if recompute is not None and recompute not in RECOMPUTE:
        raise UnknownName("recompute", recompute, RECOMPUTE)
    lora = options.get("lora") or (None if options.get("qlora") else spec.lora)
    return LargeTraining(
        name=workload.name,
        shape=shape,
        strategy=strategy or spec.strategy,
        choices=_choices(spec, degrees, options.get("micro_batch"), recompute),
        global_batch=options.get("global_batch") or spec.global_batch,
        sequence=options.get("sequence") or spec.sequence,
        precision=chosen,
        optimizer=options.get("optimizer") or spec.optimizer,
        lora_rank=lora,
        qlora_rank=options.get("qlora") or (None if lora else spec.qlora),
        offload=options.get("offload") or spec.offload,
        tokens=parse_tokens(options.get("tokens")) or spec.tokens,
        measured=tuple(
            MeasuredLayout(
                point.gpu,
                point.gpus,
                point.tokens_per_second,
                _choices(point, {}, None, point.recompute),
                point.global_batch,
            )
            for point in spec.measured
        ),
    )


def _choices(
    spec: Degrees, degrees: Mapping[str, int], micro_batch: int | None, recompute: str | None
) -> Choices:
    values = {field: degrees.get(key, getattr(spec, key)) for key, field in _DEGREES.items()}
    return Choices(
        **values,
        micro_batch=micro_batch or spec.micro_batch,
        recompute=RECOMPUTE.index(recompute) if recompute else None,
    )


def parse_layout(text: str | None) -> dict[str, int]:
    """ "tp=4,pp=2" → {"tp": 4, "pp": 2}."""
    degrees: dict[str, int] = {}
    for part in (text or "").split(","):
        if not part.strip():
            continue
        name, _, value = (word.strip() for word in part.partition("="))
        if name not in _DEGREES:
            raise UnknownName("part of a layout", name, _DEGREES)
        most = 3 if name == "zero" else 100_000
        if not value.isdigit() or not (0 if name == "zero" else 1) <= int(value) <= most:
            raise UserMistake(
                f"--layout: {name} must be a whole number like {name}=2, got {value!r}"
            )
        degrees[name] = int(value)
    return degrees


def parse_tokens(text: str | float | None) -> float | None:
    """ "20B" → 2e10."""
    if text is None or isinstance(text, int | float):
        return text
    match = _TOKENS.fullmatch(text.strip())
    if match is None or not float(match[1]):
        raise UserMistake(f"--tokens: expected a number like 20B or 300M, got {text!r}")
    return float(match[1]) * _SCALE[match[2]]


def _usual_counts(most: int) -> list[int]:
    """Return the GPU counts of whole powers of two, and the whole cluster."""
    counts = [2**power for power in range(most.bit_length()) if 2**power <= most]
    return sorted({*counts[-4:], most})
