"""From findings to one answer."""

import pytest

from gpuyard.measure import StepParts
from gpuyard.predict import Choke
from gpuyard.study.result import Finding
from gpuyard.study.verdict import Alone, judge, measured_finding
from tests.conftest import MakeMeasurement


def finding(platform: str, choke: Choke) -> Finding:
    return Finding(platform, "predicted", choke, 8, 0.5, f"On {platform}, evidence.", ())


@pytest.mark.parametrize(
    ("chokes", "headline"),
    [
        (["network", "pcie", "gpu"], "NETWORK CHOKE: don't add GPUs"),
        (["gpu", "gpu", "network"], "GPU CHOKE: add GPUs"),
        (["gpu", "network"], "NETWORK CHOKE: don't add GPUs"),
        (["storage"], "STORAGE CHOKE: speed up the input before adding GPUs"),
        ([], "NO EVIDENCE: try more than one GPU"),
    ],
)
def test_the_choke_of_most_platforms_is_the_verdict_and_doubt_is_cautious(
    chokes: list[Choke], headline: str
) -> None:
    assert judge([finding(f"p{i}", choke) for i, choke in enumerate(chokes)]).headline == headline


def test_one_gpu_has_no_vote() -> None:
    alone = Finding("here", "measured", "gpu", 1, 1.0, "Only one was tried.", ())
    assert judge([alone]).headline.startswith("NO EVIDENCE")
    assert judge([alone, finding("b", "network")]).choke == "network"


def test_platforms_that_differ_are_named() -> None:
    verdict = judge([finding("a", "gpu"), finding("b", "gpu"), finding("c", "network")])
    assert verdict.sentence.startswith("On a, evidence.")
    assert "c waits for the network between the machines" in verdict.sentence


@pytest.mark.parametrize(
    ("rate", "parts", "choke"),
    [
        (190, {"compute_seconds": 0.10, "exposed_communication_seconds": 0.005}, "gpu"),
        (80, {"compute_seconds": 0.10, "exposed_communication_seconds": 0.15}, "network"),
        # arithmetic is still the largest part, but the second worker brought nothing
        (95, {"compute_seconds": 0.12, "exposed_communication_seconds": 0.09}, "network"),
        # compute takes three times as long as with one worker: they share the cores
        (66, {"compute_seconds": 0.30}, "host"),
        (100, {"compute_seconds": 0.05, "input_seconds": 0.15}, "host"),
    ],
)
def test_a_measured_run_waits_for_what_weighs_most(
    rate: float, parts: dict[str, float], choke: Choke, make_measurement: MakeMeasurement
) -> None:
    nothing = {"compute_seconds": 0.0, "exposed_communication_seconds": 0.0, "input_seconds": 0.0}
    step = StepParts(step_seconds=sum(parts.values()), **{**nothing, **parts})
    measured = make_measurement(workers=2, samples_per_second=rate, step=step)
    alone = Alone(samples_per_second=100, compute_seconds=0.10)
    found = measured_finding(measured, alone, [], 48e6)
    assert found.choke == choke
    assert found.scaling_efficiency == pytest.approx(rate / 200)
    assert "48 MB of gradients" in found.sentence
