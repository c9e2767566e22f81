"""`gpuyard reserve`: reserve GPUs for a later time."""

from typing import Annotated

import typer

from gpuyard.cli.output import JsonOption, show
from gpuyard.errors import UserMistake


def reserve(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[N] | list | cancel ID", help="Number of GPUs to reserve, or a subcommand."
        ),
    ] = None,
    *,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="WHEN", help="Start, like 'Mon 18:00' or '18:00'."),
    ] = None,
    for_: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="Duration, like 12h.")
    ] = None,
    gpus: Annotated[
        str | None, typer.Option(metavar="LIST", help="GPUs by index, like 0,1.")
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Reserve GPUs for a later time, list reservations, or cancel a reservation.

    Leases of other users end before it starts, and only you get these GPUs until it ends.

    Example: gpuyard reserve 4 --from "Mon 18:00" --for 12h
    """
    words = what or []
    has_options = bool(from_ or for_ or gpus)
    if words == ["list"] and not has_options:
        _list(json_output=json_output)
    elif words[:1] == ["cancel"] and len(words) == 2 and not has_options:
        _cancel(words[1], json_output=json_output)
    elif len(words) <= 1 and all(word.isdigit() for word in words) and from_ and for_:
        _reserve(int(words[0]) if words else None, from_, for_, gpus, json_output=json_output)
    else:
        raise UserMistake(
            "write it like: gpuyard reserve 4 --from 'Mon 18:00' --for 12h, gpuyard reserve list, or "
            "gpuyard reserve cancel ID"
        )


def _reserve(
    count: int | None, from_: str, for_: str, gpus: str | None, *, json_output: bool
) -> None:
    import time

    from gpuyard.cli.share.lease_command import parse_indices
    from gpuyard.report.answer import Answer, Sentence
    from gpuyard.share.client import open_client
    from gpuyard.share.models import ReservationRequest
    from gpuyard.share.timeparse import format_time, parse_time
    from gpuyard.share.views import reservation_document
    from gpuyard.units import parse_seconds

    indices = parse_indices(gpus)
    start = parse_time(from_, time.time())
    end = start + parse_seconds(for_)
    number = count if count is not None else len(indices) or 1
    reservation = open_client().reserve(ReservationRequest(number, start, end, indices))
    sentence = (
        f"Reserved: GPU {', '.join(map(str, reservation.gpus))} from "
        f"{format_time(reservation.start)} to {format_time(end)} ({reservation.id})."
    )
    document = reservation_document(reservation)
    show(Answer([Sentence(sentence)], document, verb="reserve"), json_output=json_output)


def _list(*, json_output: bool) -> None:
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


def _cancel(id_: str, *, json_output: bool) -> None:
    from gpuyard.report.answer import Answer, Sentence
    from gpuyard.share.client import open_client
    from gpuyard.share.views import reservation_document

    canceled = open_client().cancel(id_)
    sentence = f"Canceled reservation {canceled.id} of {canceled.user}."
    document = reservation_document(canceled)
    show(Answer([Sentence(sentence)], document, verb="reserve"), json_output=json_output)
