"""`gpuyard bench train`: train for a few seconds at each worker count and batch size."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.choices import MeasuredStrategy
from gpuyard.cli.measure.bench.running import run_bench
from gpuyard.cli.measure.places import (
    GpuOption,
    HostsOption,
    LabOption,
    LauncherOption,
    RanksPerNodeOption,
    SlurmOption,
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
from gpuyard.cli.output import JsonOption
from gpuyard.errors import GpuyardError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuyard.api.result import Row


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
    from gpuyard.api.training_bench import train as measure_training

    run = partial(
        measure_training,
        workload,
        workers=workers,
        batch=batch,
        strategy=strategy,
        time_per_point=time_per_point,
        precision=precision,
        compress=compress,
        accumulate=accumulate,
        bucket_mb=bucket_mb,
        local_sgd=local_sgd,
        gpu=gpu,
        lab=lab,
        hosts=hosts,
        slurm=slurm,
        ranks_per_node=ranks_per_node,
        launcher=launcher,
        fresh=fresh,
    )
    result = run_bench(
        run, dry_run=dry_run, json_output=json_output, document=lambda record: [record]
    )
    if result is not None:
        _report_doubts(result.rows)


def _report_doubts(measurements: "Sequence[Row]") -> None:
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
