"""Remedies side by side on real ranks, and what counts as equal."""

from collections.abc import Callable

import pytest

from gpuyard.errors import UserMistake
from gpuyard.hardware.cpu import usable_cores
from gpuyard.measure.measurement import RunPlace
from gpuyard.measure.places import Here
from gpuyard.measure.relief import ReliefResult, Relieved, plan_relief, run_relief
from gpuyard.specs import Remedy, Workload

Build = Callable[..., Workload]


def run_of(remedy: Remedy, rate: float, loss: float | None) -> Relieved:
    return Relieved(
        remedy=remedy,
        samples=100,
        seconds=100 / rate,
        samples_per_second=rate,
        loss_first=3.0,
        loss=loss,
        ranks_equal=True,
    )


def test_only_the_fastest_that_learns_as_much_is_best() -> None:
    result = ReliefResult(
        workload="w",
        workers=2,
        batch_per_worker=5,
        place=RunPlace(),
        tolerance=0.05,
        runs=(
            run_of(Remedy(), 10, 2.0),
            run_of(Remedy(accumulate=8), 50, 2.11),  # 5.5 % above
            run_of(Remedy(local_sgd=8), 40, 2.09),
            run_of(Remedy(compress="fp16"), 30, 1.0),
            run_of(Remedy(compress="bf16"), 90, None),
        ),
    )
    assert result.best.remedy == Remedy(local_sgd=8)
    assert result.speed_up(result.best) == 4
    said = result.as_json()
    assert (said["best"], said["best_speed_up"]) == ("local SGD 8", 4)
    assert result.learnt(result.runs[2]) == pytest.approx(0.91)  # 3 → 2.09 of 3 → 2
    assert said["runs"][4]["learnt"] is None
    assert [run["equal_loss"] for run in said["runs"]] == [True, False, True, True, False]


@pytest.mark.skipif(len(usable_cores()) < 2, reason="needs 2 cores")
def test_every_remedy_trains_the_same_samples(tiny: Build) -> None:
    remedies = (Remedy(compress="fp16"), Remedy(local_sgd=4), Remedy(accumulate=3))
    plan = plan_relief(tiny(), 2, 8, Here(), samples=300, remedies=remedies, tolerance=0.5)
    assert plan.steps == 24  # 300 / 16 = 18.75, in whole periods of 12
    result = run_relief(plan)
    assert [run.remedy for run in result.runs] == [Remedy(), *remedies]
    assert {run.samples for run in result.runs} == {24 * 16}
    assert all(run.ranks_equal for run in result.runs)
    plain, half = result.runs[:2]
    assert plain.loss is not None
    assert half.loss == pytest.approx(plain.loss, rel=0.02)  # rounding, not another training


def test_one_worker_has_nothing_to_relieve(tiny: Build) -> None:
    with pytest.raises(UserMistake, match="nothing to relieve"):
        plan_relief(tiny(), 1, 8, Here())
