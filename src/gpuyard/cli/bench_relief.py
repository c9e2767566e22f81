"""`gpuyard bench relief`: what un-chokes an exchange, measured."""

from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.options import JsonOption, console, print_json, print_table
from gpuyard.cli.places import HostsOption, LabOption, SlurmOption, chosen_place

if TYPE_CHECKING:
    from gpuyard.measure.relief import ReliefPlan, ReliefResult, Relieved


def relief(
    workload: Annotated[
        str, typer.Argument(help="A *.workload.yaml file, or the name of a catalog model.")
    ],
    *,
    lab: LabOption = None,
    link: Annotated[
        str | None, typer.Option(help="Instead of --lab: one for this run, with links like 1Gbit.")
    ] = None,
    nodes: Annotated[int, typer.Option(help="Workers, one a node.", min=2)] = 2,
    hosts: HostsOption = None,
    slurm: SlurmOption = False,
    batch: Annotated[int | None, typer.Option(help="Batch of one worker.", min=1)] = None,
    samples: Annotated[
        int, typer.Option(help="Samples that every remedy trains on, at least.", min=1)
    ] = 6000,
    tolerance: Annotated[
        str, typer.Option(help="How much above plain DDP's the loss may be and count as equal.")
    ] = "5 %",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be measured, and measure nothing.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Measure what un-chokes an exchange of gradients, and whether as much is learnt.

    The same samples are trained on with plain DDP and with each remedy that the predictor names, from the same
    weights. A remedy counts only where the loss at the end is about that of plain DDP.

    Example: gpuyard bench relief spoken-digits-linear --link 1Gbit --nodes 2 --batch 50
    """
    from gpuyard.catalog.specfiles import read_workload
    from gpuyard.errors import UserMistake
    from gpuyard.measure.relief import plan_relief
    from gpuyard.units import parse_share

    if link is not None:
        if lab is not None or hosts is not None or slurm:
            raise UserMistake("--link makes a lab of its own: leave out --lab, --hosts and --slurm")
        lab = f"{nodes}x{link}"
    spec = read_workload(workload)
    with chosen_place(lab, hosts, slurm=slurm, planning=dry_run) as place:
        plan = plan_relief(
            spec,
            nodes,
            batch or spec.batch_per_gpu,
            place,
            samples=samples,
            tolerance=parse_share(tolerance),
        )
        if dry_run:
            _show_plan(plan, json_output=json_output)
            return
        result = _run(plan)
    if json_output:
        print_json(result.as_json())
        return
    _show(result)


def _run(plan: "ReliefPlan") -> "ReliefResult":
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from gpuyard.measure.relief import Relieved, run_relief
    from gpuyard.measure.relief.records import ReliefProgress

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        bar = progress.add_task("starting", total=len(plan.remedies))

        def show(event: ReliefProgress | Relieved) -> None:
            if isinstance(event, ReliefProgress):
                label = plan.remedies[event.number].label
                progress.update(bar, completed=event.number + event.fraction, description=label)

        return run_relief(plan, show)


def _show_plan(plan: "ReliefPlan", *, json_output: bool) -> None:
    if json_output:
        print_json(plan.describe())
        return
    print_table(
        f"{plan.sweep.workload.name}: {plan.workers} workers, batch {plan.batch_per_worker}, "
        f"{plan.samples:,} samples each",
        ["remedy"],
        [[remedy.label] for remedy in plan.remedies],
    )


def _show(result: "ReliefResult") -> None:
    from gpuyard.units import format_share

    def learnt(run: "Relieved") -> str:
        share = result.learnt(run)
        return "" if share is None else format_share(share)

    print_table(
        f"{result.workload}: {result.workers} workers, batch {result.batch_per_worker}, "
        f"{result.runs[0].samples:,} samples each",
        ["remedy", "samples/s", "speed-up", "loss", "learnt", ""],
        [
            [
                run.remedy.label,
                f"{run.samples_per_second:,.1f}",
                f"{result.speed_up(run):.2f}",
                "no number" if run.loss is None else f"{run.loss:.4f}",
                learnt(run),
                "" if run.remedy.plain else "equal" if result.equal_loss(run) else "worse",
            ]
            for run in result.runs
        ],
    )
    if result.plain.loss_first is not None:
        console().print(f"Loss before training: {result.plain.loss_first:.4f}.", highlight=False)
    best = result.best
    words = (
        "No remedy is faster at equal loss."
        if best.remedy.plain
        else f"Best at equal loss: {best.remedy.label}, {result.speed_up(best):.2f} × plain DDP."
    )
    console().print(words, highlight=False)
