"""Reservations of a shared server's GPUs: create, list, and cancel them."""

from collections.abc import Sequence
from time import time as read_clock

from gpuyard.api.inputs import read_quantity
from gpuyard.api.lease import parse_indices
from gpuyard.api.result import Result, Row, wrap
from gpuyard.report.answer import Answer, Sentence
from gpuyard.report.answers.share.leases import calendar_answer
from gpuyard.share.client import open_client, open_reader
from gpuyard.share.models import RESERVATION, ReservationRequest
from gpuyard.share.timeparse import format_time, parse_time
from gpuyard.share.views import reservation_document
from gpuyard.units import parse_seconds


def reserve(
    gpus: int | None = None,
    *,
    start: str,
    time: str | float,
    gpu_ids: str | Sequence[int] = (),
) -> Result[Row]:
    """Reserve a number of GPUs, or those with these indices, from `start` ("Mon 18:00") for a time ("12h", or seconds)."""
    indices = parse_indices(gpu_ids)
    begin = parse_time(start, read_clock())
    end = begin + read_quantity(time, parse_seconds)
    count = gpus if gpus is not None else len(indices) or 1
    reservation = open_client().reserve(ReservationRequest(count, begin, end, indices))
    sentence = (
        f"Reserved: GPU {', '.join(map(str, reservation.gpus))} from "
        f"{format_time(reservation.start)} to {format_time(end)} ({reservation.id})."
    )
    return Result(Answer([Sentence(sentence)], reservation_document(reservation), verb="reserve"))


def reservations() -> Result[Row]:
    """List the reservations of this server; each row is one."""
    documents = [
        reservation_document(reservation)
        for reservation in open_reader().state().reservations
        if reservation.kind == RESERVATION
    ]
    return Result(calendar_answer(documents), wrap(documents))


def cancel_reservation(reservation_id: str) -> Result[Row]:
    """Cancel a reservation."""
    canceled = open_client().cancel(reservation_id)
    sentence = f"Canceled reservation {canceled.id} of {canceled.user}."
    return Result(Answer([Sentence(sentence)], reservation_document(canceled), verb="reserve"))
