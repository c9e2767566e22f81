"""`gpuyard predict`: how a workload would scale on hardware that may not be here."""

from pathlib import Path
from typing import Annotated

import typer

from gpuyard.cli.calibrations import CalibrationOption, chosen_calibration
from gpuyard.cli.exchange_options import (
    AccumulateOption,
    BucketOption,
    CompressOption,
    HierarchicalOption,
    LocalSgdOption,
    parse_exchange,
    parse_strategy,
)
from gpuyard.cli.options import parse_counts
from gpuyard.cli.output import JsonOption, show
from gpuyard.errors import UserMistake

_KNEE_THRESHOLD = "50 %"


def predict(
    workload: Annotated[str, typer.Argument(help="A *.workload.yaml, or a catalog model.")],
    *,
    on: Annotated[
        str, typer.Option(help="A *.cluster.yaml, or a catalog machine.", metavar="CLUSTER")
    ],
    gpus: Annotated[str, typer.Option(help="Numbers of GPUs, e.g. 1,2,4,8.")] = "1,2,4,8",
    gpus_per_node: Annotated[
        int | None, typer.Option(min=1, help="GPUs used in each machine.")
    ] = None,
    batch: Annotated[str | None, typer.Option(help="Batch sizes per GPU, e.g. 32,64.")] = None,
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
        Path | None, typer.Option(help="With --why: write the time line to this file.")
    ] = None,
    calibration: CalibrationOption = None,
    json_output: JsonOption = False,
) -> None:
    """Predict samples/s, scaling efficiency and the choke for numbers of GPUs.

    Example: gpuyard predict resnet50 --on dgx-1-v100 --gpus 1,2,4,8 --batch 64
    """
    from gpuyard import units
    from gpuyard.catalog.specfiles import read_cluster, read_workload
    from gpuyard.files import write_text
    from gpuyard.predict import predict as predict_placements
    from gpuyard.predict import scenario_of
    from gpuyard.report.answers.predict import predict_answer, why_svg
    from gpuyard.workloads import profile_of

    if svg and not why:
        raise UserMistake("--svg draws what --why explains: add --why")
    if knee_threshold is not None and not why:
        raise UserMistake("--knee-threshold is about what --why explains: add --why")
    spec = read_workload(workload)
    exchange = parse_exchange(compress, accumulate, bucket_mb, local_sgd, hierarchical)
    constants = chosen_calibration(calibration)
    counts = parse_counts(gpus, "number of GPUs")
    scenario = scenario_of(
        spec,
        profile_of(spec),
        read_cluster(on),
        strategy=parse_strategy(strategy),
        exchange=exchange,
        beside=other_jobs,
        calibration=constants,
    )
    result = predict_placements(
        scenario,
        scenario.platform.placements(counts, gpus_per_node),
        parse_counts(batch, "batch size") if batch else (),
    )
    others = [f"{other_jobs} other job{'s' if other_jobs > 1 else ''}"] if other_jobs else []
    how = [strategy, *exchange.words, *others]
    explained = None
    if why:
        from gpuyard.predict.explain.why import explain

        explained = explain(
            scenario,
            # the first batch of the most GPUs: `max` keeps the first of equals
            max(result.predictions, key=lambda p: p.gpus),
            threshold=units.parse_share(knee_threshold or _KNEE_THRESHOLD),
        )
    answer = predict_answer(result, how, calibration=constants, why=explained)
    if explained and svg:
        write_text(svg, why_svg(explained, f"{answer.title} ({', '.join(how)})"))
    show(answer, json_output=json_output)
