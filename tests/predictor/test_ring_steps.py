"""The steps of collectives over a ring: everyone gets everything, and the times are those of the formulas."""

import pytest

from gpuyard.predictor.explain.rings import schedule_all_reduce, schedule_broadcast


@pytest.mark.parametrize("members", [2, 3, 4, 7])
def test_an_all_reduce_gives_everyone_all_sums(members: int) -> None:
    schedule = schedule_all_reduce(members, 1e6, 1e9)
    held = [[{member} for _ in range(members)] for member in range(members)]
    for step in schedule.steps:
        sent = [(send, set(held[send.source][send.part])) for send in step]
        for send, addends in sent:
            mine = held[send.target][send.part]
            assert not (send.adds and mine & addends), "an addend would count twice"
            held[send.target][send.part] = mine | addends if send.adds else addends
    assert all(part == set(range(members)) for parts in held for part in parts)
    assert schedule.seconds == pytest.approx(2 * (members - 1) / members * 1e-3)
    assert len(schedule.steps) == 2 * (members - 1)


@pytest.mark.parametrize("pieces", [1, 2, 5])
def test_a_broadcast_forwards_only_what_has_arrived(pieces: int) -> None:
    members = 4
    schedule = schedule_broadcast(members, 1e6, 1e9, pieces)
    held: list[set[int]] = [set(range(pieces)), *(set() for _ in range(members - 1))]
    for step in schedule.steps:
        for send in step:
            assert send.part in held[send.source]
        for send in step:
            held[send.target].add(send.part)
    assert all(parts == set(range(pieces)) for parts in held)
    assert schedule.seconds == pytest.approx(1e-3 * (pieces + members - 2) / pieces)
