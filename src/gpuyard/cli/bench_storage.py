"""`gpuyard bench storage`: does storage starve the GPUs?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.options import (
    DryRunOption,
    JsonOption,
    TimePerPointOption,
    console,
    print_json,
    print_table,
)
from gpuyard.cli.storage_tables import print_storage

if TYPE_CHECKING:
    from gpuyard.measure.storage import StorageBench, StoragePlan


def storage(
    path: Annotated[Path, typer.Argument(help="A directory on the storage to be measured.")],
    *,
    model: Annotated[
        str, typer.Option(help="What is trained: a catalog model, unet3d or cosmoflow.")
    ] = "resnet50",
    gpu: Annotated[str, typer.Option(help="A catalog GPU to stand for.")] = "h100-sxm5-80gb",
    gpus: Annotated[int, typer.Option(help="Number of GPUs.", min=1)] = 8,
    batch: Annotated[
        int | None, typer.Option(help="Batch size per GPU (default: MLPerf's).", min=1)
    ] = None,
    dataset: Annotated[
        Path | None,
        typer.Option(help="A data set to read, instead of writing one and removing it."),
    ] = None,
    size: Annotated[str, typer.Option(help="Size of the data set that is written.")] = "1 GB",
    time_per_point: TimePerPointOption = 10.0,
    readers: Annotated[int, typer.Option(help="Threads that read for each GPU.", min=1)] = 4,
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Find how many GPUs this storage keeps busy, by MLPerf Storage's method.

    Reading is real; computing is replaced by a sleep of the real length. Utilisation is compute time over all
    time, and 90 % passes. Where the page cache can't be bypassed, no verdict is given.

    Example: gpuyard bench storage . --model resnet50 --gpu h100-sxm5-80gb --gpus 8
    """
    from gpuyard import paths
    from gpuyard.measure import ResultsStore
    from gpuyard.measure.storage import plan_storage
    from gpuyard.units import parse_bytes

    plan = plan_storage(
        path,
        model=model,
        gpu=gpu,
        count=gpus,
        batch=batch,
        data=dataset,
        seconds=time_per_point,
        readers=readers,
        own_bytes=int(parse_bytes(size)),
    )
    if dry_run:
        _show_plan(plan, json_output=json_output)
        return
    bench = _run(plan)
    ResultsStore(paths.results_file()).add(bench)
    if json_output:
        print_json(bench.model_dump(mode="json"))
        return
    print_storage(bench)


def _run(plan: "StoragePlan") -> "StorageBench":
    from rich.progress import BarColumn, Progress, TextColumn

    from gpuyard.measure.storage import run_storage

    columns = (TextColumn("{task.description}"), BarColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        bar = progress.add_task("starting", total=1.0)
        return run_storage(
            plan,
            lambda what, fraction: progress.update(bar, description=what, completed=fraction),
        )


def _show_plan(plan: "StoragePlan", *, json_output: bool) -> None:
    described = plan.describe()
    if json_output:
        print_json(described)
        return
    rows = [[name.replace("_", " "), str(value)] for name, value in described.items()]
    print_table(f"{plan.path}: would be measured", ["", ""], rows)
