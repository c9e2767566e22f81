"""The rank process that times pairs of nodes: `python -m gpuyard.measure.acceptance.pair_worker`."""

from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, TypeAdapter

from gpuyard.interpreter import import_permanently
from gpuyard.measure.acceptance.pairs import find_slow_pairs, merge_rates, split_disjoint
from gpuyard.measure.acceptance.records import PairRate
from gpuyard.measure.ranks import EventReader
from gpuyard.measure.record import RecordPart
from gpuyard.run.protocol import RankJob
from gpuyard.run.rank_process import Emit, serve
from gpuyard.workloads.resolve import require_torch

if TYPE_CHECKING:
    import torch

    from gpuyard.run.peers import Peers

_RATES: TypeAdapter[list[PairRate]] = TypeAdapter(list[PairRate])


class PairsJob(RankJob):
    """The job of one rank, of which each node has one."""

    pairs: tuple[tuple[int, int], ...]
    known: Annotated[
        tuple[PairRate, ...], Field(description="rates from before this run was interrupted")
    ] = ()
    message_bytes: int
    repeats: int
    retries: Annotated[int, Field(description="number of times that slow pairs are measured again")]
    expected_bytes_per_second: float | None
    one_at_a_time: bool


class Measured(RecordPart):
    """The rates of pairs that were measured at once."""

    event: Literal["measured"] = "measured"
    rates: tuple[PairRate, ...]
    again: Annotated[bool, Field(description="they were slow, so they were measured again")]


read_event: EventReader[Measured] = EventReader(Measured)


def main() -> None:
    """Run one job and exit."""
    serve(PairsJob, _run)


def _run(job: PairsJob, emit: Emit) -> None:
    require_torch()
    import_permanently("torch")
    from gpuyard.run.peers import Peers, select_device

    device = select_device(job)
    peers = Peers(job)
    rates = list(job.known)
    for attempt in range(1 + job.retries):
        # every rank knows all rates, so all agree on what comes next
        slow = find_slow_pairs(merge_rates(rates), job.expected_bytes_per_second)
        for group in split_disjoint(
            slow if attempt else job.pairs, one_at_a_time=job.one_at_a_time
        ):
            measured = _measure_group(job, peers, device, group)
            rates += measured
            if job.rank == 0:
                emit(Measured(rates=tuple(measured), again=attempt > 0))
    peers.close()


def _measure_group(
    job: PairsJob, peers: "Peers", device: "torch.device", group: list[tuple[int, int]]
) -> list[PairRate]:
    """Measure disjoint pairs at once, and tell all ranks the rates."""
    peers.barrier()
    own = []
    for a, b in group:
        if job.rank in (a, b):
            forward = _time_direction(job, device, a, b)
            backward = _time_direction(job, device, b, a)
            # each end knows the rate at which it received
            received = {"forward": forward, "backward": 0.0}
            if job.rank == a:
                received = {"forward": 0.0, "backward": backward}
            own.append(PairRate(a=a, b=b, **received))
    gathered = [
        rate
        for text in peers.gather_text(_RATES.dump_json(own).decode())
        for rate in _RATES.validate_json(text)
    ]
    return merge_rates(gathered)


def _time_direction(job: PairsJob, device: "torch.device", source: int, target: int) -> float:
    """Send messages from one rank to another; return the best rate at which the other received, or 0 at the source.

    The target asks for each message, and counts from then on: what a sender has handed to its kernel has not arrived.
    """
    import torch
    import torch.distributed as dist

    from gpuyard.run.peers import synchronize

    ready = torch.zeros(1, device=device)
    message = torch.zeros(max(1, job.message_bytes // 4), device=device)
    best = 0.0
    for repeat in range(1 + job.repeats):
        payload = message if repeat else ready  # the first opens the connection
        if job.rank == source:
            dist.recv(ready, target)
            dist.send(payload, target)
            synchronize(device)
        else:
            synchronize(device)
            start = perf_counter()
            dist.send(ready, source)
            dist.recv(payload, source)
            synchronize(device)
            if repeat:
                best = max(best, job.message_bytes / (perf_counter() - start))
    return best


if __name__ == "__main__":
    main()
