"""Combines the chokes on several platforms into one verdict for a workload."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuyard.measure.training.records import Measurement
from gpuyard.predictor import Choke, Prediction, Remedy
from gpuyard.predictor.knee import Knee
from gpuyard.study.result import Basis, ChokeFinding, StudyVerdict
from gpuyard.study.this_machine import THIS_MACHINE
from gpuyard.units import format_bytes, format_effective_gpus, format_seconds, format_share

_HEADLINES: dict[Choke, str] = {
    "network": "NETWORK CHOKE: speed up the exchange before adding GPUs",
    "pcie": "PCIe CHOKE: speed up the links inside the machine before adding GPUs",
    "gpu": "GPU CHOKE: add GPUs",
    "storage": "STORAGE CHOKE: speed up the input before adding GPUs",
    "host": "HOST CHOKE: relieve the host before adding GPUs",
    "none": "NO SINGLE CHOKE: adding GPUs still helps",
}
_HEADLINES_PAST_KNEE: dict[Choke, str] = {
    "network": "NETWORK CHOKE: don't add GPUs",
    "pcie": "PCIe CHOKE: don't add GPUs",
    "none": "NO SINGLE CHOKE: don't add GPUs",
}
_WAITS_FOR: dict[Choke, str] = {
    "network": "the network between the machines",
    "pcie": "the links inside the machine",
    "gpu": "arithmetic",
    "storage": "storage",
    "host": "the host, whose cores and memory the workers share",
    "none": "nothing in particular",
}
_MAX_REMEDIES = 4


@dataclass(frozen=True)
class SingleWorker:
    """The speed of one worker at the same batch, measured or from the fitted line."""

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
    knee: Knee
    knee_sentence: str
    doubt: str | None = None


def build_predicted_finding(
    platform: str,
    largest: Prediction,
    remedies: Sequence[Remedy],
    knee: Knee,
    gradient_bytes: float,
) -> ChokeFinding:
    """Describe the bottleneck of the largest predicted configuration that fits."""
    choke = largest.choke
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
        knee=knee,
        knee_sentence=knee.sentence,
    )
    return _build_finding(platform, "predicted", f"On {platform}", evidence, remedies)


def build_unfit_finding(
    platform: str, largest: Prediction, remedies: Sequence[Remedy], lacking: str
) -> ChokeFinding:
    """Report that no configuration fits into memory, and what would make it fit."""
    return ChokeFinding(
        platform=platform,
        basis="predicted",
        choke="none",
        gpus=largest.gpus,
        scaling_efficiency=largest.scaling_efficiency,
        sentence=f"On {platform}, it does not fit: {lacking}.",
        remedies=tuple(remedies[:_MAX_REMEDIES]),
        fits=False,
    )


def build_measured_finding(
    largest: Measurement,
    alone: SingleWorker,
    remedies: Sequence[Remedy],
    knee: Knee,
    gradient_bytes: float,
    *,
    doubt: str | None = None,
) -> ChokeFinding:
    """Describe the bottleneck of the measured run with the most workers: its largest part.

    Compute time beyond that of one worker counts as waiting for the host, as the workers share its resources.
    """
    step = largest.step
    slowed = max(0.0, step.compute_seconds - alone.compute_seconds)
    weights: dict[Choke, float] = {
        "gpu": step.compute_seconds - slowed,
        "network": step.exposed_communication_seconds,
        "host": step.input_seconds + slowed,
    }
    efficiency = largest.samples_per_second / (largest.workers * alone.samples_per_second)
    if knee.is_past(largest.workers):
        weights.pop("gpu")  # the added workers gained too little
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
        knee=knee,
        knee_sentence=_describe_measured_knee(knee),
        doubt=doubt,
    )
    return _build_finding(
        THIS_MACHINE, "measured", f"Measured on {THIS_MACHINE}", evidence, remedies
    )


def _describe_measured_knee(knee: Knee) -> str:
    if knee.beyond is None:
        return ""
    workers = "one worker" if knee.gpus == 1 else f"{knee.gpus} workers"
    share = f"{format_share(knee.beyond)} of one worker's speed" if knee.beyond > 0 else "nothing"
    return f"Past {workers}, each additional one added {share}."


def _build_finding(
    platform: str, basis: Basis, place: str, evidence: _Evidence, remedies: Sequence[Remedy]
) -> ChokeFinding:
    return ChokeFinding(
        platform=platform,
        basis=basis,
        choke=evidence.choke,
        gpus=evidence.count,
        scaling_efficiency=evidence.efficiency,
        sentence=_describe_evidence(place, evidence),
        remedies=tuple(
            remedy
            for remedy in remedies
            if evidence.choke in ("gpu", "none") or not remedy.adds_gpus
        )[:_MAX_REMEDIES],
        knee=evidence.knee if evidence.count > 1 else None,
        doubt=evidence.doubt,
    )


def _describe_evidence(place: str, e: _Evidence) -> str:
    if e.count == 1:
        return f"{place}, only one GPU was tried, which shows nothing about adding more."
    work = e.count * e.efficiency
    return (
        f"{place}, {e.members} do the work of {format_effective_gpus(work)} "
        f"({format_share(e.efficiency)} efficiency): of a step of {format_seconds(e.step_seconds)}, "
        f"{format_seconds(e.compute_seconds)} is arithmetic and {format_seconds(e.exposed_seconds)} "
        f"is waiting for {format_bytes(e.gradient_bytes)} of gradients. "
        f"It waits mostly for {e.waits_for}." + (f" {e.knee_sentence}" if e.knee_sentence else "")
    )


def judge(findings: Sequence[ChokeFinding]) -> StudyVerdict:
    """Choose one choke for the workload: that of most platforms, or the more cautious one if they tie.

    Platforms that it does not fit and doubtful findings do not count.
    """
    conclusive = [finding for finding in findings if finding.is_conclusive]
    if not conclusive:
        return _judge_without_evidence(findings)
    votes = Counter(_merge_links(finding.choke) for finding in conclusive)
    order: list[Choke] = ["network", "storage", "host", "none", "gpu"]
    choke = max(votes, key=lambda c: (votes[c], -order.index(c)))
    agreeing = [f for f in conclusive if _merge_links(f.choke) == choke]
    if {f.choke for f in agreeing} == {"pcie"}:
        choke = "pcie"
    past_knee = any(f.past_knee for f in agreeing)
    leading = next(f for f in agreeing if f.past_knee == past_knee)
    headline = (past_knee and _HEADLINES_PAST_KNEE.get(choke)) or _HEADLINES[choke]
    sentence = " ".join([leading.sentence, *_describe_exceptions(findings, choke)])
    return StudyVerdict(choke, headline, sentence, tuple(findings))


def _describe_exceptions(findings: Sequence[ChokeFinding], choke: Choke) -> Iterator[str]:
    """Describe platforms with another choke, and findings that were not counted."""
    others = [
        f for f in findings if f.is_conclusive and _merge_links(f.choke) != _merge_links(choke)
    ]
    if others:
        differing = "; ".join(f"{f.platform} waits for {_WAITS_FOR[f.choke]}" for f in others)
        yield f"Other platforms differ: {differing}."
    if unfit := [f.platform for f in findings if not f.fits]:
        yield f"It does not fit on {', '.join(unfit)}."
    for finding in findings:
        if finding.doubt is not None:
            yield f"Doubtful runs on {finding.platform} do not count: {finding.doubt}."


def _judge_without_evidence(findings: Sequence[ChokeFinding]) -> StudyVerdict:
    unfit = [finding for finding in findings if not finding.fits]
    doubtful = [finding for finding in findings if finding.doubt is not None]
    if unfit:
        headline = "DOES NOT FIT: use a smaller batch or GPUs with more memory"
    elif doubtful:
        headline = "NO VALID EVIDENCE: measure again when the machine is quiet"
    else:
        headline = "NO EVIDENCE: try more than one GPU"
    sentences = [finding.sentence for finding in (unfit or doubtful or findings)[:1]]
    sentences += _describe_exceptions([f for f in findings if f not in unfit[:1]], "none")
    sentence = " ".join(sentences) or "Nothing was measured or predicted."
    return StudyVerdict("none", headline, sentence, tuple(findings))


def _merge_links(choke: Choke) -> Choke:
    """Count links inside a machine as part of the network."""
    return "network" if choke == "pcie" else choke
