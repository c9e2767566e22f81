"""Horovod's rank layout, and training with real ranks if Horovod is installed."""

import socket
from collections.abc import Callable

import pytest

from gpuyard.catalog.specfiles import read_workload
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training.plan import plan_sweep
from gpuyard.measure.training.run import run_sweep
from gpuyard.run.horovod_rendezvous import RankLayout, create_layout
from gpuyard.run.places import LocalMachine
from gpuyard.specs import ExchangeOptions, Workload
from tests.conftest import needs_two_cores

Build = Callable[..., Workload]


def rank_numbers(layout: RankLayout, rank: int) -> tuple[str, ...]:
    variables = layout.variables(rank)
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
    return tuple(variables[f"HOROVOD_{name}"] for name in names)


def test_ranks_on_one_host_are_local_and_use_loopback() -> None:
    layout = create_layout(LocalMachine(), 2)
    assert layout.hosts == (socket.gethostname(),) * 2
    assert rank_numbers(layout, 1) == ("1", "2", "1", "2", "0", "1")
    variables = layout.variables(0)
    assert variables["HOROVOD_GLOO_RENDEZVOUS_ADDR"] == "127.0.0.1"
    assert variables["HOROVOD_GLOO_IFACE"] == "lo"


def test_ranks_on_separate_nodes_have_cross_ranks() -> None:
    layout = RankLayout(("10.77.0.1", "10.77.0.2", "10.77.0.3"), "10.77.0.1", "eth0", lambda: None)
    assert rank_numbers(layout, 2) == ("2", "3", "0", "1", "2", "3")
    assert layout.variables(2)["HOROVOD_HOSTNAME"] == "10.77.0.3"


@pytest.mark.soak  # `make soak` builds Horovod
@needs_two_cores
@pytest.mark.parametrize(
    "remedy",
    [ExchangeOptions(), ExchangeOptions(compress="fp16", accumulate=2, bucket_mb=1)],
    ids=lambda remedy: remedy.label,
)
def test_horovod_trains_and_keeps_the_ranks_equal(
    store: ResultsStore, tiny: Build, remedy: ExchangeOptions
) -> None:
    pytest.importorskip("horovod", reason="gpuyard horovod install builds it, in some minutes")
    sweep = plan_sweep(tiny(), [2], [32], seconds_per_point=0.5, strategy="horovod", remedy=remedy)
    (m,) = run_sweep(sweep, store)
    assert (m.strategy, m.remedy) == ("horovod", remedy)
    assert len(set(m.parameter_checksums)) == 1
    assert m.loss_first is not None and m.loss_last is not None


@pytest.mark.soak  # `make soak` builds Horovod
@needs_two_cores
def test_a_synthetic_gpu_exchanges_its_gradients_with_horovod(store: ResultsStore) -> None:
    pytest.importorskip("horovod", reason="gpuyard horovod install builds it, in some minutes")
    sweep = plan_sweep(
        read_workload("resnet18"), [2], [4], seconds_per_point=0.5, strategy="horovod", gpu="t4"
    )
    (m,) = run_sweep(sweep, store)
    assert (m.strategy, m.workers) == ("horovod", 2)
    assert m.synthetic is not None
    assert m.step.step_seconds > m.synthetic.step_seconds(4)
    assert m.all_reduce_bytes is not None
