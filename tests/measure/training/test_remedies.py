"""Remedies change the exchanged bytes and keep the ranks equal."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.api.inputs import parse_exchange
from gpuyard.errors import UserMistake
from gpuyard.measure.relief.plan import plan_relief
from gpuyard.measure.relief.run import run_relief
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training.plan import plan_sweep
from gpuyard.measure.training.records import Measurement
from gpuyard.measure.training.run import run_sweep
from gpuyard.measure.training.timing import plan_windows
from gpuyard.run.places import LocalMachine
from gpuyard.specs import ExchangeOptions, Workload
from tests.conftest import needs_two_cores

Build = Callable[..., Workload]


@needs_two_cores
def test_each_remedy_learns_and_keeps_the_ranks_equal(tiny: Build) -> None:
    remedies = (
        ExchangeOptions(compress="fp16"),
        ExchangeOptions(compress="bf16"),
        ExchangeOptions(compress="powersgd:1"),
        ExchangeOptions(accumulate=3),
        ExchangeOptions(bucket_mb=0.001),
    )
    plan = plan_relief(tiny(), 2, 32, LocalMachine(), samples=6000, remedies=remedies)
    runs = run_relief(plan).runs
    assert [run.remedy for run in runs] == [ExchangeOptions(), *remedies]
    for run in runs:
        assert run.ranks_equal, run.remedy.label
        assert run.loss is not None and run.loss_first is not None
        assert run.loss < run.loss_first, run.remedy.label


@needs_two_cores
def test_a_measured_remedy_is_timed_in_whole_periods(store: ResultsStore, tiny: Build) -> None:
    remedy = ExchangeOptions(local_sgd=3, accumulate=2, compress="fp16")
    sweep = plan_sweep(tiny(), [2], [32], seconds_per_point=0.8, remedy=remedy)
    (m,) = run_sweep(sweep, store)
    assert m.remedy == remedy
    assert m.loss_first is not None
    assert m.loss_last is not None
    assert m.loss_last < m.loss_first
    assert len(set(m.parameter_checksums)) == 1
    # a window with part of a period would contain one exchange too few or too many
    assert all(window.steps % remedy.period == 0 for window in (*m.windows, *m.local_windows))
    assert store.records(Measurement) == [m]


def test_plain_points_keep_their_key_and_remedies_change_it(tiny: Build) -> None:
    def key(**options: object) -> str:
        return plan_sweep(tiny(), [1], [4], **options).points[0].key  # type: ignore[arg-type]

    plain = key()
    assert key(remedy=ExchangeOptions()) == plain
    keys = {
        key(remedy=ExchangeOptions(compress="fp16")),
        key(remedy=ExchangeOptions(accumulate=2)),
        key(remedy=ExchangeOptions(local_sgd=2)),
        key(repeat=1),
        key(gpu="t4"),
        plain,
    }
    assert len(keys) == 6


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ("fp8", 1, None, 1),
            "--compress: expected fp16, bf16, or powersgd:RANK such as powersgd:2, got 'fp8'",
        ),
        (("powersgd:0", 1, None, 1), "got 'powersgd:0'"),
        ((None, 0, None, 1), "--accumulate: must be 1 or more, got 0"),
        ((None, 1, 25.0, 4), "local SGD has no buckets"),
        (("powersgd:2", 1, None, 4), "PowerSGD compresses gradients"),
    ],
)
def test_impossible_remedies_are_errors(
    options: tuple[str | None, int, float | None, int], sentence: str
) -> None:
    with pytest.raises(UserMistake, match=sentence):
        parse_exchange(*options)


def test_horovod_supports_some_remedies_and_dataparallel_none() -> None:
    from gpuyard.measure.training.strategies import check_remedy

    with pytest.raises(UserMistake, match=r"accumulate 2.*dataparallel.*ddp or horovod"):
        check_remedy(ExchangeOptions(accumulate=2), "dataparallel", synthetic=False)
    check_remedy(
        ExchangeOptions(accumulate=2, compress="fp16", bucket_mb=5), "horovod", synthetic=False
    )
    for remedy in (
        ExchangeOptions(compress="bf16"),
        ExchangeOptions(compress="powersgd:1"),
        ExchangeOptions(local_sgd=2),
    ):
        with pytest.raises(UserMistake, match=f"measure {remedy.label} with ddp"):
            check_remedy(remedy, "horovod", synthetic=False)


def test_labels_name_the_remedies() -> None:
    assert ExchangeOptions().label == "plain"
    assert ExchangeOptions(compress="fp16", accumulate=4, bucket_mb=5).label == (
        "fp16 + accumulate 4 + bucket 5 MiB"
    )


@given(
    step=st.floats(1e-6, 100),
    budget=st.floats(0.01, 100),
    kinds=st.sampled_from([1, 2]),
    period=st.integers(1, 64),
)
def test_windows_are_whole_periods(step: float, budget: float, kinds: int, period: int) -> None:
    schedule = plan_windows(step, budget, kinds, period)
    assert schedule.steps % period == 0
    assert schedule.steps >= period
    assert 3 <= schedule.windows <= 10
    assert schedule.local_windows <= schedule.windows
