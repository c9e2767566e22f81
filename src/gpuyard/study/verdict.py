"""From chokes on several platforms to one answer in words."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gpuyard.measure import Measurement
from gpuyard.predict import Choke, Prediction, Remedy
from gpuyard.study.result import Basis, Finding, Verdict
from gpuyard.study.this_machine import THIS_MACHINE
from gpuyard.units import format_bytes, format_seconds, format_share

_HEADLINES: dict[Choke, str] = {
    "network": "NETWORK CHOKE: don't add GPUs",
    "pcie": "NETWORK CHOKE: don't add GPUs",
    "gpu": "GPU CHOKE: add GPUs",
    "storage": "STORAGE CHOKE: speed up the input before adding GPUs",
    "host": "HOST CHOKE: relieve the host before adding GPUs",
    "none": "NO SINGLE CHOKE: adding GPUs still helps",
}
_WAITS_FOR: dict[Choke, str] = {
    "network": "the network between the machines",
    "pcie": "the links inside the machine",
    "gpu": "arithmetic",
    "storage": "storage",
    "host": "the host, whose cores and memory the workers share",
    "none": "nothing in particular",
}
_MOST_REMEDIES = 4
# below this the workers that were added did less than half of their work
_WORTH_ADDING = 0.5


@dataclass(frozen=True)
class Alone:
    """One worker by itself at the same batch, measured or from the fitted line."""

    samples_per_second: float
    compute_seconds: float


@dataclass(frozen=True)
class _Evidence:
    """The configuration that a finding is about."""

    members: str  # "8 GPUs"
    count: int
    efficiency: float
    choke: Choke
    waits_for: str
    step_seconds: float
    compute_seconds: float
    exposed_seconds: float
    gradient_bytes: float


def predicted_finding(
    platform: str, largest: Prediction, remedies: Sequence[Remedy], gradient_bytes: float
) -> Finding:
    """What the largest predicted configuration waits for."""
    choke = _predicted_choke(largest)
    evidence = _Evidence(
        members=f"{largest.gpus} GPUs",
        count=largest.gpus,
        efficiency=largest.scaling_efficiency,
        choke=choke,
        waits_for=_WAITS_FOR[choke],
        step_seconds=largest.step.seconds,
        compute_seconds=largest.step.compute_seconds,
        exposed_seconds=largest.step.exposed_communication_seconds,
        gradient_bytes=gradient_bytes,
    )
    return _finding(platform, "predicted", f"On {platform}", evidence, remedies)


def _predicted_choke(largest: Prediction) -> Choke:
    """As predicted; but where the added GPUs did less than half of their work, not the GPUs."""
    if largest.choke != "gpu" or largest.scaling_efficiency >= _WORTH_ADDING:
        return largest.choke
    step = largest.step
    if step.input_seconds > step.exposed_communication_seconds:
        return "storage"
    return "network" if largest.nodes > 1 else "pcie"


def measured_finding(
    largest: Measurement, alone: Alone, remedies: Sequence[Remedy], gradient_bytes: float
) -> Finding:
    """What the measured run with the most workers waits for: the part that weighs most.

    What compute takes longer than with one worker is not arithmetic: the workers hold each other up.
    """
    step = largest.step
    slowed = max(0.0, step.compute_seconds - alone.compute_seconds)
    weights: dict[Choke, float] = {
        "gpu": step.compute_seconds - slowed,
        "network": step.exposed_communication_seconds,
        "host": step.input_seconds + slowed,
    }
    efficiency = largest.samples_per_second / (largest.workers * alone.samples_per_second)
    if efficiency < _WORTH_ADDING:
        weights.pop("gpu")  # whatever it waits for, more workers have not sped it up
    choke = max(weights, key=lambda part: weights[part])
    evidence = _Evidence(
        members=f"{largest.workers} workers",
        count=largest.workers,
        efficiency=efficiency,
        choke=choke,
        waits_for="the exchange between the workers" if choke == "network" else _WAITS_FOR[choke],
        step_seconds=step.step_seconds,
        compute_seconds=step.compute_seconds,
        exposed_seconds=step.exposed_communication_seconds,
        gradient_bytes=gradient_bytes,
    )
    return _finding(THIS_MACHINE, "measured", f"Measured on {THIS_MACHINE}", evidence, remedies)


def _finding(
    platform: str, basis: Basis, place: str, evidence: _Evidence, remedies: Sequence[Remedy]
) -> Finding:
    return Finding(
        platform=platform,
        basis=basis,
        choke=evidence.choke,
        gpus=evidence.count,
        scaling_efficiency=evidence.efficiency,
        sentence=_sentence(place, evidence),
        remedies=tuple(
            remedy
            for remedy in remedies
            if evidence.choke in ("gpu", "none") or not remedy.adds_gpus
        )[:_MOST_REMEDIES],
    )


def _sentence(place: str, e: _Evidence) -> str:
    if e.count == 1:
        return f"{place}, only one GPU was tried, which says nothing about adding more."
    return (
        f"{place}, {e.members} do the work of {e.count * e.efficiency:.1f} "
        f"({format_share(e.efficiency)} efficiency): of a step of {format_seconds(e.step_seconds)}, "
        f"{format_seconds(e.compute_seconds)} is arithmetic and {format_seconds(e.exposed_seconds)} "
        f"is waiting for {format_bytes(e.gradient_bytes)} of gradients. "
        f"It waits mostly for {e.waits_for}."
    )


def judge(findings: Sequence[Finding]) -> Verdict:
    """One choke for the workload: the one on most platforms; where they tie, the more cautious."""
    telling = [finding for finding in findings if finding.gpus > 1]
    if not telling:
        sentence = findings[0].sentence if findings else "Nothing was measured or predicted."
        headline = "NO EVIDENCE: try more than one GPU"
        return Verdict("none", headline, sentence, tuple(findings))
    votes = Counter(_family(finding.choke) for finding in telling)
    order: list[Choke] = ["network", "storage", "host", "none", "gpu"]
    choke = max(votes, key=lambda c: (votes[c], -order.index(c)))
    others = [f for f in telling if _family(f.choke) != choke]
    leading = next(f for f in telling if _family(f.choke) == choke)
    sentence = leading.sentence
    if others:
        differing = "; ".join(f"{f.platform} waits for {_WAITS_FOR[f.choke]}" for f in others)
        sentence += f" Not everywhere, though: {differing}."
    return Verdict(choke, _HEADLINES[choke], sentence, tuple(findings))


def _family(choke: Choke) -> Choke:
    return "network" if choke == "pcie" else choke
