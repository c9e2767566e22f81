"""How a link is held at its rate: the token bucket of each direction."""

from dataclasses import dataclass

_FULL_FRAME_BYTES = (
    64 * 1024
)  # the largest packet that a veth hands over; smaller buckets must cut it
_BURST_SECONDS = 2e-3
_QUEUE_SECONDS = 64e-3


@dataclass(frozen=True)
class Shape:
    """A token bucket: what may go at once, and what may wait."""

    rate_bytes_per_second: float
    burst_bytes: int
    limit_bytes: int


def shape_of(rate_bytes_per_second: float) -> Shape:
    """Two milliseconds of traffic at once, 64 ms in the queue.

    At 1 Gbit/s that is the 256 kB and 8 MB which were found to hold 955 Mbit/s of payload both ways.
    """
    return Shape(
        rate_bytes_per_second=rate_bytes_per_second,
        burst_bytes=max(_FULL_FRAME_BYTES, int(rate_bytes_per_second * _BURST_SECONDS)),
        limit_bytes=max(8 * _FULL_FRAME_BYTES, int(rate_bytes_per_second * _QUEUE_SECONDS)),
    )
