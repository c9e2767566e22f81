"""Invalid runs are detected, with the reason."""

from collections.abc import Callable

import pytest

from gpuyard.measure.training.records import Measurement, SyntheticGpu, Window
from gpuyard.measure.validity import ValidityCheck
from gpuyard.run.places.place import RunPlace
from gpuyard.specs import Workload

Make = Callable[..., Measurement]
JUDGE = ValidityCheck(Workload(name="resnet50", model="resnet50"))


@pytest.fixture
def good(make_measurement: Make) -> Measurement:
    windows = tuple(Window(steps=1, seconds=s, input_seconds=0) for s in (0.2, 0.21, 0.2))
    return make_measurement(loss_last=2.0, samples_per_second=20.0, windows=windows)


def test_a_plain_run_is_valid(good: Measurement) -> None:
    assert JUDGE(good, None) is None
    assert JUDGE(good, 0.02) is None


def test_uneven_windows(good: Measurement) -> None:
    windows = tuple(Window(steps=1, seconds=s, input_seconds=0) for s in (0.2, 0.25))
    uneven = good.model_copy(update={"windows": windows})
    assert "differ by 25%" in str(JUDGE(uneven, None))


def test_a_loss_that_is_not_a_number(good: Measurement) -> None:
    assert "loss" in str(JUDGE(good.model_copy(update={"loss_last": None}), None))


def test_load_of_other_programs(good: Measurement) -> None:
    assert "other programs used 50%" in str(JUDGE(good, 0.5))


def test_faster_than_the_hardware(good: Measurement) -> None:
    # one core at 64 operations per cycle and 6.5 GHz, 3 × 8.2 GFLOP per sample: about 17 samples/s
    fast = good.model_copy(update={"samples_per_second": 100.0})
    assert "CPU with 1 core" in str(JUDGE(fast, None))


def test_faster_than_the_synthetic_gpu(good: Measurement) -> None:
    gpu = SyntheticGpu(gpu="t4", fixed_seconds=0.1, seconds_per_sample=0.04, basis="", source="")
    # 10 samples in 0.5 s: 20 samples/s each
    slow = good.model_copy(update={"synthetic": gpu, "loss_last": None, "samples_per_second": 39})
    assert JUDGE(slow, None) is None
    fast = slow.model_copy(update={"samples_per_second": 42})
    doubt = str(JUDGE(fast, None))
    assert all(part in doubt for part in ("21.0", "t4", "20.0"))


def test_faster_than_the_link(good: Measurement) -> None:
    # 2 · 1/2 · 100 MB in 0.5 s are 200 MB/s, over 125 MB/s
    lab = RunPlace(kind="lab", nodes=("a", "b"), link_bytes_per_second=125e6)
    sped = good.model_copy(
        update={"place": lab, "all_reduce_bytes": 100_000_000, "all_reduce_seconds": 0.5}
    )
    assert "the lab's traffic shaping" in str(JUDGE(sped, None))
    honest = sped.model_copy(update={"all_reduce_seconds": 0.83})
    assert JUDGE(honest, None) is None
    on_one_node = lab.model_copy(update={"nodes": ("a",), "ranks_per_node": 2})
    assert JUDGE(sped.model_copy(update={"place": on_one_node}), None) is None


def test_runs_on_other_machines_are_compared_with_their_hardware(good: Measurement) -> None:
    unknown = good.provenance.model_copy(update={"threads_per_worker": 0})
    fast = good.model_copy(update={"samples_per_second": 100.0, "provenance": unknown})
    assert JUDGE(fast, None) is None
    k80 = RunPlace(kind="hosts", nodes=("a",), gpus=("Tesla K80",))
    on_k80 = fast.model_copy(update={"device": "cuda", "place": k80, "samples_per_second": 1e4})
    assert "k80's peak" in str(JUDGE(on_k80, None))
