"""Synthetic GPUs, which sleep instead of computing but exchange real gradients."""

from collections.abc import Callable

import pytest
import torch

from gpuyard.catalog import gpus, models
from gpuyard.errors import UnknownName, UserMistake
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training.plan import plan_sweep
from gpuyard.measure.training.run import run_sweep
from gpuyard.predictor import estimate_compute_line
from gpuyard.specs import KnownThroughput, Workload
from gpuyard.workloads.synthetic import FORWARD_SHARE, synthetic_layers, synthetic_task

Build = Callable[..., Workload]


@pytest.mark.parametrize("model", ["resnet18", "spoken-digits-linear", "gpt2"])
def test_a_synthetic_model_has_the_parameters_of_the_real_one(model: str) -> None:
    layers = synthetic_layers(Workload(name=model, model=model))
    sizes = [sum(torch.Size(shape).numel() for shape in layer.shapes) for layer in layers]
    assert sizes == [layer.parameters for layer in models().get(model).layers]
    ready = [layer.ready_share for layer in layers]
    assert ready == sorted(ready)
    assert ready[0] > FORWARD_SHARE
    assert ready[-1] == pytest.approx(1)


def test_the_shapes_are_real_so_that_powersgd_can_factor_them() -> None:
    layers = synthetic_layers(Workload(name="digits", model="spoken-digits-linear"))
    assert layers[-1].shapes == ((1000, 12000), (1000,))


def test_backward_produces_every_gradient_in_the_order_of_the_profile() -> None:
    workload = Workload(name="digits", model="spoken-digits-linear")
    task = synthetic_task(workload, lambda _batch: 0.01)
    order: list[int] = []
    for parameter in task.model.parameters():
        parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
            lambda p: order.append(p.numel())
        )
    inputs, target = task.batch(3)
    task.loss(task.model(*inputs), target).backward()  # type: ignore[no-untyped-call]
    assert sum(order) == 12_102_220
    assert order[0] in (100, 10)  # the last layer of the model first
    assert order[-1] in (12_000_000, 1000)


@pytest.mark.soak  # in a lab they exchange for real, too: test_in_a_lab.py
def test_more_synthetic_gpus_than_cores_exchange_for_real(store: ResultsStore, tiny: Build) -> None:
    workload = tiny(measured=[KnownThroughput(gpu="t4", batch_per_gpu=4, samples_per_second=200)])
    sweep = plan_sweep(workload, [3], [4], seconds_per_point=0.5, gpu="t4")
    (m,) = run_sweep(sweep, store)
    line = estimate_compute_line(workload, _profile(workload), gpus().get("t4"))
    assert m.synthetic is not None
    assert m.synthetic.basis == "measured"
    assert m.synthetic.step_seconds(4) == pytest.approx(4 / 200)
    assert m.synthetic.fixed_seconds == line.fixed_seconds
    # a sleep is never shorter than requested
    assert m.step.step_seconds >= 4 / 200
    assert m.samples_per_second <= 3 * 200
    assert m.all_reduce_bytes == 4 * (16 * 4 + 4)
    assert (m.loss_first, m.loss_last) == (None, None)
    assert "synthetic GPU" in m.provenance.data_source


def test_unknown_gpus_and_unsupported_strategies_are_errors(tiny: Build) -> None:
    with pytest.raises(UnknownName, match="v100"):
        plan_sweep(tiny(), [1], [4], gpu="v100-pci")
    with pytest.raises(UserMistake, match=r"synthetic GPU.*dataparallel"):
        from gpuyard.measure.training.strategies import check_remedy
        from gpuyard.specs import ExchangeOptions

        check_remedy(ExchangeOptions(), "dataparallel", synthetic=True)


def _profile(workload: Workload):  # type: ignore[no-untyped-def]
    from gpuyard.workloads import profile_model

    return profile_model(workload)
