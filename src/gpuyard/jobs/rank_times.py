"""Summarize the newest reports of each rank: its step by phase, its GPU's clock, and the load of its machine."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from gpuyard.reporting.ranks import RankWindow

RECENT = 8
"""The windows of each rank that a verdict looks at."""
_LOW_CLOCK = 0.9  # of the other GPUs' clock
# a power cap alone is normal: many GPUs reach theirs in every training
_FAULTS = ("HW Slowdown", "HW Thermal Slowdown", "HW Power Brake Slowdown", "SW Thermal Slowdown")


@dataclass(frozen=True)
class RankTimes:
    """The mean seconds of one step of one rank by phase."""

    rank: int
    host: str
    gpu: int | None
    step: float
    compute: float
    input: float
    exchange: float | None
    cpu_wait: float
    load_per_core: float | None = None
    clock_mhz: float | None = None
    max_clock_mhz: float | None = None
    clock_reasons: tuple[str, ...] = ()  # why its GPU's clock is reduced, most of the time
    shares_gpu: bool = False  # with processes that are not part of the training

    @property
    def wait(self) -> float:
        """The seconds for which it waits for a CPU that other processes have."""
        return min(self.compute, self.cpu_wait * self.step)

    @property
    def own_compute(self) -> float:
        """The seconds in which it computes and has a CPU."""
        return self.compute - self.wait

    @property
    def wait_odds(self) -> float:
        """The seconds for which it waits for a CPU, for each second in which it computes on one."""
        return self.wait / max(1e-3 * self.step, self.own_compute)

    @property
    def name(self) -> str:
        where = ", ".join(filter(None, [self.host, "" if self.gpu is None else f"GPU {self.gpu}"]))
        return f"rank {self.rank}" + (f" ({where})" if where else "")


def summarize_ranks(windows: Sequence[RankWindow]) -> tuple[RankTimes, ...]:
    """Average the newest windows of each rank, weighted by their steps."""
    by_rank: dict[int, list[RankWindow]] = {}
    for window in windows:
        by_rank.setdefault(window.rank, []).append(window)
    places: dict[tuple[str, int | None], set[int]] = {}
    for rank, own in by_rank.items():
        places.setdefault((own[-1].host, own[-1].gpu), set()).add(rank)
    times = []
    for rank, own in sorted(by_rank.items()):
        recent = own[-RECENT:]
        exchanges = [w for w in recent if w.exchange_seconds is not None]
        last = recent[-1]
        peers = places[last.host, last.gpu]
        reasons = [reason for w in recent for reason in w.clock_reasons]
        times.append(
            RankTimes(
                rank,
                last.host,
                last.gpu,
                median(w.step_seconds for w in recent),
                median(w.compute_seconds for w in recent),
                median(w.input_seconds or 0.0 for w in recent),
                median(w.exchange_seconds or 0.0 for w in exchanges) if exchanges else None,
                fmean(w.cpu_wait for w in recent),
                median_of_known([w.load_per_core for w in recent]),
                median_of_known([w.clock_mhz for w in recent]),
                last.max_clock_mhz,
                tuple(r for r in dict.fromkeys(reasons) if 2 * reasons.count(r) > len(recent)),
                all((w.gpu_processes or 0) > len(peers) for w in recent),
            )
        )
    return tuple(times)


def median_of_known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def describe_clock(rank: RankTimes, rest: Sequence[RankTimes]) -> str:
    """Describe a clock that is reduced by a fault, or below that of the other GPUs; empty if it is neither."""
    others = median_of_known([other.clock_mhz for other in rest])
    if rank.clock_mhz is None:
        return ""
    faults = [reason for reason in rank.clock_reasons if reason in _FAULTS]
    clock = f"its GPU runs at {rank.clock_mhz:,.0f} MHz"
    if others is not None and rank.clock_mhz < _LOW_CLOCK * others:
        why = f" ({', '.join(rank.clock_reasons)})" if rank.clock_reasons else ""
        return f"{clock}, the others at {others:,.0f} MHz{why}"
    if faults and rank.max_clock_mhz and rank.clock_mhz < _LOW_CLOCK * rank.max_clock_mhz:
        return f"{clock} of {rank.max_clock_mhz:,.0f} ({', '.join(faults)})"
    return ""
