"""`gpuyard deploy bench`: runs the founding paper's training sweep on a deployment."""

from typing import Annotated, Literal

import typer

from gpuyard.api.inputs import load_calibration, parse_counts
from gpuyard.cli.completion import complete_gpus, complete_list
from gpuyard.cli.deploy.options import FileArgument
from gpuyard.cli.measure.bench.running import results_store
from gpuyard.cli.options import CalibrationOption, DryRunOption, FreshOption, TimePerPointOption
from gpuyard.cli.output import JsonOption, PageOption, progress_bar, show, show_if_not_stored


def bench(
    file: FileArgument,
    *,
    workload: Annotated[
        str,
        typer.Option(
            metavar="WORKLOAD", help="Workload to train: a catalog model, or a workload file."
        ),
    ] = "resnet50",
    batch: Annotated[
        str | None, typer.Option(help="Batch sizes per GPU (default: 32,64,96).", metavar="N,N,…")
    ] = None,
    nodes: Annotated[
        str | None, typer.Option(help="Numbers of machines (default: 1 to all).", metavar="N,N,…")
    ] = None,
    shapes: Annotated[
        str | None,
        typer.Option(
            help="Measure only these shapes, like 1x10,10x1: one machine with ten GPUs, and ten with one.",
            metavar="MACHINESxGPUS,…",
        ),
    ] = None,
    strategy: Annotated[
        str,
        typer.Option(
            help="Strategies: ddp, horovod (in a lab), or both.",
            metavar="NAME,…",
            autocompletion=complete_list(Literal["ddp", "horovod"]),
        ),
    ] = "ddp",
    link: Annotated[
        str | None,
        typer.Option(
            help="Link rates, if the target can set them, like '1 Gbit/s,100 Mbit/s'.",
            metavar="RATE,…",
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            help="Images in the shared storage, or 'none' (default: gpuyard generates images there).",
            metavar="PATH",
        ),
    ] = None,
    images: Annotated[
        int, typer.Option(help="Number of images to generate, 115 kB each.", metavar="N", min=1)
    ] = 2048,
    gpu: Annotated[
        str | None,
        typer.Option(
            help="Catalog GPU to emulate; a lab emulates its cluster's.",
            metavar="ID",
            autocompletion=complete_gpus,
        ),
    ] = None,
    time_per_point: TimePerPointOption = 8.0,
    fresh: FreshOption = False,
    calibration: CalibrationOption = None,
    dry_run: DryRunOption = False,
    html: PageOption = None,
    json_output: JsonOption = False,
) -> None:
    """Measure how training scales on its machines, and show it next to the prediction.

    It uses one GPU of each machine, several GPUs of one machine, and all GPUs, at each batch size and link rate.
    If it is killed, it continues where it stopped.

    Example: gpuyard deploy bench examples/pair.deployment.yaml --shapes 1x2,2x1 --dry-run
    """

    from gpuyard.api.bench import measure_matrix
    from gpuyard.deploy.access.remote import require_hosts
    from gpuyard.deploy.bench.comparison import compare
    from gpuyard.deploy.bench.data import create_images
    from gpuyard.deploy.bench.plan import BenchOptions, Layout, plan_bench
    from gpuyard.deploy.deployment import load_deployment
    from gpuyard.errors import GpuyardError, UserMistake
    from gpuyard.report.answers.deploy_bench import bench_answer, bench_plan_answer
    from gpuyard.units import parse_rate

    options = BenchOptions(
        workload=workload,
        batches=None if batch is None else parse_counts(batch, "batch size"),
        nodes=None if nodes is None else parse_counts(nodes, "number of machines"),
        rates=None if link is None else [parse_rate(rate.strip()) for rate in link.split(",")],
        data=dataset,
        gpu=gpu,
        seconds_per_point=time_per_point,
        strategies=list(dict.fromkeys(name.strip() for name in strategy.split(","))),
        layouts=None if shapes is None else [Layout.parse(text) for text in shapes.split(",")],
    )
    if shapes is not None and nodes is not None:
        raise UserMistake("give --shapes or --nodes, not both")
    constants = load_calibration(calibration)
    loaded = load_deployment(file)
    planned = plan_bench(loaded, require_hosts(loaded, file), options, query_gpus=not dry_run)
    store = results_store()
    if dry_run:
        stored = set() if fresh else planned.matrix.find_stored_keys(store)
        show(bench_plan_answer(planned, stored), json_output=json_output)
        return
    with (
        loaded.state.hold(),
        show_if_not_stored(
            json_output=json_output, document=lambda measurement: {"measurements": [measurement]}
        ),
    ):
        if planned.images_folder is not None:
            with progress_bar(f"creating {images:,} images in {planned.images_folder}"):
                create_images(planned, images)
        with progress_bar() as on_progress:
            outcome = measure_matrix(planned.matrix, store, fresh=fresh, on_progress=on_progress)
    rows = compare(loaded, planned, outcome.measurements, constants)
    show(bench_answer(planned, rows, outcome), json_output=json_output, html=html)
    if outcome.rejected:
        raise GpuyardError(
            f"{len(outcome.rejected)} of {planned.matrix.points} runs are not valid; see "
            "`gpuyard results list --kind rejected`, and run it again when the machines are quiet"
        )
