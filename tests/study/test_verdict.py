"""Findings on several platforms become one verdict."""

from dataclasses import replace

import numpy as np
import pytest

from gpuyard.measure.training.records import MeasuredStep
from gpuyard.predictor import Choke, Prediction, Remedy, Step
from gpuyard.predictor.knee import find_knee
from gpuyard.study.result import ChokeFinding
from gpuyard.study.verdict import (
    SingleWorker,
    build_measured_finding,
    build_predicted_finding,
    judge,
)
from tests.conftest import MakeMeasurement

KNEE_AT_4 = find_knee([1, 2, 4, 8], np.array([1.0, 2.0, 4.0, 4.5]))
KNEE_AT_8 = find_knee([1, 2, 4, 8], np.array([1.0, 1.9, 3.4, 6.0]))


def finding(platform: str, choke: Choke) -> ChokeFinding:
    sentence = f"On {platform}, evidence."
    return ChokeFinding(platform, "predicted", choke, 8, 0.5, sentence, (), knee=KNEE_AT_4)


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
    alone = ChokeFinding("here", "measured", "gpu", 1, 1.0, "Only one was tried.", ())
    assert judge([alone]).headline.startswith("NO EVIDENCE")
    assert judge([alone, finding("b", "network")]).choke == "network"


def test_the_knee_decides_whether_to_add_gpus() -> None:
    """`predict --why` and a verdict never contradict each other."""
    before = replace(finding("a", "network"), knee=KNEE_AT_8)
    assert judge([before]).headline == "NETWORK CHOKE: speed up the exchange before adding GPUs"
    assert judge([before, finding("b", "pcie")]).headline == "NETWORK CHOKE: don't add GPUs"
    assert judge([before, finding("b", "pcie")]).sentence.startswith("On b, evidence.")
    nothing = replace(finding("a", "none"), knee=KNEE_AT_8)
    assert judge([nothing]).headline == "NO SINGLE CHOKE: adding GPUs still helps"
    assert judge([finding("a", "none")]).headline == "NO SINGLE CHOKE: don't add GPUs"


def test_doubtful_findings_and_those_that_do_not_fit_have_no_vote() -> None:
    doubtful = replace(finding("here", "gpu"), doubt="other programs used 40% of the cores")
    verdict = judge([doubtful, replace(doubtful, platform="there"), finding("b", "network")])
    assert verdict.choke == "network"
    assert "other programs used 40% of the cores" in verdict.sentence
    alone = judge([doubtful])
    assert "EVIDENCE: measure again" in alone.headline
    assert "other programs" in alone.sentence
    unfit = replace(finding("small", "none"), fits=False)
    assert judge([unfit, finding("b", "gpu")]).headline == "GPU CHOKE: add GPUs"
    assert "does not fit on small" in judge([unfit, finding("b", "gpu")]).sentence
    assert judge([unfit, doubtful]).headline.startswith("DOES NOT FIT")


def test_platforms_that_differ_are_named() -> None:
    verdict = judge([finding("a", "gpu"), finding("b", "gpu"), finding("c", "network")])
    assert verdict.sentence.startswith("On a, evidence.")
    assert "c waits for the network between the machines" in verdict.sentence


@pytest.mark.parametrize(
    ("rate", "parts", "choke"),
    [
        (190, {"compute_seconds": 0.10, "exposed_communication_seconds": 0.005}, "gpu"),
        (80, {"compute_seconds": 0.10, "exposed_communication_seconds": 0.15}, "network"),
        # arithmetic is still the largest part, but the second worker added nothing
        (95, {"compute_seconds": 0.12, "exposed_communication_seconds": 0.09}, "network"),
        # the second worker added a third of its work
        (133, {"compute_seconds": 0.10, "exposed_communication_seconds": 0.05}, "network"),
        # compute takes three times as long as with one worker: they share the cores
        (66, {"compute_seconds": 0.30}, "host"),
        (100, {"compute_seconds": 0.05, "input_seconds": 0.15}, "host"),
    ],
)
def test_a_measured_run_waits_for_what_weighs_most(
    rate: float, parts: dict[str, float], choke: Choke, make_measurement: MakeMeasurement
) -> None:
    nothing = {"compute_seconds": 0.0, "exposed_communication_seconds": 0.0, "input_seconds": 0.0}
    step = MeasuredStep(step_seconds=sum(parts.values()), **{**nothing, **parts})
    measured = make_measurement(workers=2, samples_per_second=rate, step=step)
    alone = SingleWorker(samples_per_second=100, compute_seconds=0.10)
    knee = find_knee([1, 2], np.array([100.0, rate]))
    result = build_measured_finding(measured, alone, [], knee, 48e6)
    assert result.choke == choke
    assert result.scaling_efficiency == pytest.approx(rate / 200)
    assert "48 MB of gradients" in result.sentence


def test_remedies_that_add_gpus_are_not_offered_past_the_knee() -> None:
    more = Remedy("16 GPUs of the cluster (the knee)", 900.0, 1.5, adds_gpus=True)
    less = Remedy("gradients sent as 16-bit numbers", 800.0, 1.3)
    choked = build_predicted_finding("a", prediction("network", 0.4), [more, less], KNEE_AT_4, 48e6)
    assert [remedy.change for remedy in choked.remedies] == [less.change]
    busy = build_predicted_finding("a", prediction("gpu", 0.9), [more, less], KNEE_AT_8, 48e6)
    assert [remedy.change for remedy in busy.remedies] == [more.change, less.change]


def test_a_study_names_the_choke_of_the_prediction() -> None:
    for choke in ("gpu", "network", "pcie", "storage"):
        finding = build_predicted_finding("a", prediction(choke, 0.56), [], KNEE_AT_8, 48e6)
        assert finding.choke == choke


def prediction(choke: Choke, efficiency: float, nodes: int = 2) -> Prediction:
    return Prediction(
        gpus=8,
        nodes=nodes,
        gpus_per_node=8 // nodes,
        batch_per_gpu=32,
        strategy="ddp",
        samples_per_second=600.0,
        low=500.0,
        high=700.0,
        scaling_efficiency=efficiency,
        step=Step(0.1, 0.05, 0.0, 0.01),
        choke=choke,
        epoch_seconds=None,
        training_seconds=None,
        memory_bytes=1e9,
        fits=True,
    )
