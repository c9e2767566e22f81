"""Remedies compared on real ranks, and the rule for equal loss."""

from collections.abc import Callable

import pytest

from gpuyard.errors import UserMistake
from gpuyard.measure.record import Testbed
from gpuyard.measure.relief.plan import plan_relief, predict_gains
from gpuyard.measure.relief.records import ReliefResult, RemedyRun
from gpuyard.measure.relief.run import run_relief
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training.records import MeasuredStep, Measurement
from gpuyard.run.places import LocalMachine
from gpuyard.run.places.place import RunPlace
from gpuyard.specs import ExchangeOptions, Workload
from gpuyard.workloads import profile_model
from tests.conftest import needs_two_cores

Build = Callable[..., Workload]


def build_run(remedy: ExchangeOptions, rate: float, loss: float | None) -> RemedyRun:
    return RemedyRun(
        remedy=remedy,
        samples=100,
        seconds=100 / rate,
        samples_per_second=rate,
        loss_first=3.0,
        loss=loss,
        ranks_equal=True,
    )


def test_the_best_remedy_is_the_fastest_at_equal_loss(testbed: Testbed) -> None:
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
            build_run(ExchangeOptions(), 10, 2.0),
            build_run(ExchangeOptions(accumulate=8), 50, 2.11),  # 5.5% above
            build_run(ExchangeOptions(local_sgd=8), 40, 2.09),
            build_run(ExchangeOptions(compress="fp16"), 30, 1.0),
            build_run(ExchangeOptions(compress="bf16"), 90, None),
        ),
    )
    assert result.best.remedy == ExchangeOptions(local_sgd=8)
    assert result.speed_up(result.best) == 4
    document = result.as_json()
    assert (document["best"], document["best_speed_up"]) == ("local SGD 8", 4)
    assert result.learned_share(result.runs[2]) == pytest.approx(0.91)  # 3 → 2.09 of 3 → 2
    assert document["runs"][4]["learned_share"] is None
    assert [run["equal_loss"] for run in document["runs"]] == [True, False, True, True, False]


@needs_two_cores
def test_every_remedy_trains_the_same_samples(tiny: Build, store: ResultsStore) -> None:
    remedies = (
        ExchangeOptions(compress="fp16"),
        ExchangeOptions(local_sgd=4),
        ExchangeOptions(accumulate=3),
    )
    plan = plan_relief(tiny(), 2, 8, LocalMachine(), samples=300, remedies=remedies, tolerance=0.5)
    assert plan.steps == 24  # 300 / 16 = 18.75, in whole periods of 12
    result = run_relief(plan)
    assert [run.remedy for run in result.runs] == [ExchangeOptions(), *remedies]
    assert {run.samples for run in result.runs} == {24 * 16}
    assert all(run.ranks_equal for run in result.runs)
    plain, half = result.runs[:2]
    assert plain.loss is not None
    assert half.loss == pytest.approx(plain.loss, rel=0.02)  # rounding is the only difference
    store.add(result)
    assert store.records(ReliefResult, "tiny-classifier") == [result]
    assert store.records(ReliefResult, "another") == []


@needs_two_cores
@pytest.mark.soak
def test_remedies_are_measured_in_the_requested_precision(tiny: Build) -> None:
    def losses(precision: str) -> list[float | None]:
        workload = tiny().model_copy(update={"precision": precision})
        plan = plan_relief(workload, 2, 8, LocalMachine(), samples=100, remedies=())
        assert plan.describe()["precision"] == precision
        result = run_relief(plan)
        assert result.precision == precision
        return [run.loss for run in result.runs]

    single, half = losses("fp32"), losses("bf16")
    assert single != half
    assert half == pytest.approx(single, rel=0.05)


def test_relief_needs_at_least_two_workers(tiny: Build) -> None:
    with pytest.raises(UserMistake, match="2 workers"):
        plan_relief(tiny(), 1, 8, LocalMachine())


def measure_one_worker(make: Callable[..., Measurement], seconds: float) -> Measurement:
    parts = MeasuredStep(
        step_seconds=seconds,
        compute_seconds=seconds,
        exposed_communication_seconds=0.0,
        input_seconds=0.0,
    )
    return make(workers=1, batch_per_worker=50, step=parts)


def test_the_predictor_selects_the_remedies(make_measurement: Callable[..., Measurement]) -> None:
    linear = Workload(name="digits", model="spoken-digits-linear")
    slow = RunPlace(kind="lab", nodes=("a", "b"), link_bytes_per_second=125e6)
    short_step = measure_one_worker(make_measurement, 0.1)
    choked = predict_gains(linear, profile_model(linear), short_step, 2, slow)
    # 48 MB of gradients over 1 Gbit/s take 0.4 s; half of it 0.2 s: (0.1 + 0.4) / (0.1 + 0.2) at most
    assert choked is not None
    assert 1.2 < choked[ExchangeOptions(compress="fp16")] < 1.9
    assert list(choked.values()) == sorted(choked.values(), reverse=True)
    assert (
        choked[ExchangeOptions(compress="fp16", local_sgd=16)]
        > choked[ExchangeOptions(compress="fp16")]
    )
    # in a step of one minute, communication is negligible
    long_step = measure_one_worker(make_measurement, 60.0)
    assert predict_gains(linear, profile_model(linear), long_step, 2, slow) == {}


def test_nothing_is_predicted_if_the_link_rate_is_unknown(
    make_measurement: Callable[..., Measurement],
) -> None:
    linear = Workload(name="digits", model="spoken-digits-linear")
    unknown = RunPlace(kind="hosts", nodes=("a", "b"))
    profile, measured = profile_model(linear), measure_one_worker(make_measurement, 0.1)
    assert predict_gains(linear, profile, measured, 2, unknown) is None
    assert predict_gains(linear, profile, measured, 2, RunPlace()) is not None
