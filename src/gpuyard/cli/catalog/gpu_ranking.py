"""`gpuyard catalog gpus`: list GPUs, or rank them for a workload with --model."""

from pathlib import Path
from typing import Annotated, Any

import typer

from gpuyard.choices import Precision
from gpuyard.cli.catalog.hardware import gpus
from gpuyard.cli.catalog.options import (
    CloudFilter,
    DescendingOption,
    GpuFilter,
    MemoryFilter,
    name_argument,
    sort_option,
)
from gpuyard.cli.catalog.view import RowFilter
from gpuyard.cli.completion import complete_models
from gpuyard.cli.options import PYTORCHS_DEFAULT
from gpuyard.cli.output import JsonOption, PageOption, show
from gpuyard.errors import UserMistake

_NameArgument: Any = name_argument(gpus)
_SortOption: Any = sort_option(
    gpus,
    "; with --model, best first: speed, speed-per-dollar, speed-per-rent, speed-per-watt, or memory",
)


def add_gpus(app: typer.Typer) -> None:
    """Add the command, which has more options than those of other tables."""

    @app.command("gpus", help=gpus.__doc__)
    def _(
        name: _NameArgument = None,
        *,
        workload: Annotated[
            str | None,
            typer.Option(
                "--model",
                metavar="WORKLOAD",
                autocompletion=complete_models,
                help="Rank GPUs for a workload file or catalog model.",
            ),
        ] = None,
        precision: Annotated[
            Precision | None,
            typer.Option(help="Precision with --model.", show_default=PYTORCHS_DEFAULT),
        ] = None,
        batch: Annotated[
            int | None, typer.Option(min=1, help="Batch size per GPU with --model.")
        ] = None,
        gpu: GpuFilter = None,
        cloud: CloudFilter = None,
        min_memory: MemoryFilter = None,
        sort: _SortOption = None,
        descending: DescendingOption = False,
        json_output: JsonOption = False,
        html: PageOption = None,
    ) -> None:
        if workload is None:
            _check_ranking_options(precision=precision, batch=batch, cloud=cloud, html=html)
            row_filter = RowFilter(gpu, None, min_memory, sort, descending)
            show(gpus().answer(name, row_filter), json_output=json_output)
            return
        if name is not None:
            raise UserMistake(f"--model ranks all GPUs: choose some with --gpu {name}")
        if descending:
            raise UserMistake("--model ranks the best first: leave out --descending")
        from gpuyard.api.gpu_ranking import rank_gpus

        ranking = rank_gpus(
            workload,
            precision=precision,
            batch=batch,
            gpu=gpu,
            cloud=cloud,
            min_memory_gb=min_memory or 0.0,
            sort=sort or "speed",
        )
        show(ranking.answer, json_output=json_output, html=html)


def _check_ranking_options(
    *, precision: str | None, batch: int | None, cloud: str | None, html: Path | None
) -> None:
    options = {"--precision": precision, "--batch": batch, "--cloud": cloud, "--html": html}
    for option, value in options.items():
        if value is not None:
            raise UserMistake(f"{option} applies to a ranking only: add --model WORKLOAD")
