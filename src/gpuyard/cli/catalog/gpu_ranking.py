"""`gpuyard catalog gpus`: list GPUs, or rank them for a workload with --model."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.api.inputs import PRECISIONS, apply_precision, parse_precision
from gpuyard.cli.catalog.hardware import gpus
from gpuyard.cli.catalog.view import (
    CloudFilter,
    DescendingOption,
    GpuFilter,
    MemoryFilter,
    NameArgument,
    RowFilter,
    find_gpus,
)
from gpuyard.cli.options import PYTORCHS_DEFAULT
from gpuyard.cli.output import JsonOption, PageOption, show
from gpuyard.errors import UnknownName, UserMistake

if TYPE_CHECKING:
    from gpuyard.report.answer import Answer


def add_gpus(app: typer.Typer) -> None:
    """Add the command, which has more options than those of other tables."""

    @app.command("gpus", help=gpus.__doc__)
    def _(
        name: NameArgument = None,
        *,
        workload: Annotated[
            str | None,
            typer.Option(
                "--model",
                metavar="WORKLOAD",
                help="Rank GPUs for a workload file or catalog model.",
            ),
        ] = None,
        precision: Annotated[
            str | None,
            typer.Option(
                metavar="NAME",
                help=f"Precision with --model: {', '.join(PRECISIONS)}.",
                show_default=PYTORCHS_DEFAULT,
            ),
        ] = None,
        batch: Annotated[
            int | None, typer.Option(min=1, help="Batch size per GPU with --model.")
        ] = None,
        gpu: GpuFilter = None,
        cloud: CloudFilter = None,
        min_memory: MemoryFilter = None,
        sort: Annotated[
            str | None,
            typer.Option(
                metavar="COLUMN",
                help="Column to sort by, smallest first; with --model, best first: speed, "
                "speed-per-dollar, speed-per-rent, speed-per-watt, or memory.",
            ),
        ] = None,
        descending: DescendingOption = False,
        json_output: JsonOption = False,
        html: PageOption = None,
    ) -> None:
        row_filter = RowFilter(gpu, cloud, min_memory, sort, descending)
        if workload is None:
            _check_ranking_options(precision=precision, batch=batch, html=html)
            show(gpus().answer(name, row_filter), json_output=json_output)
            return
        if name is not None:
            raise UserMistake(f"--model ranks all GPUs: choose some with --gpu {name}")
        if descending:
            raise UserMistake("--model ranks the best first: leave out --descending")
        answer = _rank(workload, precision, batch, row_filter)
        show(answer, json_output=json_output, html=html)


def _check_ranking_options(*, precision: str | None, batch: int | None, html: Path | None) -> None:
    options = {"--precision": precision, "--batch": batch, "--html": html}
    for option, value in options.items():
        if value is not None:
            raise UserMistake(f"{option} applies to a ranking only: add --model WORKLOAD")


def _rank(
    workload: str, precision: str | None, batch: int | None, row_filter: RowFilter
) -> "Answer":
    from gpuyard.api.inputs import load_calibration
    from gpuyard.catalog import gpus as table
    from gpuyard.catalog import prices
    from gpuyard.catalog.published import published_figures
    from gpuyard.catalog.specfiles import read_workload
    from gpuyard.planner.gpu_ranking import rank_gpus
    from gpuyard.report.answers.gpu_ranking import gpu_ranking_answer
    from gpuyard.workloads import profile_model

    if precision is not None:
        parse_precision(precision)
    if row_filter.cloud is not None:
        all_clouds = {price.cloud for price in prices()}
        if row_filter.cloud not in all_clouds:
            raise UnknownName("cloud", row_filter.cloud, all_clouds)
    spec = read_workload(workload)
    profile = profile_model(spec)
    spec = apply_precision(spec, profile, precision)
    if batch is not None:
        spec = spec.model_copy(update={"batch_per_gpu": batch})
    names = find_gpus(row_filter.gpu) if row_filter.gpu else frozenset(table().ids())
    candidates = [
        gpu
        for gpu in table()
        if gpu.id in names
        and gpu.memory_gb >= (row_filter.min_memory_gb or 0.0)
        # accelerators without CUDA or ROCm are compared only if they are named
        and (row_filter.gpu or not gpu.needs_vendor_software)
    ]
    sort = row_filter.sort or "speed"
    clouds = (row_filter.cloud,) if row_filter.cloud else ()
    ranked, without = rank_gpus(
        spec,
        profile,
        candidates,
        sort=sort,
        clouds=clouds,
        calibration=load_calibration(None),
    )
    if row_filter.cloud is not None:
        ranked = [gpu for gpu in ranked if gpu.rented is not None]
    candidate_ids = {gpu.id for gpu in candidates}
    figures = [
        figure
        for figure in published_figures()
        if figure.model == spec.model_name
        and figure.gpu in candidate_ids
        and figure.gpus
        and not figure.note
    ]
    figures.sort(key=lambda f: (-(f.per_gpu or 0.0), f.id))
    return gpu_ranking_answer(spec, ranked, without, figures, sort=sort)
