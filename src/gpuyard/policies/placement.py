"""Choose machines for a job's GPUs: its current ones, one machine, one rack, or else as few machines as possible."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from gpuyard.policies.views import Allocation, FreeGpus, JobView, Pool


def place(
    gpus: Mapping[str, int],
    jobs: Sequence[JobView],
    pool: Pool,
    *,
    emptiest: bool = False,
    shrink: bool = False,
) -> dict[str, Allocation]:
    """Choose machines for each job that gets GPUs.

    A job that keeps its number stays where it is; among the others, the largest chooses first. With `emptiest`, jobs
    choose in the given order, each the machines with the most free GPUs, as published simulations do. With `shrink`, a
    job uses fewer GPUs if splitting all of them over the remaining machines would make it slower.
    """
    kept = [job for job in jobs if job.running and gpus.get(job.id, 0) == job.gpus]
    placed = {job.id: job.allocation for job in kept if job.allocation is not None}
    free = pool.free_gpus(kept)
    racks = None if pool.racks is None else np.array(pool.racks)
    moving = [job for job in jobs if gpus.get(job.id, 0) and job.id not in placed]
    for job in moving if emptiest else sorted(moving, key=lambda job: -gpus[job.id]):
        count = gpus[job.id]
        if emptiest:
            allocation = _choose_emptiest(free, count)
        else:
            allocation = _keep_machine(job, count, free) or choose_gpus(free, count, racks)
            if shrink and len(allocation) > 1:
                allocation = _shrink_to_fastest(job, allocation, free, pool)
        use_gpus(free, allocation)
        placed[job.id] = allocation
    return placed


def choose_gpus(
    free: FreeGpus, gpus: int, racks: npt.NDArray[np.int64] | None = None
) -> Allocation:
    """Choose the fullest machine that has all of them, so that large gaps remain; otherwise as few as possible."""
    machine = _find_fullest(free, gpus)
    if machine is not None:
        return ((machine, gpus),)
    if racks is not None:
        by_rack = [np.where(racks == rack, free, 0) for rack in np.unique(racks)]
        options = [_choose_few(inside, gpus) for inside in by_rack if inside.sum() >= gpus]
        if options:
            return min(options, key=len)
    return _choose_few(free, gpus)


def use_gpus(free: FreeGpus, allocation: Allocation) -> None:
    for machine, gpus in allocation:
        free[machine] -= gpus


def release_gpus(free: FreeGpus, allocation: Allocation) -> None:
    for machine, gpus in allocation:
        free[machine] += gpus


def _placed_speed(job: JobView, allocation: Allocation, pool: Pool) -> float:
    return job.curve.speed_on([gpus for _, gpus in allocation], pool.count_racks(allocation))


def _shrink_to_fastest(
    job: JobView, allocation: Allocation, free: FreeGpus, pool: Pool
) -> Allocation:
    """Return these GPUs, or fewer that are faster because they are on fewer machines."""
    racks = None if pool.racks is None else np.array(pool.racks)
    count = sum(gpus for _, gpus in allocation)
    best, speed = allocation, _placed_speed(job, allocation, pool)
    if speed >= job.curve.speed(count):
        return allocation
    hull = {gpus for gpus, _ in job.curve.hull(job.min_gpus, count)[1:]}
    on_fewer_machines = np.cumsum(np.sort(free)[::-1])[: len(allocation) - 1].tolist()
    for gpus in sorted(hull.union(on_fewer_machines), reverse=True):
        if job.min_gpus <= gpus < count and job.curve.speed(gpus) > speed:
            fewer = choose_gpus(free, gpus, racks)
            fewer_speed = _placed_speed(job, fewer, pool)
            if fewer_speed > speed:
                best, speed = fewer, fewer_speed
    return best


def _keep_machine(job: JobView, gpus: int, free: FreeGpus) -> Allocation | None:
    """Return GPUs of the single machine that the job is on, if it has enough."""
    if job.allocation is None or len(job.allocation) != 1:
        return None
    machine = job.allocation[0][0]
    return ((machine, gpus),) if free[machine] >= gpus else None


def _choose_emptiest(free: FreeGpus, gpus: int) -> Allocation:
    chosen = []
    for machine in np.argsort(-free, kind="stable"):
        count = min(gpus, int(free[machine]))
        chosen.append((int(machine), count))
        gpus -= count
        if not gpus:
            break
    return tuple(sorted(chosen))


def _find_fullest(free: FreeGpus, gpus: int) -> int | None:
    fits = np.where(free >= gpus, free, np.iinfo(np.int64).max)
    best = int(fits.argmin())
    return best if free[best] >= gpus else None


def _choose_few(free: FreeGpus, gpus: int) -> Allocation:
    """Choose the emptiest machines and, for the remainder, the fullest one with room."""
    order = np.argsort(-free, kind="stable")
    total = np.cumsum(free[order])
    last = int(np.searchsorted(total, gpus))
    if last >= len(order):
        raise ValueError(f"{gpus} GPUs requested, but only {int(total[-1])} are free")
    whole = order[:last]
    remainder = gpus - (int(total[last - 1]) if last else 0)
    others = free.copy()
    others[whole] = 0
    final = _find_fullest(others, remainder)
    chosen = [(int(machine), int(free[machine])) for machine in whole]
    return tuple(sorted([*chosen, (final if final is not None else int(order[last]), remainder)]))
