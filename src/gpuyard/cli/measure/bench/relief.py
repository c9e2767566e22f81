"""`gpuyard bench relief`: what un-chokes an exchange, measured."""

import math
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.measure.bench.running import results_store, run_bench
from gpuyard.cli.measure.places import (
    HostsOption,
    LabOption,
    LauncherOption,
    RanksPerNodeOption,
    SlurmOption,
    chosen_place,
)
from gpuyard.cli.options import DryRunOption, PrecisionOption, measured_in_asked
from gpuyard.cli.output import JsonOption, progress_bar, shown_if_not_stored

if TYPE_CHECKING:
    from gpuyard.measure.relief.plan import ReliefPlan
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
    precision: PrecisionOption = None,
    samples: Annotated[
        int, typer.Option(help="Least samples that each remedy trains on.", min=1)
    ] = 6000,
    tolerance: Annotated[
        str, typer.Option(help="How much higher than plain DDP's the loss may be.")
    ] = "5 %",
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Measure which remedies speed up a slow exchange of gradients, and whether as much is learned.

    First one worker trains alone for two seconds, unless the results store has that run; from it and the link
    the predictor names the remedies that are worth trying. Then the same samples are trained on with plain DDP
    and with each of them, from the same weights. A remedy counts only if its final loss is about that of plain DDP.

    Example: gpuyard bench relief spoken-digits-linear --link 1Gbit --workers 2 --batch 50
    """
    from gpuyard.catalog.specfiles import read_workload
    from gpuyard.errors import UserMistake
    from gpuyard.measure.relief.plan import CANDIDATES, plan_relief
    from gpuyard.measure.relief.run import run_relief
    from gpuyard.report.terminal import say
    from gpuyard.units import parse_share

    if link is not None:
        if lab is not None or hosts is not None or slurm:
            raise UserMistake("--link makes a lab of its own: leave out --lab, --hosts and --slurm")
        lab = f"{math.ceil(workers / (ranks_per_node or 1))}x{link}"
    spec = measured_in_asked(read_workload(workload), precision)
    with chosen_place(
        lab, hosts, slurm=slurm, ranks_per_node=ranks_per_node, planning=dry_run
    ) as place:

        def planned(gains: "dict[ExchangeOptions, float] | None") -> "ReliefPlan":
            return plan_relief(
                spec,
                workers,
                batch or spec.batch_per_gpu,
                place,
                samples=samples,
                tolerance=parse_share(tolerance),
                remedies=CANDIDATES if gains is None else tuple(gains),
                foreseen=gains,
                launcher=launcher,
            )

        planned(None)  # says what is wrong before anything is measured
        with shown_if_not_stored(json_output=json_output):
            gains = _predicted(spec, workers, batch or spec.batch_per_gpu, place, dry_run=dry_run)
        if not dry_run and gains is not None and not gains:
            say("The predictor names no remedy that would gain 3 % here.")
        run_bench(planned(gains), run_relief, dry_run=dry_run, json_output=json_output)


def _predicted(
    workload: "Workload", workers: int, batch: int, place: "Place", *, dry_run: bool
) -> "dict[ExchangeOptions, float] | None":
    """What the predictor names, from one worker alone; a dry run measures nothing and runs no code.

    None: it names nothing, as the run or the link can't say enough.
    """
    from gpuyard.measure import Measurement, plan_sweep, run_sweep
    from gpuyard.measure.relief.plan import predicted_gains
    from gpuyard.report.terminal import say
    from gpuyard.workloads.profiles import catalog_profile, profile_of

    store = results_store()
    alone = plan_sweep(workload, [1], [batch], seconds_per_point=_ALONE_SECONDS, place=place)
    if dry_run and store.latest(Measurement, alone.points[0].key) is None:
        return None
    with progress_bar() as tell:
        for fresh in (False, True):  # what is stored may be doubtful
            (measured,) = run_sweep(
                alone, store, on_event=lambda event: tell(event.progress), fresh=fresh
            )
            if measured.doubt is None or dry_run:
                break
    if measured.doubt is not None:
        say(
            f"One worker alone is doubtful ({measured.doubt}), so the predictor is not asked: "
            "all remedies are tried.",
            "caution",
        )
        return None
    profile = catalog_profile(workload) or measured.profile
    if profile is None and dry_run:  # an older gpuyard kept none
        return None
    return predicted_gains(
        workload, profile or profile_of(workload), measured, workers, place.record(workers)
    )
