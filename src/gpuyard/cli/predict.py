"""`gpuyard predict`: how a workload would scale on hardware that may not be here."""

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
    chosen_calibration,
    chosen_results,
    parse_counts,
    parse_exchange,
    parse_precision,
    parse_strategy,
    trained_in_asked,
)
from gpuyard.cli.output import JsonOption, show, writable
from gpuyard.errors import UserMistake

if TYPE_CHECKING:
    from gpuyard.hardware import MachineGraph
    from gpuyard.predict import PlatformScenario
    from gpuyard.specs import Cluster

_KNEE_THRESHOLD = "50 %"
_MOST_ROWS = 2000


def predict(
    workload: Annotated[str, typer.Argument(help="A *.workload.yaml, or a catalog model.")],
    *,
    on: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CLUSTER",
            help="A *.cluster.yaml, a catalog machine or GPU, or e.g. 2x4xrtx-3090@10G. Several are compared.",
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
            help="Numbers of GPUs, e.g. 1,2,4,8.", show_default="doubled up to the whole cluster"
        ),
    ] = None,
    gpus_per_node: Annotated[
        int | None, typer.Option(min=1, help="GPUs used in each machine.")
    ] = None,
    batch: Annotated[str | None, typer.Option(help="Batch sizes per GPU, e.g. 32,64.")] = None,
    precision: PrecisionOption = None,
    strategy: Annotated[
        str, typer.Option(help="ddp, dataparallel, horovod or parameter-server.")
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
        typer.Option("--why", help="Explain the largest number of GPUs, and what would help."),
    ] = False,
    knee_threshold: Annotated[
        str | None,
        typer.Option(
            help="With --why: least gain of an added GPU, as a share of one GPU.",
            show_default=_KNEE_THRESHOLD,
        ),
    ] = None,
    svg: Annotated[
        Path | None,
        typer.Option(
            help="Write the time line of --why, or else the chart of several --batch, to this file.",
            callback=writable,
        ),
    ] = None,
    calibration: CalibrationOption = None,
    results: ResultsOption = None,
    json_output: JsonOption = False,
) -> None:
    """Predict samples/s, scaling efficiency and the choke for numbers of GPUs.

    Example: gpuyard predict resnet50 --on 2x4xrtx-3090@10G --on dgx-a100 --batch 64
    """
    from gpuyard import units
    from gpuyard.catalog.specfiles import read_workload
    from gpuyard.files import write_text
    from gpuyard.hardware.clusters import machine_of
    from gpuyard.predict import predict as predict_placements
    from gpuyard.predict import scenario_of
    from gpuyard.predict.stacks.next_run import next_run
    from gpuyard.report.answers.clusters import clusters_answer
    from gpuyard.report.answers.predict import predict_answer, sweep_svg, why_svg
    from gpuyard.workloads import profile_of

    if knee_threshold is not None and not why:
        raise UserMistake("--knee-threshold is about what --why explains: add --why")
    if precision is not None:
        parse_precision(precision)
    clusters = _clusters(on or [], topo)
    if svg and len(clusters) > 1:
        raise UserMistake("--svg draws one time line: give one --on")
    spec = read_workload(workload)
    profile = profile_of(spec)
    spec = trained_in_asked(spec, profile, precision)
    exchange = parse_exchange(compress, accumulate, bucket_mb, local_sgd, hierarchical)
    constants = chosen_calibration(calibration)
    if (stored := chosen_results(results)) is not None:
        spec = stored.added_to(spec, profile, parse_strategy(strategy))
    others = [f"{other_jobs} other job{'s' if other_jobs > 1 else ''}"] if other_jobs else []
    how = [strategy, *exchange.words, *others]
    answers = []
    for cluster, graph in clusters:
        scenario = scenario_of(
            spec,
            profile,
            cluster,
            strategy=parse_strategy(strategy),
            exchange=exchange,
            other_jobs=other_jobs,
            calibration=constants,
            graph=graph,
        )
        counts = _counts(gpus, scenario, gpus_per_node, several=len(clusters) > 1)
        batches = parse_counts(batch, "batch size") if batch else []
        if len(counts) * len(batches) > _MOST_ROWS:
            raise UserMistake(
                f"{len(counts):,} numbers of GPUs and {len(batches):,} batch sizes are "
                f"{len(counts) * len(batches):,} predictions, {_MOST_ROWS:,} is the most"
            )
        result = predict_placements(
            scenario, scenario.platform.placements(counts, gpus_per_node), batches
        )
        explained = None
        if why:
            from gpuyard.predict.explain.why import explain

            explained = explain(
                scenario,
                # the first batch of the most GPUs: `max` keeps the first of equals
                max(result.predictions, key=lambda p: p.gpus),
                threshold=units.parse_share(knee_threshold or _KNEE_THRESHOLD),
            )
        answer = predict_answer(
            result,
            how,
            next_run=next_run(scenario, max(result.predictions, key=lambda p: p.gpus)),
            calibration=constants,
            why=explained,
            notes=graph.notes if graph else (),
            gpu=machine_of(cluster)[0],
        )
        if explained and svg:
            write_text(svg, why_svg(explained, answer.title))
        elif svg:
            write_text(svg, sweep_svg(result))
        answers.append((result, answer))
    show(
        answers[0][1] if len(answers) == 1 else clusters_answer(answers, how, whole=why),
        json_output=json_output,
    )


def _clusters(on: list[str], topo: Path | None) -> "list[tuple[Cluster, MachineGraph | None]]":
    from gpuyard.hardware.clusters import cluster_as_wired, read_cluster

    if topo is not None:
        if len(on) > 1:
            raise UserMistake("--topo is about the machine of one cluster: give one --on")
        return [cluster_as_wired(topo, read_cluster(on[0]) if on else None)]
    if not on:
        raise UserMistake(
            "on what? Name a cluster, e.g. --on dgx-a100, --on 2x4xrtx-3090@10G or --on my.cluster.yaml"
        )
    return [(read_cluster(name), None) for name in on]


def _counts(
    asked: str | None, scenario: "PlatformScenario", gpus_per_node: int | None, *, several: bool
) -> list[int]:
    """Of several clusters each shows the numbers that it has."""
    if asked is None:
        return scenario.usual_counts(gpus_per_node)
    counts = parse_counts(asked, "number of GPUs")
    there = [count for count in counts if count <= scenario.platform.gpus]
    return there if several and there else counts
