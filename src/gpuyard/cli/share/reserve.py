"""`gpuyard reserve`: GPUs for a time to come."""

from typing import Annotated

import typer

from gpuyard.cli.output import JsonOption, show
from gpuyard.errors import UserMistake


def reserve(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[N] | list | cancel ID", help="How many GPUs, or what to do with reservations."
        ),
    ] = None,
    *,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="WHEN", help="When it starts, like 'Mon 18:00' or '18:00'."),
    ] = None,
    for_: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="How long it lasts, like 12h.")
    ] = None,
    gpus: Annotated[
        str | None, typer.Option(metavar="LIST", help="Which GPUs, by index, like 0,1.")
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Reserve GPUs for a later time, list reservations, or cancel one of yours.

    Leases of others end before it starts, and until it ends only you get these GPUs.

    Example: gpuyard reserve 4 --from "Mon 18:00" --for 12h
    """
    words = what or []
    given = from_ or for_ or gpus
    if words == ["list"] and not given:
        _list(json_output=json_output)
    elif words[:1] == ["cancel"] and len(words) == 2 and not given:
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

    from gpuyard.cli.share.lease_line import gpu_indices
    from gpuyard.report.answer import Answer, Sentence
    from gpuyard.share.service.desk import open_desk
    from gpuyard.share.turns.reservations import Wish
    from gpuyard.share.turns.when import parse_when, shown
    from gpuyard.share.watch.views import reservation_document
    from gpuyard.units import parse_seconds

    indices = gpu_indices(gpus)
    start = parse_when(from_, time.time())
    number = count if count is not None else len(indices) or 1
    made = open_desk().reserve(Wish(number, start, start + parse_seconds(for_), indices))
    sentence = (
        f"Reserved: GPU {', '.join(map(str, made.gpus))} from {shown(made.start)} to "
        f"{shown(made.ends)} ({made.id})."
    )
    document = reservation_document(made)
    show(Answer([Sentence(sentence)], document, verb="reserve"), json_output=json_output)


def _list(*, json_output: bool) -> None:
    from gpuyard.report.answers.share.leases import calendar_answer
    from gpuyard.share.service.desk import open_to_look
    from gpuyard.share.turns.calendar import RESERVATION
    from gpuyard.share.watch.views import reservation_document

    found = [one for one in open_to_look().state().reservations if one.kind == RESERVATION]
    show(calendar_answer([reservation_document(one) for one in found]), json_output=json_output)


def _cancel(id_: str, *, json_output: bool) -> None:
    from gpuyard.report.answer import Answer, Sentence
    from gpuyard.share.service.desk import open_desk
    from gpuyard.share.watch.views import reservation_document

    ended = open_desk().cancel(id_)
    sentence = f"Reservation {ended.id} of {ended.user} is cancelled."
    document = reservation_document(ended)
    show(Answer([Sentence(sentence)], document, verb="reserve"), json_output=json_output)
