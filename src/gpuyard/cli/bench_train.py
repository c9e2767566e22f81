"""`gpuyard bench train`: train for a few seconds at each worker count and batch size."""

from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.exchange_options import (
    AccumulateOption,
    BucketOption,
    CompressOption,
    LocalSgdOption,
    parse_exchange,
)
from gpuyard.cli.options import (
    DryRunOption,
    FreshOption,
    JsonOption,
    TimePerPointOption,
    console,
    parse_counts,
    print_json,
    print_table,
)
from gpuyard.cli.places import (
    GpuOption,
    HostsOption,
    LabOption,
    LauncherOption,
    RanksPerNodeOption,
    SlurmOption,
    chosen_place,
)
from gpuyard.errors import GpuyardError

if TYPE_CHECKING:
    from gpuyard.measure import Measurement, ResultsStore, Sweep


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

    from gpuyard import paths
    from gpuyard.catalog.specfiles import read_workload
    from gpuyard.measure import ResultsStore, plan_sweep

    spec = read_workload(workload)
    remedy = parse_exchange(compress, accumulate, bucket_mb, local_sgd)
    store = ResultsStore(paths.results_file())
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
            _show_plan(sweep, store, fresh=fresh, json_output=json_output)
            return
        measurements = _run(sweep, store, fresh=fresh)
    if json_output:
        print_json([measurement.model_dump(mode="json") for measurement in measurements])
    else:
        _show(sweep, measurements)
    _say_doubts(measurements)


def _show_plan(sweep: "Sweep", store: "ResultsStore", *, fresh: bool, json_output: bool) -> None:
    stored = {point for point in sweep.points if not fresh and store.find(point.key) is not None}
    if json_output:
        plan = sweep.describe()
        for described, point in zip(plan["points"], sweep.points, strict=True):
            described["stored"] = point in stored
        print_json(plan)
        return
    cores = len(sweep.cores_by_worker[0])  # 0: other hosts say themselves what a worker gets
    print_table(
        f"{_title(sweep)}, {sweep.seconds_per_point:g} s a point"
        + (f", {cores} core(s) a worker" if cores else ""),
        ["workers", "batch a worker", ""],
        [
            [
                str(point.workers),
                str(point.batch_per_worker),
                "in the store" if point in stored else "would be measured",
            ]
            for point in sweep.points
        ],
    )


def _title(sweep: "Sweep") -> str:
    on = f"synthetic {sweep.synthetic.gpu}" if sweep.synthetic else sweep.device
    remedy = "" if sweep.remedy.plain else f" with {sweep.remedy.label}"
    from gpuyard.cli.run_tables import words_of

    place = sweep.place.record(len(sweep.cores_by_worker))
    where = "" if place.kind == "here" else f", {words_of(place)}"
    return f"{sweep.workload.name}: {sweep.strategy}{remedy} on {on}{where}"


def _run(sweep: "Sweep", store: "ResultsStore", *, fresh: bool) -> "list[Measurement]":
    from rich.progress import BarColumn, Progress, TextColumn

    from gpuyard import units
    from gpuyard.measure import SweepEvent, run_sweep
    from gpuyard.measure.training.matrix import judge_of

    done: dict[str, float] = {}
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
        TextColumn("{task.fields[left]}"),
        console=console(stderr=True),
        transient=True,
    ) as progress:
        bar = progress.add_task("starting", total=len(sweep.points), left="")

        def show(event: SweepEvent) -> None:
            done[event.point.key] = event.fraction
            progress.update(
                bar,
                completed=sum(done.values()),
                description=f"{event.point.workers} worker(s), batch {event.point.batch_per_worker}",
                left=f"{units.format_seconds(max(1, round(event.left_seconds)))} left",
            )

        return run_sweep(
            sweep, store, on_event=show, fresh=fresh, judge=judge_of(sweep), keep_doubtful=True
        )


def _say_doubts(measurements: "list[Measurement]") -> None:
    from gpuyard.measure.credible import NO_LOSS

    doubtful = [m for m in measurements if m.doubt is not None]
    for m in doubtful:
        console(stderr=True).print(
            f"Doubtful: {m.id}, {m.workers} worker(s) at a batch of {m.batch_per_worker}: {m.doubt}; "
            "measure it again with --fresh.",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
    if any(m.doubt == NO_LOSS for m in doubtful):
        raise GpuyardError(f"{NO_LOSS}: look at data, precision and learning rate first")


def _show(sweep: "Sweep", measurements: "list[Measurement]") -> None:
    from gpuyard import units

    fewest = min(m.workers for m in measurements)
    one_worker = {
        m.batch_per_worker: m.samples_per_second / m.workers
        for m in measurements
        if m.workers == fewest
    }
    print_table(
        f"{_title(sweep)}, {measurements[0].provenance.data_source}",
        [
            "id",
            "workers",
            "batch",
            "samples/s",
            "±",
            "efficiency",
            "step",
            "compute",
            "exposed comm.",
            "input",
        ],
        [
            [
                m.id,
                str(m.workers),
                str(m.batch_per_worker),
                f"{m.samples_per_second:,.1f}",
                f"{100 * (m.high - m.low) / 2 / m.samples_per_second:.1f} %",
                units.format_share(
                    m.samples_per_second / m.workers / one_worker[m.batch_per_worker]
                ),
                units.format_seconds(m.step.step_seconds),
                units.format_seconds(m.step.compute_seconds),
                units.format_seconds(m.step.exposed_communication_seconds),
                units.format_seconds(m.step.input_seconds),
            ]
            for m in measurements
        ],
    )
