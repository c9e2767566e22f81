"""What would help, and that it is listed in the order of its gain."""

from pathlib import Path

import pytest

from gpuyard.catalog.specfiles import read_cluster, read_workload
from gpuyard.predict import Relief, predict_cluster, relieve_cluster
from gpuyard.workloads import profile_of

EXAMPLES = Path(__file__).parents[2] / "examples"


def reliefs(workload: str, cluster: str, gpus: int) -> tuple[float, tuple[Relief, ...]]:
    spec, place = read_workload(workload, EXAMPLES), read_cluster(cluster, EXAMPLES)
    profile = profile_of(spec)
    (prediction,) = predict_cluster(spec, profile, place, [gpus]).predictions
    return prediction.samples_per_second, relieve_cluster(spec, profile, place, prediction)


def test_a_choked_network_is_helped_by_a_faster_one_and_by_less_to_send() -> None:
    today, found = reliefs("spoken-digits-linear.workload.yaml", "ethernet.cluster.yaml", 8)
    gains = {relief.what: relief.gain for relief in found}
    assert gains["a network twice as fast"] > 1.5
    assert gains["gradients sent as 16-bit numbers"] > 1.5
    assert gains["gradients exchanged every 4 steps (accumulation)"] > 2
    assert "GPUs twice as fast" not in gains
    assert [r.gain for r in found] == sorted((r.gain for r in found), reverse=True)
    for relief in found:
        assert relief.samples_per_second == pytest.approx(relief.gain * today)


def test_a_choked_gpu_is_helped_by_more_and_faster_gpus() -> None:
    _, found = reliefs("spoken-digits-conv.workload.yaml", "apollo.cluster.yaml", 32)
    gains = {relief.what: relief.gain for relief in found}
    assert gains["twice as many GPUs"] > 1.8
    assert gains["GPUs twice as fast"] > 1.8
    assert "a network twice as fast" not in gains


def test_a_batch_that_does_not_fit_is_not_proposed() -> None:
    _, found = reliefs("gpt2-large", "workstation.cluster.yaml", 4)
    assert not any("the batch" in relief.what for relief in found)
