"""Measure which remedies speed up a slow gradient exchange, and whether the model learns as much with them."""

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gpuyard.api.hardware_bench import measure_plan
from gpuyard.api.inputs import override_precision, read_quantity, read_workload
from gpuyard.api.result import Result, Row
from gpuyard.api.training_bench import open_place
from gpuyard.choices import Launcher
from gpuyard.errors import UserMistake
from gpuyard.files import results_file
from gpuyard.measure.progress import ProgressCallback, ProgressUpdate
from gpuyard.measure.relief.plan import CANDIDATES, plan_relief, predict_gains
from gpuyard.measure.relief.run import run_relief
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training.plan import plan_sweep
from gpuyard.measure.training.records import Measurement
from gpuyard.measure.training.run import run_sweep
from gpuyard.run.places import Place
from gpuyard.units import parse_share
from gpuyard.workloads.profiles import catalog_profile, profile_model

if TYPE_CHECKING:
    from gpuyard.specs import ExchangeOptions, Workload

_ALONE_SECONDS = 2.0


def relief(
    workload: "str | Path | Workload",
    *,
    lab: str | None = None,
    link: str | None = None,
    workers: int = 2,
    hosts: str | None = None,
    slurm: bool = False,
    ranks_per_node: int | None = None,
    launcher: Launcher | None = None,
    batch: int | None = None,
    precision: str | None = None,
    min_samples: int = 6000,
    tolerance: str | float = "5%",
    dry_run: bool = False,
    on_progress: ProgressCallback | None = None,
) -> Result[Row]:
    """Train plain DDP and each promising remedy on the same samples; `link` creates a temporary lab of that rate."""
    if link is not None:
        if lab is not None or hosts is not None or slurm:
            raise UserMistake(
                "--link creates a temporary lab; leave out --lab, --hosts, and --slurm"
            )
        lab = f"{math.ceil(workers / (ranks_per_node or 1))}x{link}"
    spec = override_precision(read_workload(workload), precision)
    report = on_progress or (lambda _progress: None)
    with open_place(
        lab, hosts, slurm=slurm, ranks_per_node=ranks_per_node, planning=dry_run
    ) as place:
        batch = batch or spec.batch_per_gpu
        plan = partial(
            plan_relief,
            spec,
            workers,
            batch,
            place,
            samples=min_samples,
            tolerance=read_quantity(tolerance, parse_share),
            launcher=launcher,
        )
        chosen = plan(remedies=CANDIDATES, predicted_gains=None)  # raises for wrong options
        gains = _predict_gains(spec, workers, batch, place, report, dry_run=dry_run)
        if gains is not None:
            chosen = plan(remedies=tuple(gains), predicted_gains=gains)
            if not gains and not dry_run:
                report(ProgressUpdate("", message="No remedy is predicted to gain 3% here."))
        return measure_plan(chosen, run_relief, dry_run=dry_run, on_progress=on_progress)


def _predict_gains(
    workload: "Workload",
    workers: int,
    batch: int,
    place: Place,
    report: ProgressCallback,
    *,
    dry_run: bool,
) -> "dict[ExchangeOptions, float] | None":
    """Predict the gain of each remedy from a run of one worker; None if that is not possible.

    A dry run measures nothing and executes no model code.
    """
    store = ResultsStore(results_file())
    alone = plan_sweep(workload, [1], [batch], seconds_per_point=_ALONE_SECONDS, place=place)
    if dry_run and store.latest(Measurement, alone.points[0].key) is None:
        return None
    for fresh in (False, True):  # a stored run may be doubtful
        (measured,) = run_sweep(
            alone, store, on_event=lambda event: report(event.progress), fresh=fresh
        )
        if measured.doubt is None or dry_run:
            break
    if measured.doubt is not None:
        doubt = f"The run of one worker is doubtful ({measured.doubt}), so all remedies are tried."
        report(ProgressUpdate("", message=doubt))
        return None
    profile = catalog_profile(workload) or measured.profile
    if profile is None and dry_run:  # an older gpuyard did not store it
        return None
    return predict_gains(
        workload, profile or profile_model(workload), measured, workers, place.record(workers)
    )
