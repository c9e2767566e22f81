"""Memory is copied by as many cores as were asked for."""

import os
import threading

import numpy as np
import pytest

from gpuyard.cpu import usable_cores
from gpuyard.errors import GpuyardError
from gpuyard.measure.links.memory import choose_core_counts, time_copy

pins = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="only Linux pins threads to cores"
)


@pytest.mark.parametrize(
    ("usable", "counts"),
    [
        (1, [1]),
        (6, [1, 2, 3, 4, 5, 6]),
        (48, [1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 48]),
        (64, [1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64]),
    ],
)
def test_core_counts(usable: int, counts: list[int]) -> None:
    assert choose_core_counts(usable) == counts


@pytest.mark.parametrize("cores", [1, 2])
def test_every_repeat_is_timed(cores: int) -> None:
    if cores > len(usable_cores()):
        pytest.skip("there is one usable core")
    seconds = time_copy(1_000_003, usable_cores()[:cores], 3)
    assert len(seconds) == 3
    assert all(took > 0 for took in seconds)


def test_each_core_copies_its_own_part_and_all_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[tuple[int, int]] = []
    real = np.copyto

    def watch(target: np.ndarray, source: np.ndarray) -> None:
        real(target, source)
        assert target.all()
        copied.append((threading.get_ident(), target.size))

    monkeypatch.setattr(np, "copyto", watch)
    core = usable_cores()[0]
    time_copy(1001, [core, core, core], 2)
    assert sum(size for _, size in copied) == 2 * 1001
    assert len({thread for thread, _ in copied}) == 3


@pins
def test_this_thread_keeps_its_cores() -> None:
    before = os.sched_getaffinity(0)
    time_copy(1000, usable_cores()[:1], 1)
    assert os.sched_getaffinity(0) == before


@pins
def test_a_missing_core_is_an_error_at_once() -> None:
    with pytest.raises(GpuyardError, match="core 100000: Invalid argument"):
        time_copy(1000, [usable_cores()[0], 100_000], 1)
