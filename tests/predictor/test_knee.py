"""The knee: how many GPUs are worth adding."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.catalog.specfiles import read_workload
from gpuyard.hardware.clusters import read_cluster
from gpuyard.predictor import PlatformScenario, create_scenario, predict
from gpuyard.predictor.explain.remedies import Knees, find_remedies_and_knees
from gpuyard.predictor.knee import find_knee, list_knee_placements
from gpuyard.workloads import profile_model

EXAMPLES = Path(__file__).parents[2] / "examples"
CURVES = st.lists(st.floats(1.0, 1e6), min_size=1, max_size=40).map(np.array)


def knees(workload: str, cluster: str, gpus: int, threshold: float = 0.5) -> Knees:
    spec, place = read_workload(workload, EXAMPLES), read_cluster(cluster, EXAMPLES)
    return knees_of(create_scenario(spec, profile_model(spec), place), gpus, threshold)


def knees_of(scenario: PlatformScenario, gpus: int, threshold: float = 0.5) -> Knees:
    (prediction,) = predict(scenario, scenario.platform.placements([gpus])).predictions
    return find_remedies_and_knees(scenario, prediction, threshold)[1]


@given(CURVES, st.floats(0, 1))
def test_from_every_smaller_number_the_added_gpus_bring_the_threshold(
    curve: "np.ndarray[tuple[int], np.dtype[np.float64]]", threshold: float
) -> None:
    """The definition, by trying every pair."""
    counts = list(range(1, len(curve) + 1))
    knee = find_knee(counts, curve, threshold)
    slack = 1e-9 * float(curve.max())

    def worth(k: int) -> bool:
        return all(
            curve[k - 1] - curve[j - 1] >= threshold * (k - j) * curve[0] - slack
            for j in range(1, k)
        )

    assert worth(knee.gpus)
    for k in range(knee.gpus + 1, len(curve) + 1):
        brought = (curve[k - 1] - curve[knee.gpus - 1]) / ((k - knee.gpus) * curve[0])
        assert brought <= threshold + slack


@given(CURVES, st.floats(0, 1), st.floats(0, 1))
def test_a_higher_threshold_never_gives_more_gpus(
    curve: "np.ndarray[tuple[int], np.dtype[np.float64]]", a: float, b: float
) -> None:
    counts = list(range(1, len(curve) + 1))
    strict, lenient = (find_knee(counts, curve, t) for t in (max(a, b), min(a, b)))
    assert strict.gpus <= lenient.gpus


def test_a_recovery_after_a_dip_does_not_move_the_knee() -> None:
    """8 GPUs of one machine do 8; out of it every GPU is worth 0.55: 16 → 8.8, 32 → 17.6. The last
    doubling brings 55%, but all 24 added GPUs together bring 40%."""
    counts = [1, 2, 4, 8, 16, 32]
    curve = np.array([1, 2, 4, 8, 8.8, 17.6])
    assert find_knee(counts, curve, 0.5).gpus == 8
    assert find_knee(counts, curve, 0.5).beyond == pytest.approx(0.4)
    assert find_knee(counts, curve, 0.39).gpus == 32


def test_perfect_scaling_has_no_knee() -> None:
    knee = find_knee([1, 2, 4], np.array([10.0, 20.0, 40.0]), 1.0)
    assert knee.gpus == 4
    assert not knee.is_past(knee.max_gpus)
    assert knee.beyond is None


def test_a_curve_without_one_gpu_has_nothing_to_compare_with() -> None:
    with pytest.raises(ValueError, match="starts at one GPU"):
        find_knee([2, 4], np.array([1.0, 2.0]))


@given(st.integers(1, 100_000), st.integers(1, 16))
def test_tried_sizes_start_at_one_gpu_and_end_with_the_cluster(
    nodes: int, gpus_in_machine: int
) -> None:
    tried = list_knee_placements(nodes, gpus_in_machine)
    counts = [placement.gpus for placement in tried]
    assert counts[0] == 1
    assert counts[-1] == nodes * gpus_in_machine
    assert counts == sorted(set(counts))
    assert len(counts) <= 272


def test_placements_use_the_requested_gpus_per_machine() -> None:
    assert [(p.gpus, p.nodes, p.gpus_per_node) for p in list_knee_placements(3, 8, 2)] == [
        (1, 1, 1), (2, 1, 2), (4, 2, 2), (6, 3, 2),
    ]  # fmt: skip


def test_a_choked_network_has_an_early_knee_that_a_remedy_moves() -> None:
    knees_found = knees("vgg16", "ethernet.cluster.yaml", 8)
    assert knees_found.current.gpus < 8
    assert knees_found.with_remedy is not None
    assert knees_found.with_remedy.gpus == 8
    assert knees_found.remedy


def test_the_knee_does_not_depend_on_the_requested_gpus() -> None:
    assert knees("vgg16", "apollo.cluster.yaml", 8).current == (
        knees("vgg16", "apollo.cluster.yaml", 32).current
    )


def test_dataparallel_has_its_knee_inside_one_machine() -> None:
    spec, place = read_workload("vgg16"), read_cluster("apollo.cluster.yaml", EXAMPLES)
    scenario = create_scenario(spec, profile_model(spec), place, strategy="dataparallel")
    assert knees_of(scenario, 8).current.max_gpus == 8
