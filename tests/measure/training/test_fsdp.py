"""FSDP2 over gloo on CPU ranks."""

import pytest

from gpuyard.errors import UserMistake
from gpuyard.measure import ResultsStore, plan_sweep, run_sweep
from gpuyard.specs import Workload

SMALL = Workload(name="small", model="transformer-small")


def test_ranks_train_the_same_model(store: ResultsStore) -> None:
    (m,) = run_sweep(plan_sweep(SMALL, [2], [2], strategy="fsdp", seconds_per_point=0.2), store)
    assert m.strategy == "fsdp"
    assert len(set(m.parameter_checksums)) == 1
    assert m.samples_per_second > 0


def test_half_precision_with_a_scaler_is_refused() -> None:
    with pytest.raises(UserMistake, match="fp16"):
        plan_sweep(SMALL.model_copy(update={"precision": "fp16"}), [2], [2], strategy="fsdp")
