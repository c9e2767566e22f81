"""Which machines a job's GPUs are on: those it has, else one machine, else one rack, else as few machines as hold them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from gpuyard.jobs.policies.base import Allocation, JobView, Pool

_Free = npt.NDArray[np.int64]


def place(
    gpus: Mapping[str, int],
    jobs: Sequence["JobView"],
    pool: "Pool",
    *,
    emptiest: bool = False,
    shrink: bool = False,
) -> dict[str, "Allocation"]:
    """Machines for each job that gets GPUs. Who keeps its number stays where it is; then the largest chooses first.

    `emptiest`: jobs choose in the order given, each the machines with the most free GPUs, as published simulations do.
    `shrink`: a job takes fewer GPUs where, by its curve, the split that is left for all of them makes it slower.
    """
    kept = [job for job in jobs if job.running and gpus.get(job.id, 0) == job.gpus]
    placed = {job.id: job.allocation for job in kept if job.allocation is not None}
    free = pool.free(kept)
    racks = None if pool.racks is None else np.array(pool.racks)
    moving = [job for job in jobs if gpus.get(job.id, 0) and job.id not in placed]
    for job in moving if emptiest else sorted(moving, key=lambda job: -gpus[job.id]):
        wanted = gpus[job.id]
        if emptiest:
            chosen = _emptiest(free, wanted)
        else:
            chosen = _around(job, wanted, free) or choose(free, wanted, racks)
            if shrink and len(chosen) > 1:
                chosen = _fastest(job, chosen, free, pool)
        take(free, chosen)
        placed[job.id] = chosen
    return placed


def choose(free: _Free, gpus: int, racks: npt.NDArray[np.int64] | None = None) -> "Allocation":
    """That many of the free GPUs (by machine): the fullest machine that has them all, so that large gaps stay."""
    one = _fullest(free, gpus)
    if one is not None:
        return ((one, gpus),)
    if racks is not None:
        inside = [np.where(racks == rack, free, 0) for rack in np.unique(racks)]
        enough = [there for there in inside if there.sum() >= gpus]
        if enough:
            options = [_few(there, gpus) for there in enough]
            return min(options, key=len)
    return _few(free, gpus)


def take(free: _Free, allocation: "Allocation", sign: int = -1) -> None:
    """Out of what is free; back into it with a `sign` of 1."""
    for machine, gpus in allocation:
        free[machine] += sign * gpus


def speed_there(job: "JobView", allocation: "Allocation", pool: "Pool") -> float:
    """Of a job on these GPUs."""
    return job.curve.speed_on([gpus for _, gpus in allocation], pool.racks_of(allocation))


def _fastest(job: "JobView", chosen: "Allocation", free: _Free, pool: "Pool") -> "Allocation":
    """These GPUs, or fewer of them that are faster because they are less split."""
    racks = None if pool.racks is None else np.array(pool.racks)
    wanted = sum(gpus for _, gpus in chosen)
    best, speed = chosen, speed_there(job, chosen, pool)
    if speed >= job.curve.speed(wanted):
        return chosen
    hull = {gpus for gpus, _ in job.curve.hull(job.least_gpus, wanted)[1:]}
    of_fewer_machines = np.cumsum(np.sort(free)[::-1])[: len(chosen) - 1].tolist()
    for gpus in sorted(hull.union(of_fewer_machines), reverse=True):
        if job.least_gpus <= gpus < wanted and job.curve.speed(gpus) > speed:
            fewer = choose(free, gpus, racks)
            there = speed_there(job, fewer, pool)
            if there > speed:
                best, speed = fewer, there
    return best


def _around(job: "JobView", gpus: int, free: _Free) -> "Allocation | None":
    """On the one machine that it is on already, if it has room."""
    if job.allocation is None or len(job.allocation) != 1:
        return None
    machine = job.allocation[0][0]
    return ((machine, gpus),) if free[machine] >= gpus else None


def _emptiest(free: _Free, gpus: int) -> "Allocation":
    chosen = []
    for machine in np.argsort(-free, kind="stable"):
        taken = min(gpus, int(free[machine]))
        chosen.append((int(machine), taken))
        gpus -= taken
        if not gpus:
            break
    return tuple(sorted(chosen))


def _fullest(free: _Free, gpus: int) -> int | None:
    fits = np.where(free >= gpus, free, np.iinfo(np.int64).max)
    best = int(fits.argmin())
    return best if free[best] >= gpus else None


def _few(free: _Free, gpus: int) -> "Allocation":
    """The emptiest machines, and for the rest the fullest that has room."""
    order = np.argsort(-free, kind="stable")
    total = np.cumsum(free[order])
    last = int(np.searchsorted(total, gpus))
    if last >= len(order):
        raise ValueError(f"{gpus} GPUs are more than the {int(total[-1])} that are free")
    whole = order[:last]
    rest = gpus - (int(total[last - 1]) if last else 0)
    others = free.copy()
    others[whole] = 0
    final = _fullest(others, rest)
    chosen = [(int(machine), int(free[machine])) for machine in whole]
    return tuple(sorted([*chosen, (final if final is not None else int(order[last]), rest)]))
