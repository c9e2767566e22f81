"""Remedies really change what is exchanged, and leave the ranks equal."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.cli.remedies import parse_remedy
from gpuyard.errors import UserMistake
from gpuyard.measure import ResultsStore, plan_sweep, run_sweep
from gpuyard.measure.timing import schedule
from gpuyard.specs import Remedy, Workload
from tests.conftest import needs_two_cores

Build = Callable[..., Workload]


@needs_two_cores
@pytest.mark.parametrize(
    "remedy",
    [
        Remedy(compress="fp16"),
        Remedy(compress="bf16"),
        Remedy(compress="powersgd:1"),
        Remedy(accumulate=3),
        Remedy(bucket_mb=0.001),
        Remedy(local_sgd=3, accumulate=2, compress="fp16"),
    ],
    ids=lambda remedy: remedy.label,
)
def test_each_remedy_learns_and_keeps_the_ranks_equal(
    store: ResultsStore, tiny: Build, remedy: Remedy
) -> None:
    sweep = plan_sweep(tiny(), [2], [32], seconds_per_point=0.8, remedy=remedy)
    (m,) = run_sweep(sweep, store)
    assert m.remedy == remedy
    assert m.loss_first is not None
    assert m.loss_last is not None
    assert m.loss_last < m.loss_first
    assert len(set(m.parameter_checksums)) == 1
    # a window of part of a period would count an exchange too few or too many
    assert all(window.steps % remedy.period == 0 for window in (*m.windows, *m.local_windows))
    assert store.list() == [m]


def test_plain_points_keep_their_key_and_remedies_have_their_own(tiny: Build) -> None:
    def key(**more: object) -> str:
        return plan_sweep(tiny(), [1], [4], **more).points[0].key  # type: ignore[arg-type]

    plain = key()
    assert key(remedy=Remedy()) == plain
    others = {
        key(remedy=Remedy(compress="fp16")),
        key(remedy=Remedy(accumulate=2)),
        key(remedy=Remedy(local_sgd=2)),
        key(repeat=1),
        key(gpu="t4"),
        plain,
    }
    assert len(others) == 6


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("fp8", 1, None, 1), "'fp8' is no compression; take fp16, bf16 or powersgd:RANK"),
        (("powersgd:0", 1, None, 1), "is no compression"),
        ((None, 0, None, 1), "--accumulate: Input should be greater than or equal to 1"),
        ((None, 1, 25.0, 4), "local SGD has no buckets"),
        (("powersgd:2", 1, None, 4), "PowerSGD compresses gradients"),
    ],
)
def test_what_can_not_be_done_is_a_sentence(
    options: tuple[str | None, int, float | None, int], sentence: str
) -> None:
    with pytest.raises(UserMistake, match=sentence):
        parse_remedy(*options)


def test_horovod_has_some_remedies_and_dataparallel_none() -> None:
    from gpuyard.measure.strategies import check_remedy

    with pytest.raises(UserMistake, match="remedies are measured with ddp and horovod"):
        check_remedy(Remedy(accumulate=2), "dataparallel", synthetic=False)
    check_remedy(Remedy(accumulate=2, compress="fp16", bucket_mb=5), "horovod", synthetic=False)
    for other in (Remedy(compress="bf16"), Remedy(compress="powersgd:1"), Remedy(local_sgd=2)):
        with pytest.raises(UserMistake, match=f"measure {other.label} with ddp"):
            check_remedy(other, "horovod", synthetic=False)


def test_labels_say_what_is_done() -> None:
    assert Remedy().label == "plain"
    assert Remedy(compress="fp16", accumulate=4, bucket_mb=5).label == (
        "fp16 + accumulate 4 + bucket 5 MiB"
    )


@given(
    step=st.floats(1e-6, 100),
    budget=st.floats(0.01, 100),
    kinds=st.sampled_from([1, 2]),
    period=st.integers(1, 64),
)
def test_windows_are_whole_periods(step: float, budget: float, kinds: int, period: int) -> None:
    planned = schedule(step, budget, kinds, period)
    assert planned.steps % period == 0
    assert planned.steps >= period
    assert 3 <= planned.windows <= 10
    assert planned.local_windows <= planned.windows
