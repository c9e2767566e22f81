"""Predict how training would scale on hardware that need not exist here."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuyard import units
from gpuyard.api.inputs import (
    apply_power_cap,
    apply_precision,
    load_calibration,
    load_results,
    parse_exchange,
    parse_precision,
    parse_strategy,
    read_cluster,
    read_counts,
    read_workload,
)
from gpuyard.api.result import Result, table_from_records
from gpuyard.errors import UserMistake
from gpuyard.hardware.clusters import cluster_from_topology_file, resolve_machine
from gpuyard.predictor import ClusterPrediction, Prediction, create_scenario
from gpuyard.predictor import predict as predict_placements
from gpuyard.predictor.predicted import describe_choke
from gpuyard.report.answer import Answer
from gpuyard.report.answers.predict import predict_answer, sweep_svg, why_svg
from gpuyard.specs import Cluster
from gpuyard.workloads import profile_model
from gpuyard.workloads.profiles import needs_layout

if TYPE_CHECKING:
    import pandas

    from gpuyard.api.large import LargePredictions
    from gpuyard.api.plotting import Plot
    from gpuyard.catalog import ModelProfile
    from gpuyard.hardware import MachineGraph
    from gpuyard.predictor import PlatformScenario
    from gpuyard.predictor.calibration.document import Calibration
    from gpuyard.predictor.explain.why import Why
    from gpuyard.specs import ExchangeOptions, KnownThroughput, StrategyName, Workload

KNEE_THRESHOLD = "50%"
_MAX_ROWS = 2000


class Predictions(Result[Prediction]):
    """Predictions for one workload, one row for each cluster, number of GPUs, and batch."""

    def __init__(self, answer: Answer, results: Sequence[ClusterPrediction], **more: Any) -> None:
        rows = [prediction for result in results for prediction in result.predictions]
        super().__init__(answer, rows, plot=self._create_plot, **more)
        self._results = results

    def to_pandas(self) -> "pandas.DataFrame":
        """Return one row per prediction, with its cluster."""
        return table_from_records(
            [
                {"cluster": result.cluster, **asdict(prediction)}
                for result in self._results
                for prediction in result.predictions
            ]
        )

    def _create_plot(self) -> "Plot":
        from gpuyard.api.plotting import Line, Plot

        lines = []
        for result in self._results:
            for batch in dict.fromkeys(p.batch_per_gpu for p in result.predictions):
                rows = [p for p in result.predictions if p.batch_per_gpu == batch]
                lines.append(
                    Line(
                        f"{result.cluster}, batch {batch}",
                        [p.gpus for p in rows],
                        [p.samples_per_second for p in rows],
                        [p.low for p in rows],
                        [p.high for p in rows],
                    )
                )
        return Plot(self.answer.title, "GPUs", "samples per second", lines)


@dataclass(frozen=True)
class _Request:
    """Everything that the predictions of all clusters share."""

    workload: "Workload"
    profile: "ModelProfile"
    strategy: "StrategyName"
    exchange: "ExchangeOptions"
    other_jobs: int
    calibration: "Calibration | None"
    gpus: "str | int | Sequence[int] | None"
    gpus_per_node: int | None
    batches: Sequence[int]
    threshold: float | None  # of the explanation; None: without an explanation
    several: bool  # clusters are compared
    chart: bool = False  # for a page

    @property
    def how(self) -> list[str]:
        """The strategy, the exchange options, and the other jobs, for the title."""
        count = self.other_jobs
        others = [f"{count} other job{'s' if count > 1 else ''}"] if count else []
        return [self.strategy, *self.exchange.descriptions, *others]


def predict(
    workload: "str | Path | Workload",
    *,
    on: "str | Path | Cluster | Sequence[str | Path | Cluster]" = (),
    topo: str | Path | None = None,
    gpus: str | int | Sequence[int] | None = None,
    gpus_per_node: int | None = None,
    batch: str | int | Sequence[int] | None = None,
    precision: str | None = None,
    strategy: str | None = None,
    accumulate: int = 1,
    local_sgd: int = 1,
    compress: str | None = None,
    bucket_mb: float | None = None,
    hierarchical: bool = False,
    other_jobs: int = 0,
    why: bool = False,
    knee_threshold: str | float | None = None,
    calibration: str | None = None,
    results: str | None = None,
    layout: str | None = None,
    micro_batch: int | None = None,
    global_batch: int | None = None,
    sequence: int | None = None,
    recompute: str | None = None,
    optimizer: str | None = None,
    offload: str | None = None,
    lora: int | None = None,
    qlora: int | None = None,
    tokens: str | float | None = None,
    power_cap: str | float | None = None,
    chart: bool = False,
) -> "Predictions | LargePredictions":
    """Predict samples per second, scaling efficiency, and the choke for numbers of GPUs.

    `workload` is a catalog model, a *.workload.yaml, or a `Workload`; `on` names one cluster or several to compare, like
    "8xh100". `gpus` and `batch` are lists, or text like "1,2,4" and "1-8". The other parameters are the options of
    `gpuyard predict`; `chart` adds charts and the time line of a step for a page.
    """
    if knee_threshold is not None and not why:
        raise UserMistake("--knee-threshold only affects what --why explains: add --why")
    spec = read_workload(workload)
    sharding = {
        "layout": layout, "micro_batch": micro_batch, "global_batch": global_batch,
        "sequence": sequence, "recompute": recompute, "optimizer": optimizer, "offload": offload,
        "lora": lora, "qlora": qlora, "tokens": tokens,
    }  # fmt: skip
    if needs_layout(spec, strategy, any(value is not None for value in sharding.values())):
        from gpuyard.api.large import predict_layouts, refuse_copy_options

        refuse_copy_options(
            gpus_per_node=gpus_per_node, batch=batch, accumulate=accumulate, local_sgd=local_sgd,
            compress=compress, bucket_mb=bucket_mb, hierarchical=hierarchical, other_jobs=other_jobs,
            knee_threshold=knee_threshold, calibration=calibration, results=results,
        )  # fmt: skip
        targets = [apply_power_cap(c, power_cap) for c, _ in _read_clusters(on, topo)]
        return predict_layouts(
            spec,
            targets,
            gpus=gpus,
            strategy=strategy,
            precision=precision,
            why=why or chart,
            **sharding,
        )
    strategy = strategy or "ddp"
    if other_jobs < 0:
        raise UserMistake(f"--other-jobs must be 0 or more, got {other_jobs}")
    if precision is not None:
        parse_precision(precision)
    clusters = [(apply_power_cap(c, power_cap), g) for c, g in _read_clusters(on, topo)]
    profile = profile_model(spec)
    spec = apply_precision(spec, profile, precision)
    exchange = parse_exchange(compress, accumulate, bucket_mb, local_sgd, hierarchical)
    constants = load_calibration(calibration)
    if (stored := load_results(results)) is not None:
        spec = stored.add_figures(spec, profile, parse_strategy(strategy))
    request = _Request(
        workload=spec,
        profile=profile,
        strategy=parse_strategy(strategy),
        exchange=exchange,
        other_jobs=other_jobs,
        calibration=constants,
        gpus=gpus,
        gpus_per_node=gpus_per_node,
        batches=read_counts(batch, "batch size") if batch is not None else (),
        threshold=units.parse_share(knee_threshold or KNEE_THRESHOLD) if why else None,
        several=len(clusters) > 1,
        chart=chart,
    )
    return _answer(request, clusters)


def _answer(
    request: _Request, clusters: "Sequence[tuple[Cluster, MachineGraph | None]]"
) -> Predictions:
    predicted = [_predict_one(request, cluster, graph) for cluster, graph in clusters]
    results = [result for result, _, _ in predicted]

    def explain() -> Predictions:
        return _answer(replace(request, threshold=units.parse_share(KNEE_THRESHOLD)), clusters)

    if request.several:
        from gpuyard.report.answers.clusters import clusters_answer

        pairs = [(result, answer) for result, answer, _ in predicted]
        whole = request.threshold is not None
        compared = clusters_answer(pairs, request.how, whole=whole)
        if request.chart:
            from gpuyard.report.answers.prediction_charts import add_prediction_charts

            measured = _find_measured(request.workload, [cluster for cluster, _ in clusters])
            compared = add_prediction_charts(compared, results, measured=measured)
        return Predictions(compared, results, explain=explain)
    ((result, answer, explanation),) = predicted

    def draw() -> str:
        return why_svg(explanation, answer.title) if explanation else sweep_svg(result)

    return Predictions(answer, results, explain=explain, draw=draw)


def _predict_one(
    request: _Request, cluster: Cluster, graph: "MachineGraph | None"
) -> "tuple[ClusterPrediction, Answer, Why | None]":
    scenario = create_scenario(
        request.workload,
        request.profile,
        cluster,
        strategy=request.strategy,
        exchange=request.exchange,
        other_jobs=request.other_jobs,
        calibration=request.calibration,
        graph=graph,
    )
    counts = _choose_counts(request, scenario)
    if len(counts) * len(request.batches) > _MAX_ROWS:
        raise UserMistake(
            f"{len(counts):,} numbers of GPUs and {len(request.batches):,} batch sizes are "
            f"{len(counts) * len(request.batches):,} predictions; the maximum is {_MAX_ROWS:,}"
        )
    placements = scenario.platform.placements(counts, request.gpus_per_node)
    result = predict_placements(scenario, placements, request.batches)
    gpu = resolve_machine(cluster)[0]
    # the first batch of the most GPUs: `max` keeps the first of equals
    batch = max(result.predictions, key=lambda p: p.gpus).batch_per_gpu
    whole = result
    if request.gpus is not None:
        counts = scenario.default_gpu_counts(request.gpus_per_node)
        all_sizes = scenario.platform.placements(counts, request.gpus_per_node)
        whole = predict_placements(scenario, all_sizes, [batch])
    cap = None
    if cluster.power_cap is not None:
        from gpuyard.predictor.power import cap_cluster_prediction, cap_power

        cap = cap_power(gpu, cluster.power_cap)
        result, whole = cap_cluster_prediction(result, cap), cap_cluster_prediction(whole, cap)
    largest = max(result.predictions, key=lambda p: p.gpus)
    explanation = next_run = None
    if request.threshold is not None:
        from gpuyard.predictor.explain.next_run import find_next_run
        from gpuyard.predictor.explain.why import explain

        explanation = explain(scenario, largest, threshold=request.threshold)
        next_run = find_next_run(scenario, largest)
    advised = explanation is None and not request.several
    answer = predict_answer(
        result,
        request.how,
        advice=_give_advice(scenario, largest) if advised else "",
        next_run=next_run,
        calibration=request.calibration,
        why=explanation,
        notes=graph.notes if graph else (),
        gpu=gpu,
        cluster_note=cluster.note,
        power_cap=cap,
        cluster=[p for p in whole.predictions if p.batch_per_gpu == batch],
    )
    if request.chart and not request.several:
        from gpuyard.predictor.explain.timeline import build_timeline
        from gpuyard.report.answers.prediction_charts import add_prediction_charts

        timeline = None
        if explanation is None:
            alone = scenario.change_batch(largest.batch_per_gpu)
            timeline = build_timeline(alone.build_placement_table([largest.placement]))
        measured = _find_measured(request.workload, [cluster])
        answer = add_prediction_charts(answer, [result], timeline, measured)
    return result, answer, explanation


def _find_measured(workload: "Workload", clusters: Sequence[Cluster]) -> "list[KnownThroughput]":
    """Return the measured figures of the clusters' GPUs."""
    gpus = {resolve_machine(cluster)[0].id for cluster in clusters}
    return [point for point in workload.measured if point.gpu in gpus]


def _give_advice(scenario: "PlatformScenario", largest: Prediction) -> str:
    if largest.fits is False:  # the first line says which batch would fit
        return ""
    gpus = "1 GPU" if largest.gpus == 1 else f"{largest.gpus} GPUs"
    choke = describe_choke(scenario, largest)
    return f"At {gpus}, {choke[0].lower()}{choke[1:]} Add --why to see what would help."


def _read_clusters(
    on: "str | Path | Cluster | Sequence[str | Path | Cluster]", topo: str | Path | None
) -> "list[tuple[Cluster, MachineGraph | None]]":
    names = [on] if isinstance(on, str | Path | Cluster) else list(on)
    if topo is not None:
        if len(names) > 1:
            raise UserMistake("--topo describes the machine of one cluster: pass only one --on")
        named = read_cluster(names[0]) if names else None
        return [cluster_from_topology_file(Path(topo), named)]
    if not names:
        raise UserMistake(
            "--on is missing: name a cluster, e.g. --on 8xh100, --on 2x4xrtx-3090@10G, or --on my.cluster.yaml"
        )
    return [(read_cluster(name), None) for name in names]


def _choose_counts(request: _Request, scenario: "PlatformScenario") -> list[int]:
    """Return the numbers of GPUs to predict; with several clusters, only those each one has."""
    if request.gpus is None:
        return scenario.default_gpu_counts(request.gpus_per_node)
    counts = read_counts(request.gpus, "number of GPUs")
    available = [count for count in counts if count <= scenario.platform.gpus]
    return available if request.several and available else counts
