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
    import time

    from gpuyard.cli.share.lease_command import parse_indices
    from gpuyard.report.answer import Answer, Sentence
    from gpuyard.share.client import open_client
    from gpuyard.share.models import ReservationRequest
    from gpuyard.share.timeparse import format_time, parse_time
    from gpuyard.share.views import reservation_document
    from gpuyard.units import parse_seconds

    indices = parse_indices(gpu_ids)
    begin = parse_time(start, time.time())
    end = begin + parse_seconds(for_)
    number = count if count is not None else len(indices) or 1
    reservation = open_client().reserve(ReservationRequest(number, begin, end, indices))
    sentence = (
        f"Reserved: GPU {', '.join(map(str, reservation.gpus))} from "
        f"{format_time(reservation.start)} to {format_time(end)} ({reservation.id})."
    )
    document = reservation_document(reservation)
    show(Answer([Sentence(sentence)], document, verb="reserve"), json_output=json_output)


@app.command("list")
def list_(*, json_output: JsonOption = False) -> None:
    """List reservations.

    Example: gpuyard reserve list
    """
    from gpuyard.report.answers.share.leases import calendar_answer
    from gpuyard.share.client import open_reader
    from gpuyard.share.models import RESERVATION
    from gpuyard.share.views import reservation_document

    documents = [
        reservation_document(reservation)
        for reservation in open_reader().state().reservations
        if reservation.kind == RESERVATION
    ]
    show(calendar_answer(documents), json_output=json_output)


@app.command()
def cancel(
    id_: Annotated[str, typer.Argument(metavar="ID", help="ID of the reservation; see `list`.")],
    *,
    json_output: JsonOption = False,
) -> None:
    """Cancel a reservation.

    Example: gpuyard reserve cancel r3
    """
    from gpuyard.report.answer import Answer, Sentence
    from gpuyard.share.client import open_client
    from gpuyard.share.views import reservation_document

    canceled = open_client().cancel(id_)
    sentence = f"Canceled reservation {canceled.id} of {canceled.user}."
    document = reservation_document(canceled)
    show(Answer([Sentence(sentence)], document, verb="reserve"), json_output=json_output)
