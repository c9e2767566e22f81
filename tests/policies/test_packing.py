"""Packings of tasks with deadlines: exact ones against brute force, greedy ones against their bound."""

from collections.abc import Sequence
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.policies.exact import ScheduleSearch, find_best_packing
from gpuyard.policies.packing import (
    BusyGpus,
    DeadlinePacking,
    DeadlineTask,
    FreeGpuTimeline,
    Mode,
    PlannedStart,
    pack,
)

FOREVER = float("inf")
ROUNDING = 1e-5
Placed = list[tuple[float, float, int]]


def fits(placed: Placed, at: float, mode: Mode, gpus: int) -> bool:
    """Check that enough GPUs are free at its beginning and at each later beginning within it."""
    times = [at, *(begin for begin, _, _ in placed if at < begin < at + mode.seconds - ROUNDING)]
    return all(
        mode.gpus + sum(n for begin, end, n in placed if begin <= time + ROUNDING < end - ROUNDING)
        <= gpus
        for time in times
    )


def in_time(
    order: Sequence[tuple[DeadlineTask, Mode]], gpus: int, busy: Sequence[BusyGpus]
) -> bool:
    """Place each as early as possible, in this order, and check the deadlines."""
    placed: Placed = [(0.0, block.seconds, block.gpus) for block in busy]
    for task, mode in order:
        times = sorted({0.0, *(end for _, end, _ in placed if end < FOREVER)})
        for at in times[:1] if mode.now_only else times:
            if mode.gpus <= gpus and fits(placed, at, mode, gpus):
                break
        else:
            return False
        if at + mode.seconds > task.deadline_s + ROUNDING:
            return False
        placed.append((at, at + mode.seconds, mode.gpus))
    return True


def brute_force(tasks: Sequence[DeadlineTask], gpus: int, busy: Sequence[BusyGpus]) -> float:
    """Return the best weight of all modes in all orders, which include every active schedule."""
    best = 0.0
    for choice in product(*((None, *task.modes) for task in tasks)):
        chosen = [(task, mode) for task, mode in zip(tasks, choice, strict=True) if mode]
        weight = sum(task.weight for task, _ in chosen)
        if weight > best and any(in_time(order, gpus, busy) for order in permutations(chosen)):
            best = weight
    return best


def check(
    packing: DeadlinePacking, tasks: Sequence[DeadlineTask], gpus: int, busy: Sequence[BusyGpus]
) -> None:
    """Check that no task is late and that no more GPUs are used than exist."""
    by_id = {task.id: task for task in tasks}
    placed = [(0.0, block.seconds, block.gpus) for block in busy]
    for id_, start in packing.starts.items():
        assert start.mode in by_id[id_].modes
        assert start.at_s == 0 or not start.mode.now_only
        assert start.end_s <= by_id[id_].deadline_s + ROUNDING
        placed.append((start.at_s, start.end_s, start.mode.gpus))
    for time, _, _ in placed:
        used = sum(n for begin, end, n in placed if begin <= time + ROUNDING < end)
        assert used <= gpus
    assert packing.weight == pytest.approx(sum(by_id[id_].weight for id_ in packing.starts))


seconds = st.floats(1.0, 10.0)


@st.composite
def random_task(draw: st.DrawFn, number: int, gpus: int) -> DeadlineTask:
    work, exponent = draw(seconds), draw(st.floats(0.2, 1.0))
    counts = draw(st.lists(st.integers(1, gpus), min_size=1, max_size=3, unique=True))
    modes = [Mode(count, work / count**exponent) for count in sorted(counts)]
    if draw(st.integers(0, 4)) == 0:
        modes.append(Mode(modes[0].gpus, 0.8 * modes[0].seconds, now_only=True))
    weight = draw(st.sampled_from((1.0, 1.0, 2.0, 3.5)))
    return DeadlineTask(f"task-{number}", draw(st.floats(1.5, 9.0)), tuple(modes), weight)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[DeadlineTask], int, list[BusyGpus]]:
    gpus = draw(st.integers(1, 4))
    tasks = [draw(random_task(number, gpus)) for number in range(draw(st.integers(1, 4)))]
    held = draw(st.sampled_from((None, None, 2.5, 6.0, FOREVER)))
    return tasks, gpus, [] if held is None else [BusyGpus(1, held)]


@given(cases())
def test_the_exact_packing_is_as_good_as_brute_force(
    case: tuple[list[DeadlineTask], int, list[BusyGpus]],
) -> None:
    tasks, gpus, busy = case
    greedy = pack(tasks, gpus, busy)
    exact = find_best_packing(greedy, tasks, gpus, busy)
    best = brute_force(tasks, gpus, busy)
    check(greedy, tasks, gpus, busy)
    check(exact, tasks, gpus, busy)
    assert exact.weight == pytest.approx(best)
    assert exact.proven
    assert greedy.weight <= best + ROUNDING
    assert greedy.bound >= best - ROUNDING, "the bound must not be below the optimum"


def _create_team(number: int) -> list[DeadlineTask]:
    """Create more tasks than 8 GPUs can finish in time."""
    from random import Random

    rng = Random(number)
    tasks = []
    for i in range(60):
        work, exponent = 3600 * rng.lognormvariate(0.8, 1.0), rng.uniform(0.5, 1)
        modes = tuple(Mode(n, work / n**exponent) for n in (1, 2, 4, 8))
        weight = rng.choice((1.0, 1.0, 2.0, 5.0))
        tasks.append(DeadlineTask(f"task-{i}", 3600 * rng.uniform(2, 20), modes, weight))
    return tasks


@pytest.mark.parametrize("number", range(4))
def test_greedy_packings_of_many_tasks_are_close_to_their_bound(
    number: int,
) -> None:
    tasks = _create_team(number)
    packing = pack(tasks, 8)
    check(packing, tasks, 8, [])
    assert len(packing.starts) < len(tasks), "the case must have more tasks than fit"
    assert 0 < packing.gap < 0.08
    assert packing.bound < sum(task.weight for task in tasks)


def test_an_interrupted_search_keeps_the_packing_and_its_bound() -> None:
    tasks = _create_team(0)[:12]
    greedy = pack(tasks, 2)
    interrupted = find_best_packing(greedy, tasks, 2, max_steps=1)
    assert interrupted.starts == greedy.starts
    assert greedy.weight <= interrupted.bound <= greedy.bound


def test_an_incomplete_task_is_never_proven_optimal() -> None:
    incomplete = DeadlineTask("one", 10, (Mode(2, 6),), complete=False)
    two = DeadlineTask("two", 10, (Mode(2, 6),))
    greedy = pack([incomplete, two], 2)
    assert greedy.weight == 1
    assert greedy.bound == pytest.approx(1 + 8 / 12)
    assert not find_best_packing(greedy, [incomplete, two], 2).proven
    complete = DeadlineTask("one", 10, (Mode(2, 6),))
    assert find_best_packing(greedy, [two, complete], 2).proven


def test_the_earliest_start_is_the_first_gap_with_enough_time_and_gpus() -> None:
    free = FreeGpuTimeline(4, [BusyGpus(3, 10), BusyGpus(1, 4)])
    free.reserve(20, 2, 5)
    assert free.free_now == 0
    assert free.earliest(Mode(1, 3)) == 4
    assert free.earliest(Mode(2, 10)) == 10
    assert free.earliest(Mode(4, 10)) == 10
    assert free.earliest(Mode(4, 10.5)) == 25
    assert free.earliest(Mode(1, 3, now_only=True)) == FOREVER
    assert free.earliest(Mode(5, 1)) == FOREVER
    free.reserve(0, 1, FOREVER)
    assert free.earliest(Mode(4, 1)) == FOREVER


def test_an_empty_packing_is_proven_optimal() -> None:
    assert pack([], 4) == DeadlinePacking({}, 0.0, 0.0)
    late = DeadlineTask("late", 1.0, (Mode(1, 2.0),))
    assert pack([late], 4).proven
    assert pack([DeadlineTask("now", 5.0, (Mode(1, 2.0),))], 4).starts == {
        "now": PlannedStart(0.0, Mode(1, 2.0))
    }


def test_a_schedule_leaves_gpus_idle_if_that_is_the_only_way() -> None:
    search = ScheduleSearch([16.0, 6.0], 2, [BusyGpus(1, 2.0)], max_steps=100)
    assert search.schedule({0: Mode(1, 10.0), 1: Mode(2, 4.0)}) == {1: 2.0, 0: 6.0}
    tight = ScheduleSearch([15.0, 6.0], 2, [BusyGpus(1, 2.0)], max_steps=100)
    assert tight.schedule({0: Mode(1, 10.0), 1: Mode(2, 4.0)}) is None


def test_busy_gpus_lower_the_bound() -> None:
    tasks = [DeadlineTask(str(n), 10.0, (Mode(1, 10.0),)) for n in range(4)]
    assert pack(tasks, 4).bound == 4
    assert pack(tasks, 4, [BusyGpus(2, 5.0)]).bound == 3
    assert pack(tasks, 4, [BusyGpus(2, FOREVER)]).bound == 2


def test_a_running_mode_cannot_start_later() -> None:
    search = ScheduleSearch([20.0], 2, [BusyGpus(1, 2.0)], max_steps=100)
    assert search.schedule({0: Mode(2, 4.0)}) == {0: 2.0}
    assert search.schedule({0: Mode(2, 4.0, now_only=True)}) is None
    assert search.schedule({0: Mode(1, 4.0, now_only=True)}) == {0: 0.0}
