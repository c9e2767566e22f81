"""A small transformer divided among CPU ranks over gloo: FSDP2, tensor groups, and a pipeline."""

import pytest

from gpuyard.errors import UserMistake
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training.plan import plan_sweep
from gpuyard.measure.training.run import run_sweep
from gpuyard.specs import Workload

SMALL = Workload(name="small", model="transformer-small")


@pytest.mark.parametrize("strategy", ["fsdp", "tensor", "pipeline"])
def test_ranks_train_one_model(store: ResultsStore, strategy: str) -> None:
    (m,) = run_sweep(plan_sweep(SMALL, [2], [2], strategy=strategy, seconds_per_point=0.2), store)
    assert m.strategy == strategy
    assert m.samples_per_second > 0
    # untrained, all 256 bytes are equally likely: ln 256 = 5.5
    assert m.loss_first == pytest.approx(5.5, abs=0.3)
    if strategy != "pipeline":  # whose ranks hold different stages
        assert len(set(m.parameter_checksums)) == 1


@pytest.mark.parametrize("strategy", ["fsdp", "tensor", "pipeline"])
def test_half_precision_with_a_scaler_is_refused(strategy: str) -> None:
    with pytest.raises(UserMistake, match="fp16"):
        plan_sweep(SMALL.model_copy(update={"precision": "fp16"}), [2], [2], strategy=strategy)


@pytest.mark.parametrize(("strategy", "noun"), [("tensor", "heads"), ("pipeline", "layers")])
def test_what_cannot_be_divided_is_refused_with_the_nearest(strategy: str, noun: str) -> None:
    with pytest.raises(UserMistake, match=rf"4 {noun} .* use 2") as problem:
        plan_sweep(SMALL, [3], [2], strategy=strategy)
    assert "3 workers" in str(problem.value)
    with pytest.raises(UserMistake, match=r"transformer-small.*resnet50"):
        plan_sweep(Workload(name="other", model="resnet50"), [2], [2], strategy=strategy)
