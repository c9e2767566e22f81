"""`gpuyard bench relief`: measure which remedies speed up a slow gradient exchange."""

import math
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.api.inputs import override_precision
from gpuyard.cli.measure.bench.running import results_store, run_bench
from gpuyard.cli.measure.places import (
    HostsOption,
    LabOption,
    LauncherOption,
    RanksPerNodeOption,
    SlurmOption,
)
from gpuyard.cli.options import DryRunOption, PrecisionOption
from gpuyard.cli.output import JsonOption, progress_bar, show_if_not_stored

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
        str | None,
        typer.Option(
            metavar="RATE", help="Link rate of a temporary lab, like 1Gbit; replaces --lab."
        ),
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
    min_samples: Annotated[
        int, typer.Option(help="Minimum number of samples that each remedy trains on.", min=1)
    ] = 6000,
    tolerance: Annotated[
        str, typer.Option(metavar="SHARE", help="Maximum increase of the loss over plain DDP.")
    ] = "5%",
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Measure which remedies speed up a slow gradient exchange, and whether the model learns as much.

    First, one worker trains alone for two seconds, unless the results store has that run. From it and the link, the
    predictor selects the remedies that are worth trying. Then plain DDP and each remedy train on the same samples
    from the same weights. A remedy counts only if its final loss is about that of plain DDP.

    Example: gpuyard bench relief spoken-digits-linear --link 1Gbit --workers 2 --batch 50
    """
    from gpuyard.api.bench import open_place
    from gpuyard.catalog.specfiles import read_workload
    from gpuyard.errors import UserMistake
    from gpuyard.measure.relief.plan import CANDIDATES, plan_relief
    from gpuyard.measure.relief.run import run_relief
    from gpuyard.report.terminal import print_line
    from gpuyard.units import parse_share

    if link is not None:
        if lab is not None or hosts is not None or slurm:
            raise UserMistake(
                "--link creates a temporary lab; leave out --lab, --hosts, and --slurm"
            )
        lab = f"{math.ceil(workers / (ranks_per_node or 1))}x{link}"
    spec = override_precision(read_workload(workload), precision)
    with open_place(
        lab, hosts, slurm=slurm, ranks_per_node=ranks_per_node, planning=dry_run
    ) as place:

        def plan(gains: "dict[ExchangeOptions, float] | None") -> "ReliefPlan":
            return plan_relief(
                spec,
                workers,
                batch or spec.batch_per_gpu,
                place,
                samples=min_samples,
                tolerance=parse_share(tolerance),
                remedies=CANDIDATES if gains is None else tuple(gains),
                predicted_gains=gains,
                launcher=launcher,
            )

        plan(None)  # raises for wrong options before anything is measured
        with show_if_not_stored(json_output=json_output):
            gains = _predict_gains(
                spec, workers, batch or spec.batch_per_gpu, place, dry_run=dry_run
            )
        if not dry_run and gains is not None and not gains:
            print_line("No remedy is predicted to gain 3% here.")
        run_bench(plan(gains), run_relief, dry_run=dry_run, json_output=json_output)


def _predict_gains(
    workload: "Workload", workers: int, batch: int, place: "Place", *, dry_run: bool
) -> "dict[ExchangeOptions, float] | None":
    """Predict the gain of each remedy from a run of one worker; None if that is not possible.

    A dry run measures nothing and executes no model code.
    """
    from gpuyard.measure import Measurement, plan_sweep, run_sweep
    from gpuyard.measure.relief.plan import predict_gains
    from gpuyard.report.terminal import print_line
    from gpuyard.workloads.profiles import catalog_profile, profile_model

    store = results_store()
    alone = plan_sweep(workload, [1], [batch], seconds_per_point=_ALONE_SECONDS, place=place)
    if dry_run and store.latest(Measurement, alone.points[0].key) is None:
        return None
    with progress_bar() as on_progress:
        for fresh in (False, True):  # a stored run may be doubtful
            (measured,) = run_sweep(
                alone, store, on_event=lambda event: on_progress(event.progress), fresh=fresh
            )
            if measured.doubt is None or dry_run:
                break
    if measured.doubt is not None:
        print_line(
            f"The run of one worker is doubtful ({measured.doubt}), so all remedies are tried.",
            "caution",
        )
        return None
    profile = catalog_profile(workload) or measured.profile
    if profile is None and dry_run:  # an older gpuyard did not store it
        return None
    return predict_gains(
        workload, profile or profile_model(workload), measured, workers, place.record(workers)
    )
