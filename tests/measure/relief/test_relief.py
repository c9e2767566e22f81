"""Remedies side by side on real ranks, and what counts as equal."""

from collections.abc import Callable

import pytest

from gpuyard.errors import UserMistake
from gpuyard.measure import MeasuredStep, Measurement, ResultsStore
from gpuyard.measure.record import Testbed
from gpuyard.measure.relief.plan import plan_relief, predicted_gains
from gpuyard.measure.relief.records import ReliefResult, Relieved
from gpuyard.measure.relief.run import run_relief
from gpuyard.run.places import Here
from gpuyard.run.places.place import RunPlace
from gpuyard.specs import ExchangeOptions, Workload
from gpuyard.workloads import profile_of
from tests.conftest import needs_two_cores

Build = Callable[..., Workload]


def run_of(remedy: ExchangeOptions, rate: float, loss: float | None) -> Relieved:
    return Relieved(
        remedy=remedy,
        samples=100,
        seconds=100 / rate,
        samples_per_second=rate,
        loss_first=3.0,
        loss=loss,
        ranks_equal=True,
    )


def test_only_the_fastest_that_learns_as_much_is_best(testbed: Testbed) -> None:
    result = ReliefResult(
        id="a1",
        key="k",
        created_at="2026-01-02T03:04:05.678+00:00",
        host=testbed,
        workload="w",
        workers=2,
        batch_per_worker=5,
        place=RunPlace(),
        tolerance=0.05,
        runs=(
            run_of(ExchangeOptions(), 10, 2.0),
            run_of(ExchangeOptions(accumulate=8), 50, 2.11),  # 5.5 % above
            run_of(ExchangeOptions(local_sgd=8), 40, 2.09),
            run_of(ExchangeOptions(compress="fp16"), 30, 1.0),
            run_of(ExchangeOptions(compress="bf16"), 90, None),
        ),
    )
    assert result.best.remedy == ExchangeOptions(local_sgd=8)
    assert result.speed_up(result.best) == 4
    said = result.as_json()
    assert (said["best"], said["best_speed_up"]) == ("local SGD 8", 4)
    assert result.learnt(result.runs[2]) == pytest.approx(0.91)  # 3 → 2.09 of 3 → 2
    assert said["runs"][4]["learnt"] is None
    assert [run["equal_loss"] for run in said["runs"]] == [True, False, True, True, False]


@needs_two_cores
def test_every_remedy_trains_the_same_samples(tiny: Build, store: ResultsStore) -> None:
    remedies = (
        ExchangeOptions(compress="fp16"),
        ExchangeOptions(local_sgd=4),
        ExchangeOptions(accumulate=3),
    )
    plan = plan_relief(tiny(), 2, 8, Here(), samples=300, remedies=remedies, tolerance=0.5)
    assert plan.steps == 24  # 300 / 16 = 18.75, in whole periods of 12
    result = run_relief(plan)
    assert [run.remedy for run in result.runs] == [ExchangeOptions(), *remedies]
    assert {run.samples for run in result.runs} == {24 * 16}
    assert all(run.ranks_equal for run in result.runs)
    plain, half = result.runs[:2]
    assert plain.loss is not None
    assert half.loss == pytest.approx(plain.loss, rel=0.02)  # rounding, not another training
    store.add(result)
    assert store.records(ReliefResult, "tiny-classifier") == [result]
    assert store.records(ReliefResult, "another") == []


@needs_two_cores
@pytest.mark.soak
def test_remedies_are_tried_in_the_precision_that_is_asked_for(tiny: Build) -> None:
    def losses(precision: str) -> list[float | None]:
        workload = tiny().model_copy(update={"precision": precision})
        plan = plan_relief(workload, 2, 8, Here(), samples=100, remedies=())
        assert plan.describe()["precision"] == precision
        result = run_relief(plan)
        assert result.precision == precision
        return [run.loss for run in result.runs]

    single, half = losses("fp32"), losses("bf16")
    assert single != half
    assert half == pytest.approx(single, rel=0.05)


def test_one_worker_has_nothing_to_relieve(tiny: Build) -> None:
    with pytest.raises(UserMistake, match="nothing to relieve"):
        plan_relief(tiny(), 1, 8, Here())


def alone(make: Callable[..., Measurement], seconds: float) -> Measurement:
    parts = MeasuredStep(
        step_seconds=seconds,
        compute_seconds=seconds,
        exposed_communication_seconds=0.0,
        input_seconds=0.0,
    )
    return make(workers=1, batch_per_worker=50, step=parts)


def test_the_predictor_names_what_is_tried(make_measurement: Callable[..., Measurement]) -> None:
    linear = Workload(name="digits", model="spoken-digits-linear")
    slow = RunPlace(kind="lab", nodes=("a", "b"), link_bytes_per_second=125e6)
    choked = predicted_gains(linear, profile_of(linear), alone(make_measurement, 0.1), 2, slow)
    # 48 MB of gradients over 1 Gbit/s take 0.4 s; half of it 0.2 s: (0.1 + 0.4) / (0.1 + 0.2) at most
    assert choked is not None
    assert 1.2 < choked[ExchangeOptions(compress="fp16")] < 1.9
    assert list(choked.values()) == sorted(choked.values(), reverse=True)
    assert (
        choked[ExchangeOptions(compress="fp16", local_sgd=16)]
        > choked[ExchangeOptions(compress="fp16")]
    )
    # a step of a minute waits for nothing that could be saved
    assert predicted_gains(linear, profile_of(linear), alone(make_measurement, 60.0), 2, slow) == {}


def test_where_the_link_is_not_known_nothing_is_foreseen(
    make_measurement: Callable[..., Measurement],
) -> None:
    linear = Workload(name="digits", model="spoken-digits-linear")
    unknown = RunPlace(kind="hosts", nodes=("a", "b"))
    assert (
        predicted_gains(linear, profile_of(linear), alone(make_measurement, 0.1), 2, unknown)
        is None
    )
    assert (
        predicted_gains(linear, profile_of(linear), alone(make_measurement, 0.1), 2, RunPlace())
        is not None
    )
