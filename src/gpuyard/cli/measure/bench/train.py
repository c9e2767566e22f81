"""`gpuyard bench train`: train for a few seconds at each worker count and batch size."""

from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.measure.bench.running import results_store
from gpuyard.cli.measure.places import (
    GpuOption,
    HostsOption,
    LabOption,
    LauncherOption,
    RanksPerNodeOption,
    SlurmOption,
    chosen_place,
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
    measured_in_asked,
    parse_counts,
    parse_exchange,
)
from gpuyard.cli.output import JsonOption, progress_bar, show, shown_if_not_stored
from gpuyard.errors import GpuyardError

if TYPE_CHECKING:
    from gpuyard.measure import Measurement


def train(
    workload: Annotated[
        str, typer.Argument(help="A *.workload.yaml file, or the name of a catalog model.")
    ],
    *,
    workers: Annotated[str, typer.Option(help="Numbers of workers in total, e.g. 1,2.")] = "1,2",
    batch: Annotated[
        str | None,
        typer.Option(help="Batch sizes per worker, e.g. 10,50 (default: the workload's)."),
    ] = None,
    strategy: Annotated[
        str, typer.Option(help="How gradients are exchanged: ddp, dataparallel or horovod.")
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
    """Train for a few seconds at each worker count and batch size, and keep how fast it went.

    Workers are processes with the same number of cores each (or one GPU each, where there are GPUs); with
    --lab, --hosts or --slurm they fill one node after the other. With --gpu nothing is computed: each step
    takes the time that this GPU would, and what is exchanged is real. A sweep that was stopped goes on where it
    was when you run it again.

    Example: gpuyard bench train spoken-digits-linear --workers 1,2 --batch 10,50,200
    """
    worker_counts = parse_counts(workers, "worker count")
    batches = parse_counts(batch, "batch size") if batch is not None else None

    from gpuyard.catalog.specfiles import read_workload
    from gpuyard.measure import plan_sweep, run_sweep
    from gpuyard.measure.training.run import stored_keys
    from gpuyard.measure.training.tables import plan_listing, scaling_listing
    from gpuyard.report.answers.results import shown_answer

    spec = measured_in_asked(read_workload(workload), precision)
    remedy = parse_exchange(compress, accumulate, bucket_mb, local_sgd)
    store = results_store()
    with chosen_place(
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
            stored = set() if fresh else stored_keys(sweep, store)
            answer = shown_answer([plan_listing(sweep, stored)], sweep.describe(stored))
            show(answer, json_output=json_output)
            return
        with (
            shown_if_not_stored(json_output=json_output, document=lambda one: [one]),
            progress_bar() as tell,
        ):
            measurements = run_sweep(
                sweep, store, on_event=lambda event: tell(event.progress), fresh=fresh
            )
    table = scaling_listing(sweep.title, measurements)
    answer = shown_answer([table], [measurement.as_json() for measurement in measurements])
    show(answer, json_output=json_output)
    _say_doubts(measurements)


def _say_doubts(measurements: "list[Measurement]") -> None:
    from gpuyard.measure.credible import NO_LOSS
    from gpuyard.report.terminal import say
    from gpuyard.units import counted

    for m in measurements:
        if m.doubt is not None:
            say(
                f"Doubtful: {m.id}, {counted(m.workers, 'worker')} at a batch of {m.batch_per_worker}: "
                f"{m.doubt}; measure it again with --fresh.",
                "caution",
            )
    if any(m.doubt == NO_LOSS for m in measurements):
        raise GpuyardError(f"{NO_LOSS}: look at data, precision and learning rate first")
