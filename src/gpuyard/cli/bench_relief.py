"""`gpuyard bench relief`: what un-chokes an exchange, measured."""

import math
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.options import DryRunOption, JsonOption, console, print_json, print_table
from gpuyard.cli.places import (
    HostsOption,
    LabOption,
    LauncherOption,
    RanksPerNodeOption,
    SlurmOption,
    chosen_place,
)
from gpuyard.cli.relief_tables import print_relief

if TYPE_CHECKING:
    from gpuyard.measure import ResultsStore
    from gpuyard.measure.relief import ReliefPlan, ReliefResult
    from gpuyard.run.places import Place
    from gpuyard.specs import ExchangeOptions, Workload

_ALONE_SECONDS = 2.0


def relief(
    workload: Annotated[
        str, typer.Argument(help="A *.workload.yaml file, or the name of a catalog model.")
    ],
    *,
    lab: LabOption = None,
    link: Annotated[
        str | None, typer.Option(help="Instead of --lab: one for this run, with links like 1Gbit.")
    ] = None,
    workers: Annotated[int, typer.Option(help="Workers in total.", min=2)] = 2,
    hosts: HostsOption = None,
    slurm: SlurmOption = False,
    ranks_per_node: RanksPerNodeOption = None,
    launcher: LauncherOption = None,
    batch: Annotated[
        int | None, typer.Option(help="Batch size per worker (default: the workload's).", min=1)
    ] = None,
    samples: Annotated[
        int, typer.Option(help="Least samples that each remedy trains on.", min=1)
    ] = 6000,
    tolerance: Annotated[
        str, typer.Option(help="How much higher than plain DDP's the loss may be.")
    ] = "5 %",
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Measure what un-chokes an exchange of gradients, and whether as much is learnt.

    First one worker trains alone for two seconds, unless the results store has that; from it and the link the
    predictor names the remedies that are worth it. Then the same samples are trained on with plain DDP and with
    each of them, from the same weights. A remedy counts only where the loss at the end is about that of plain DDP.

    Example: gpuyard bench relief spoken-digits-linear --link 1Gbit --workers 2 --batch 50
    """
    from gpuyard import paths
    from gpuyard.catalog.specfiles import read_workload
    from gpuyard.errors import UserMistake
    from gpuyard.measure import ResultsStore
    from gpuyard.measure.relief import CANDIDATES, plan_relief
    from gpuyard.units import parse_share

    if link is not None:
        if lab is not None or hosts is not None or slurm:
            raise UserMistake("--link makes a lab of its own: leave out --lab, --hosts and --slurm")
        lab = f"{math.ceil(workers / (ranks_per_node or 1))}x{link}"
    spec = read_workload(workload)
    store = ResultsStore(paths.results_file())
    with chosen_place(
        lab, hosts, slurm=slurm, ranks_per_node=ranks_per_node, planning=dry_run
    ) as place:

        def planned(foreseen: "dict[ExchangeOptions, float] | None") -> "ReliefPlan":
            return plan_relief(
                spec,
                workers,
                batch or spec.batch_per_gpu,
                place,
                samples=samples,
                tolerance=parse_share(tolerance),
                remedies=CANDIDATES if foreseen is None else tuple(foreseen),
                foreseen=foreseen,
                launcher=launcher,
            )

        planned(None)  # says what is wrong before anything is measured
        foreseen = _foreseen(
            spec, workers, batch or spec.batch_per_gpu, place, store=store, dry_run=dry_run
        )
        plan = planned(foreseen)
        if dry_run:
            _show_plan(plan, json_output=json_output)
            return
        if foreseen is not None and not foreseen:
            console(stderr=True).print(
                "The predictor names no remedy that would gain 3 % here.", highlight=False
            )
        result = _run(plan)
    store.add(result)
    if json_output:
        print_json(result.as_json())
        return
    print_relief(result)


def _foreseen(
    workload: "Workload",
    workers: int,
    batch: int,
    place: "Place",
    *,
    store: "ResultsStore",
    dry_run: bool,
) -> "dict[ExchangeOptions, float] | None":
    """What the predictor names, from one worker alone; nothing is measured in a dry run."""
    from gpuyard.measure import plan_sweep, run_sweep
    from gpuyard.measure.relief import foreseen_gains
    from gpuyard.measure.training.matrix import judge_of

    alone = plan_sweep(workload, [1], [batch], seconds_per_point=_ALONE_SECONDS, place=place)
    stored = store.find(alone.points[0].key)
    if stored is None and dry_run:
        return None
    if stored is None:
        with console(stderr=True).status("one worker alone"):
            (stored,) = run_sweep(alone, store, judge=judge_of(alone), keep_doubtful=True)
    return foreseen_gains(workload, stored, workers, place.record(workers))


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
        ["remedy", "foreseen"],
        [
            [remedy.label, "" if gain is None else f"{gain:.2f} ×"]
            for remedy, gain in zip(plan.remedies, plan.foreseen, strict=True)
        ],
    )
