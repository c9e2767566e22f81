"""`gpuyard bench`: measure on this machine."""

from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.bench_collectives import collectives
from gpuyard.cli.options import JsonOption, console, parse_counts, print_json, print_table

if TYPE_CHECKING:
    from gpuyard.measure import LinkBench, Measurement, ResultsStore, Sweep
    from gpuyard.measure.links.plan import LinkPlan

app = typer.Typer(help="Measure on this machine.", no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Measure on this machine."""


app.command()(collectives)


@app.command()
def train(
    workload: Annotated[
        str, typer.Argument(help="A *.workload.yaml file, or the name of a catalog model.")
    ],
    *,
    workers: Annotated[str, typer.Option(help="Worker counts, like 1,2.")] = "1,2",
    batch: Annotated[
        str | None,
        typer.Option(help="Batch sizes of one worker, like 10,50; else the workload's own."),
    ] = None,
    strategy: Annotated[
        str, typer.Option(help="How gradients are exchanged: ddp, dataparallel or horovod.")
    ] = "ddp",
    seconds: Annotated[float, typer.Option(help="Timed seconds of one point.")] = 3.0,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure again what the results store already has.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be measured, and measure nothing.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Train for a few seconds at each worker count and batch size, and keep how fast it went.

    Workers are processes with the same number of cores each (or one GPU each, where there are GPUs).
    A sweep that was stopped goes on where it was when you run it again.

    Example: gpuyard bench train spoken-digits-linear --workers 1,2 --batch 10,50,200
    """
    worker_counts = parse_counts(workers, "worker count")
    batches = parse_counts(batch, "batch size") if batch is not None else None

    from gpuyard import paths
    from gpuyard.catalog.specfiles import read_workload
    from gpuyard.measure import ResultsStore, plan_sweep

    spec = read_workload(workload)
    sweep = plan_sweep(
        spec,
        worker_counts,
        batches or [spec.batch_per_gpu],
        strategy=strategy,
        seconds_per_point=seconds,
    )
    store = ResultsStore(paths.results_file())
    if dry_run:
        _show_plan(sweep, store, fresh=fresh, json_output=json_output)
        return
    measurements = _run(sweep, store, fresh=fresh)
    if json_output:
        print_json([measurement.model_dump(mode="json") for measurement in measurements])
        return
    _show(sweep, measurements)


@app.command()
def links(
    *,
    size: Annotated[
        str, typer.Option("--bytes", help="Size of one copy in one direction, like 256MB.")
    ] = "256 MB",
    repeats: Annotated[int, typer.Option(help="How often each link is timed.")] = 5,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be measured, and measure nothing.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Measure how fast this machine's links are, and say which are slower than they should be.

    Host and each GPU, every pair of GPUs with and without peer access, one way and both ways; memory by
    cores that copy at once; and TCP between two processes over loopback. Links of GPUs are set beside the
    model of this machine: what is more than 25 % below it is slow, and gets its likely cause.

    Example: gpuyard bench links --bytes 256MB --repeats 5
    """
    from gpuyard import paths, units
    from gpuyard.cli.link_tables import print_links, print_plan
    from gpuyard.measure import ResultsStore
    from gpuyard.measure.links.plan import plan_links

    plan = plan_links(int(units.parse_bytes(size)), repeats)
    if dry_run:
        if json_output:
            print_json(plan.describe())
        else:
            print_plan(plan)
        return
    bench = _run_links(plan)
    ResultsStore(paths.results_file()).add(bench)
    if json_output:
        print_json(bench.model_dump(mode="json"))
        return
    print_links(bench)


def _run_links(plan: "LinkPlan") -> "LinkBench":
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from gpuyard.measure.links.run import run_links

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=console(stderr=True),
        transient=True,
    ) as progress:
        bar = progress.add_task("looking around", total=len(plan.links))
        return run_links(
            plan,
            on_link=lambda link, done: progress.update(bar, completed=done, description=link.label),
        )


def _show_plan(sweep: "Sweep", store: "ResultsStore", *, fresh: bool, json_output: bool) -> None:
    stored = {point for point in sweep.points if not fresh and store.find(point.key) is not None}
    if json_output:
        plan = sweep.describe()
        for described, point in zip(plan["points"], sweep.points, strict=True):
            described["stored"] = point in stored
        print_json(plan)
        return
    print_table(
        f"{sweep.workload.name}: {sweep.strategy} on {sweep.device}, "
        f"{sweep.seconds_per_point:g} s a point, {len(sweep.cores_by_worker[0])} core(s) a worker",
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


def _run(sweep: "Sweep", store: "ResultsStore", *, fresh: bool) -> "list[Measurement]":
    from rich.progress import BarColumn, Progress, TextColumn

    from gpuyard import units
    from gpuyard.measure import SweepEvent, run_sweep

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

        return run_sweep(sweep, store, on_event=show, fresh=fresh)


def _show(sweep: "Sweep", measurements: "list[Measurement]") -> None:
    from gpuyard import units

    fewest = min(m.workers for m in measurements)
    one_worker = {
        m.batch_per_worker: m.samples_per_second / m.workers
        for m in measurements
        if m.workers == fewest
    }
    print_table(
        f"{sweep.workload.name}: {sweep.strategy} on {sweep.device}, "
        f"{measurements[0].provenance.data_source}",
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
