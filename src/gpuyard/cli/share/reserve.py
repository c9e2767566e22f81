"""`gpuyard reserve`: reserve GPUs for a later time."""

from typing import Annotated

import typer

from gpuyard.cli.default_command import run_by_default
from gpuyard.cli.options import GpuIdsOption
from gpuyard.cli.output import JsonOption, show

app = typer.Typer(
    cls=run_by_default("new"),
    help="Reserve GPUs for a later time, list reservations, or cancel one.",
    epilog="gpuyard reserve 4 --start 'Mon 18:00' --for 12h is short for gpuyard reserve new 4 …",
    no_args_is_help=True,
)


@app.command()
def new(
    count: Annotated[
        int | None, typer.Argument(metavar="N", min=1, help="Number of GPUs to reserve.")
    ] = None,
    *,
    start: Annotated[str, typer.Option(metavar="WHEN", help="Start, like 'Mon 18:00' or '18:00'.")],
    for_: Annotated[str, typer.Option("--for", metavar="TIME", help="Duration, like 12h.")],
    gpu_ids: GpuIdsOption = None,
    json_output: JsonOption = False,
) -> None:
    """Reserve GPUs for a later time.

    Leases of other users end before it starts, and only you get these GPUs until it ends.

    Example: gpuyard reserve 4 --start "Mon 18:00" --for 12h
    """
    from gpuyard.api.reservations import reserve

    result = reserve(count, start=start, time=for_, gpu_ids=gpu_ids or ())
    show(result.answer, json_output=json_output)


@app.command("list")
def list_(*, json_output: JsonOption = False) -> None:
    """List reservations.

    Example: gpuyard reserve list
    """
    from gpuyard.api.reservations import reservations

    show(reservations().answer, json_output=json_output)


@app.command()
def cancel(
    id_: Annotated[str, typer.Argument(metavar="ID", help="ID of the reservation; see `list`.")],
    *,
    json_output: JsonOption = False,
) -> None:
    """Cancel a reservation.

    Example: gpuyard reserve cancel r3
    """
    from gpuyard.api.reservations import cancel_reservation

    show(cancel_reservation(id_).answer, json_output=json_output)
