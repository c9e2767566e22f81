"""`gpuyard catalog gpus`: the table of GPUs, or, with --for, GPUs ranked for a workload."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.catalog.hardware import gpus
from gpuyard.cli.catalog.view import (
    CloudFilter,
    DescendingOption,
    GpuFilter,
    MemoryFilter,
    NameArgument,
    RowChoice,
    gpus_named,
)
from gpuyard.cli.options import (
    PRECISIONS,
    PYTORCHS_DEFAULT,
    parse_precision,
    trained_in_asked,
)
from gpuyard.cli.output import JsonOption, PageOption, show
from gpuyard.errors import UnknownName, UserMistake

if TYPE_CHECKING:
    from gpuyard.report.answer import Answer


def add_gpus(app: typer.Typer) -> None:
    """The command, with more options than other tables have."""

    @app.command("gpus", help=gpus.__doc__)
    def _(
        name: NameArgument = None,
        *,
        workload: Annotated[
            str | None,
            typer.Option(
                "--for", metavar="WORKLOAD", help="Rank GPUs for a workload file or catalog model."
            ),
        ] = None,
        precision: Annotated[
            str | None,
            typer.Option(
                metavar="NAME",
                help=f"With --for: {', '.join(PRECISIONS)}.",
                show_default=PYTORCHS_DEFAULT,
            ),
        ] = None,
        batch: Annotated[
            int | None, typer.Option(min=1, help="With --for: batch size per GPU.")
        ] = None,
        gpu: GpuFilter = None,
        cloud: CloudFilter = None,
        min_memory: MemoryFilter = None,
        sort: Annotated[
            str | None,
            typer.Option(
                metavar="COLUMN",
                help="Sort by a column, smallest first; with --for, best first, by speed, "
                "speed-per-dollar, speed-per-rent, speed-per-watt or memory.",
            ),
        ] = None,
        descending: DescendingOption = False,
        json_output: JsonOption = False,
        html: PageOption = None,
    ) -> None:
        choice = RowChoice(gpu, cloud, min_memory, sort, descending)
        if workload is None:
            _only_with_for(precision=precision, batch=batch, html=html)
            show(gpus().answer(name, choice), json_output=json_output)
            return
        if name is not None:
            raise UserMistake(f"--for ranks all GPUs: choose some with --gpu {name}")
        if descending:
            raise UserMistake("--for ranks the best first: leave out --descending")
        answer = _ranking(workload, precision, batch, choice)
        show(answer, json_output=json_output, html=html)


def _only_with_for(*, precision: str | None, batch: int | None, html: Path | None) -> None:
    given = {"--precision": precision, "--batch": batch, "--html": html}
    for option, value in given.items():
        if value is not None:
            raise UserMistake(f"{option} is about a ranking: add --for WORKLOAD")


def _ranking(
    workload: str, precision: str | None, batch: int | None, choice: RowChoice
) -> "Answer":
    from gpuyard.catalog import gpus as table
    from gpuyard.catalog import prices
    from gpuyard.catalog.published import published_figures
    from gpuyard.catalog.specfiles import read_workload
    from gpuyard.cli.options import chosen_calibration
    from gpuyard.planner.gpu_ranking import rank_gpus
    from gpuyard.report.answers.gpu_ranking import gpu_ranking_answer
    from gpuyard.workloads import profile_of

    if precision is not None:
        parse_precision(precision)
    if choice.cloud is not None:
        known = {price.cloud for price in prices()}
        if choice.cloud not in known:
            raise UnknownName("cloud", choice.cloud, known)
    spec = read_workload(workload)
    profile = profile_of(spec)
    spec = trained_in_asked(spec, profile, precision)
    if batch is not None:
        spec = spec.model_copy(update={"batch_per_gpu": batch})
    wanted = gpus_named(choice.gpu) if choice.gpu else frozenset(table().ids())
    asked = [
        gpu
        for gpu in table()
        if gpu.id in wanted
        and gpu.memory_gb >= (choice.min_memory_gb or 0.0)
        # what needs software of its own is compared with GPUs only where it is named
        and (choice.gpu or not gpu.own_software)
    ]
    sort = choice.sort or "speed"
    clouds = (choice.cloud,) if choice.cloud else ()
    ranked, without = rank_gpus(
        spec,
        profile,
        asked,
        sort=sort,
        clouds=clouds,
        calibration=chosen_calibration(None),
    )
    if choice.cloud is not None:
        ranked = [one for one in ranked if one.rented is not None]
    names = {gpu.id for gpu in asked}
    figures = [
        figure
        for figure in published_figures()
        if figure.model == spec.model and figure.gpu in names and figure.gpus and not figure.note
    ]
    figures.sort(key=lambda f: (-(f.per_gpu or 0.0), f.id))
    return gpu_ranking_answer(spec, ranked, without, figures, sort=sort)
