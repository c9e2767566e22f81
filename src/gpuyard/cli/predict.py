"""`gpuyard predict`: how a workload would scale on hardware that need not exist here."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.options import (
    AccumulateOption,
    BucketOption,
    CalibrationOption,
    CompressOption,
    HierarchicalOption,
    LocalSgdOption,
    PrecisionOption,
    ResultsOption,
    apply_precision,
    load_calibration,
    load_results,
    parse_counts,
    parse_exchange,
    parse_precision,
    parse_strategy,
)
from gpuyard.cli.output import JsonOption, check_output_file, show
from gpuyard.errors import UserMistake

if TYPE_CHECKING:
    from gpuyard.hardware import MachineGraph
    from gpuyard.predictor import PlatformScenario, Prediction
    from gpuyard.specs import Cluster

_KNEE_THRESHOLD = "50%"
_MAX_ROWS = 2000


def predict(
    workload: Annotated[str, typer.Argument(help="A *.workload.yaml, or a catalog model.")],
    *,
    on: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CLUSTER",
            help="A *.cluster.yaml, or hardware: 8xh100, p4d.24xlarge, 2x4xrtx-3090@10G. Several are compared.",
        ),
    ] = None,
    topo: Annotated[
        Path | None,
        typer.Option(
            help="How the machine's GPUs are connected: output of nvidia-smi topo -m, or lstopo XML."
        ),
    ] = None,
    gpus: Annotated[
        str | None,
        typer.Option(
            help="Numbers of GPUs, e.g. 1,2,4,8 or 1-8.",
            show_default="doubled up to the whole cluster",
        ),
    ] = None,
    gpus_per_node: Annotated[
        int | None, typer.Option(min=1, help="GPUs used in each machine.")
    ] = None,
    batch: Annotated[str | None, typer.Option(help="Batch sizes per GPU, e.g. 32,64.")] = None,
    precision: PrecisionOption = None,
    strategy: Annotated[
        str, typer.Option(help="ddp, dataparallel, horovod, or parameter-server.")
    ] = "ddp",
    accumulate: AccumulateOption = 1,
    local_sgd: LocalSgdOption = 1,
    compress: CompressOption = None,
    bucket_mb: BucketOption = None,
    hierarchical: HierarchicalOption = False,
    other_jobs: Annotated[
        int, typer.Option(min=0, help="Other identical jobs sharing these machines.")
    ] = 0,
    why: Annotated[
        bool,
        typer.Option(
            "--why",
            help="Explain the largest number of GPUs, what would help, and which run to measure next.",
        ),
    ] = False,
    knee_threshold: Annotated[
        str | None,
        typer.Option(
            help="With --why: minimum gain of an added GPU, as a share of one GPU.",
            show_default=_KNEE_THRESHOLD,
        ),
    ] = None,
    svg: Annotated[
        Path | None,
        typer.Option(
            help="SVG file for the timeline of --why, or otherwise for the chart of several --batch values.",
            callback=check_output_file,
        ),
    ] = None,
    calibration: CalibrationOption = None,
    results: ResultsOption = None,
    json_output: JsonOption = False,
) -> None:
    """Predict samples/s, scaling efficiency, and the choke for numbers of GPUs.

    Example: gpuyard predict resnet50 --on 2x4xrtx-3090@10G --on dgx-a100 --batch 64
    """
    from gpuyard import units
    from gpuyard.catalog.specfiles import read_workload
    from gpuyard.files import write_text
    from gpuyard.hardware.clusters import resolve_machine
    from gpuyard.predictor import create_scenario
    from gpuyard.predictor import predict as predict_placements
    from gpuyard.report.answers.clusters import clusters_answer
    from gpuyard.report.answers.predict import predict_answer, sweep_svg, why_svg
    from gpuyard.workloads import profile_model

    if knee_threshold is not None and not why:
        raise UserMistake("--knee-threshold only affects what --why explains: add --why")
    if precision is not None:
        parse_precision(precision)
    clusters = _read_clusters(on or [], topo)
    if svg and len(clusters) > 1:
        raise UserMistake("--svg draws a single cluster: pass only one --on")
    spec = read_workload(workload)
    profile = profile_model(spec)
    spec = apply_precision(spec, profile, precision)
    exchange = parse_exchange(compress, accumulate, bucket_mb, local_sgd, hierarchical)
    constants = load_calibration(calibration)
    if (stored := load_results(results)) is not None:
        spec = stored.add_figures(spec, profile, parse_strategy(strategy))
    others = [f"{other_jobs} other job{'s' if other_jobs > 1 else ''}"] if other_jobs else []
    how = [strategy, *exchange.descriptions, *others]
    answers = []
    for cluster, graph in clusters:
        scenario = create_scenario(
            spec,
            profile,
            cluster,
            strategy=parse_strategy(strategy),
            exchange=exchange,
            other_jobs=other_jobs,
            calibration=constants,
            graph=graph,
        )
        counts = _choose_counts(gpus, scenario, gpus_per_node, several=len(clusters) > 1)
        batches = parse_counts(batch, "batch size") if batch else []
        if len(counts) * len(batches) > _MAX_ROWS:
            raise UserMistake(
                f"{len(counts):,} numbers of GPUs and {len(batches):,} batch sizes are "
                f"{len(counts) * len(batches):,} predictions; the maximum is {_MAX_ROWS:,}"
            )
        result = predict_placements(
            scenario, scenario.platform.placements(counts, gpus_per_node), batches
        )
        # the first batch of the most GPUs: `max` keeps the first of equals
        largest = max(result.predictions, key=lambda p: p.gpus)
        explanation = next_run = None
        if why:
            from gpuyard.predictor.explain.next_run import find_next_run
            from gpuyard.predictor.explain.why import explain

            threshold = units.parse_share(knee_threshold or _KNEE_THRESHOLD)
            explanation = explain(scenario, largest, threshold=threshold)
            next_run = find_next_run(scenario, largest)
        answer = predict_answer(
            result,
            how,
            advice="" if why or len(clusters) > 1 else _give_advice(scenario, largest),
            next_run=next_run,
            calibration=constants,
            why=explanation,
            notes=graph.notes if graph else (),
            gpu=resolve_machine(cluster)[0],
            cluster_note=cluster.note,
        )
        if svg:
            drawing = why_svg(explanation, answer.title) if explanation else sweep_svg(result)
            write_text(svg, drawing)
        answers.append((result, answer))
    show(
        answers[0][1] if len(answers) == 1 else clusters_answer(answers, how, whole=why),
        json_output=json_output,
    )


def _give_advice(scenario: "PlatformScenario", largest: "Prediction") -> str:
    from gpuyard.predictor.prediction import describe_choke

    if largest.fits is False:  # a note about memory says which batch would fit
        return ""
    gpus = "1 GPU" if largest.gpus == 1 else f"{largest.gpus} GPUs"
    choke = describe_choke(scenario, largest)
    return f"At {gpus}, {choke[0].lower()}{choke[1:]} Add --why to see what would help."


def _read_clusters(on: list[str], topo: Path | None) -> "list[tuple[Cluster, MachineGraph | None]]":
    from gpuyard.hardware.clusters import cluster_from_topology_file, read_cluster

    if topo is not None:
        if len(on) > 1:
            raise UserMistake("--topo describes the machine of one cluster: pass only one --on")
        return [cluster_from_topology_file(topo, read_cluster(on[0]) if on else None)]
    if not on:
        raise UserMistake(
            "--on is missing: name a cluster, e.g. --on dgx-a100, --on 2x4xrtx-3090@10G, or --on my.cluster.yaml"
        )
    return [(read_cluster(name), None) for name in on]


def _choose_counts(
    option: str | None, scenario: "PlatformScenario", gpus_per_node: int | None, *, several: bool
) -> list[int]:
    """Return the numbers of GPUs to predict; with several clusters, only those each one has."""
    if option is None:
        return scenario.default_gpu_counts(gpus_per_node)
    counts = parse_counts(option, "number of GPUs")
    available = [count for count in counts if count <= scenario.platform.gpus]
    return available if several and available else counts
