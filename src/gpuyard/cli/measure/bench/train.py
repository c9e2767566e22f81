"""`gpuyard bench train`: train for a few seconds at each worker count and batch size."""

from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.api.inputs import override_precision, parse_counts, parse_exchange
from gpuyard.choices import MeasuredStrategy
from gpuyard.cli.measure.bench.running import results_store
from gpuyard.cli.measure.places import (
    GpuOption,
    HostsOption,
    LabOption,
    LauncherOption,
    RanksPerNodeOption,
    SlurmOption,
    open_place,
)
from gpuyard.cli.options import (
    AccumulateOption,
    BucketOption,
    CompressOption,
    DryRunOption,
    FreshOption,
    LocalSgdOption,
    PrecisionOption,
    TimePerPointOption,
)
from gpuyard.cli.output import JsonOption, progress_bar, show, show_if_not_stored
from gpuyard.errors import GpuyardError

if TYPE_CHECKING:
    from gpuyard.measure import Measurement


def train(
    workload: Annotated[
        str, typer.Argument(help="A *.workload.yaml file, or the name of a catalog model.")
    ],
    *,
    workers: Annotated[
        str, typer.Option(metavar="N,N,…", help="Numbers of workers in total, e.g. 1,2.")
    ] = "1,2",
    batch: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,…", help="Batch sizes per worker, e.g. 10,50 (default: the workload's)."
        ),
    ] = None,
    strategy: Annotated[
        MeasuredStrategy, typer.Option(help="Strategy of gradient exchange.")
    ] = "ddp",
    time_per_point: TimePerPointOption = 3.0,
    precision: PrecisionOption = None,
    compress: CompressOption = None,
    accumulate: AccumulateOption = 1,
    bucket_mb: BucketOption = None,
    local_sgd: LocalSgdOption = 1,
    gpu: GpuOption = None,
    lab: LabOption = None,
    hosts: HostsOption = None,
    slurm: SlurmOption = False,
    ranks_per_node: RanksPerNodeOption = None,
    launcher: LauncherOption = None,
    fresh: FreshOption = False,
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Train for a few seconds at each worker count and batch size, and store the speed.

    Workers are processes with the same number of cores each, or one GPU each if there are GPUs. With --lab, --hosts,
    or --slurm they fill one node after another. With --gpu, steps only wait as long as that GPU would compute, but
    gradients are really exchanged. If you stop a sweep and run it again, it continues where it stopped.

    Example: gpuyard bench train spoken-digits-linear --workers 1,2 --batch 10,50,200
    """
    worker_counts = parse_counts(workers, "worker count")
    batches = parse_counts(batch, "batch size") if batch is not None else None

    from gpuyard.catalog.specfiles import read_workload
    from gpuyard.measure import plan_sweep, run_sweep
    from gpuyard.measure.training.run import find_stored_keys
    from gpuyard.measure.training.tables import build_plan_table, build_scaling_table
    from gpuyard.report.answers.results import content_answer

    spec = override_precision(read_workload(workload), precision)
    remedy = parse_exchange(compress, accumulate, bucket_mb, local_sgd)
    store = results_store()
    with open_place(
        lab, hosts, slurm=slurm, ranks_per_node=ranks_per_node, planning=dry_run
    ) as place:
        sweep = plan_sweep(
            spec,
            worker_counts,
            batches or [spec.batch_per_gpu],
            strategy=strategy,
            seconds_per_point=time_per_point,
            remedy=remedy,
            gpu=gpu,
            place=place,
            launcher=launcher,
        )
        if dry_run:
            stored = set() if fresh else find_stored_keys(sweep, store)
            answer = content_answer([build_plan_table(sweep, stored)], sweep.describe(stored))
            show(answer, json_output=json_output)
            return
        with (
            show_if_not_stored(json_output=json_output, document=lambda record: [record]),
            progress_bar() as on_progress,
        ):
            measurements = run_sweep(
                sweep, store, on_event=lambda event: on_progress(event.progress), fresh=fresh
            )
    table = build_scaling_table(sweep.title, measurements)
    answer = content_answer([table], [measurement.as_json() for measurement in measurements])
    show(answer, json_output=json_output)
    _report_doubts(measurements)


def _report_doubts(measurements: "list[Measurement]") -> None:
    from gpuyard.measure.validity import NAN_LOSS
    from gpuyard.report.terminal import print_line
    from gpuyard.units import format_count

    for m in measurements:
        if m.doubt is not None:
            print_line(
                f"Doubtful: {m.id}, {format_count(m.workers, 'worker')} at a batch of {m.batch_per_worker}: "
                f"{m.doubt}; measure it again with --fresh.",
                "caution",
            )
    if any(m.doubt == NAN_LOSS for m in measurements):
        raise GpuyardError(f"{NAN_LOSS}; check the data, precision, and learning rate")
