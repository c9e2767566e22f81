"""`gpuyard deploy bench`: the sweep of the founding paper on what was deployed."""

from typing import Annotated

import typer

from gpuyard.cli.deploy.options import FileArgument
from gpuyard.cli.measure.bench.running import results_store, run_with_bar
from gpuyard.cli.options import (
    CalibrationOption,
    DryRunOption,
    FreshOption,
    TimePerPointOption,
    chosen_calibration,
    parse_counts,
)
from gpuyard.cli.output import JsonOption, PageOption, progress_bar, show, shown_if_not_stored


def bench(
    file: FileArgument,
    *,
    workload: Annotated[
        str, typer.Option(help="What to train: a catalog model, or a workload file.")
    ] = "resnet50",
    batch: Annotated[
        str | None, typer.Option(help="Batch sizes per GPU (default: 32,64,96).", metavar="N,N,…")
    ] = None,
    nodes: Annotated[
        str | None, typer.Option(help="Numbers of machines (default: 1 to all).", metavar="N,N,…")
    ] = None,
    link: Annotated[
        str | None,
        typer.Option(
            help="Speeds of links, where the target can set them, like '1 Gbit/s,100 Mbit/s'.",
            metavar="RATE,…",
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="Images in the shared storage, or 'none' (default: images are made there).",
            metavar="FOLDER",
        ),
    ] = None,
    images: Annotated[
        int, typer.Option(help="How many images are made, of 115 kB each.", metavar="N", min=1)
    ] = 2048,
    gpu: Annotated[
        str | None, typer.Option(help="Emulate this catalog GPU; a lab emulates its cluster's.")
    ] = None,
    time_per_point: TimePerPointOption = 8.0,
    fresh: FreshOption = False,
    calibration: CalibrationOption = None,
    dry_run: DryRunOption = False,
    html: PageOption = None,
    json_output: JsonOption = False,
) -> None:
    """Measure how training scales on its machines, and show it next to the prediction.

    One GPU of each machine, several GPUs of one machine, and all GPUs of all; at each batch and link speed.
    If it is killed, it continues where it stopped.

    Example: gpuyard deploy bench examples/pair.deployment.yaml --dry-run
    """
    from gpuyard.deploy import deployment as room
    from gpuyard.deploy.access.remote import hosts_of
    from gpuyard.deploy.bench.compared import compare
    from gpuyard.deploy.bench.data import make_data
    from gpuyard.deploy.bench.plan import BenchOptions, plan_bench
    from gpuyard.errors import GpuyardError
    from gpuyard.report.answers.deploy_bench import bench_answer, bench_plan_answer
    from gpuyard.units import parse_rate

    options = BenchOptions(
        workload=workload,
        batches=None if batch is None else parse_counts(batch, "batch size"),
        nodes=None if nodes is None else parse_counts(nodes, "number of machines"),
        rates=None if link is None else [parse_rate(one.strip()) for one in link.split(",")],
        data=data,
        gpu=gpu,
        seconds_per_point=time_per_point,
    )
    constants = chosen_calibration(calibration)
    opened = room.open_deployment(file)
    planned = plan_bench(opened, hosts_of(opened, file), options, asks=not dry_run)
    store = results_store()
    if dry_run:
        stored = set() if fresh else planned.matrix.stored_keys(store)
        show(bench_plan_answer(planned, stored), json_output=json_output)
        return
    with (
        opened.state.changing(),
        shown_if_not_stored(json_output=json_output, document=lambda one: {"measurements": [one]}),
    ):
        if planned.makes is not None:
            with progress_bar(f"making {images:,} images in {planned.makes}"):
                make_data(planned, images)
        outcome = run_with_bar(planned.matrix, store, fresh=fresh)
    rows = compare(opened, planned, outcome.measurements, constants)
    show(bench_answer(planned, rows, outcome), json_output=json_output, html=html)
    if outcome.rejected:
        raise GpuyardError(
            f"{len(outcome.rejected)} of {planned.matrix.points} runs are not credible; see "
            "`gpuyard results list --kind rejected`, and run it again when the machines are quiet"
        )
