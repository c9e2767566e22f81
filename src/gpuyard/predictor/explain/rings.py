"""A broadcast and an all-reduce over a ring, step by step: who sends which part to whom, and how long it takes.

k members, N bytes, and links of B bytes per second. Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for
clusters of workstations" (2009).
"""

from dataclasses import dataclass

from gpuyard.predictor.collectives import pipelined_broadcast_seconds, ring_all_reduce_seconds


@dataclass(frozen=True)
class Send:
    """A member sends one part to another member; `adds` if the receiver adds it to its own."""

    source: int
    target: int
    part: int
    adds: bool = False


@dataclass(frozen=True)
class Schedule:
    """All steps of a collective; the sends of a step happen at once."""

    name: str
    formula: str
    members: int
    parts: int
    steps: tuple[tuple[Send, ...], ...]
    seconds: float

    @property
    def seconds_per_step(self) -> float:
        return self.seconds / len(self.steps)


def schedule_broadcast(
    members: int, size_bytes: float, bytes_per_second: float, pieces: int
) -> Schedule:
    """Schedule a broadcast from the first member: every member forwards a piece while it receives the next."""
    steps = tuple(
        tuple(
            Send(link, link + 1, step - link)
            for link in range(members - 1)
            if 0 <= step - link < pieces
        )
        for step in range(pieces + members - 2)
    )
    seconds = pipelined_broadcast_seconds(members, size_bytes, bytes_per_second, pieces)
    whole = pieces == 1
    return Schedule(
        "Broadcast, whole message" if whole else f"Broadcast in {pieces} pieces",
        "(k−1)·N/B" if whole else "N·(S+k−2)/(S·B)",
        members,
        pieces,
        steps,
        float(seconds),
    )


def schedule_all_reduce(members: int, size_bytes: float, bytes_per_second: float) -> Schedule:
    """Schedule a ring all-reduce: k−1 steps that add up parts, and k−1 steps that pass on the sums."""
    steps = tuple(
        tuple(
            Send(member, (member + 1) % members, (member - step) % members, step < members - 1)
            for member in range(members)
        )
        for step in range(2 * (members - 1))
    )
    seconds = ring_all_reduce_seconds(members, size_bytes, bytes_per_second)
    return Schedule(
        f"All-reduce in {members} parts", "2·(k−1)/k·N/B", members, members, steps, float(seconds)
    )
