"""From chokes on several platforms to one answer in words."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuyard.measure import Measurement
from gpuyard.predict import Choke, Prediction, Remedy
from gpuyard.predict.explain.knee import Knee
from gpuyard.study.result import Basis, ChokeFinding, StudyVerdict
from gpuyard.study.this_machine import THIS_MACHINE
from gpuyard.units import format_bytes, format_effective, format_seconds, format_share

_HEADLINES: dict[Choke, str] = {
    "network": "NETWORK CHOKE: speed up the exchange before adding GPUs",
    "gpu": "GPU CHOKE: add GPUs",
    "storage": "STORAGE CHOKE: speed up the input before adding GPUs",
    "host": "HOST CHOKE: relieve the host before adding GPUs",
    "none": "NO SINGLE CHOKE: adding GPUs still helps",
}
_PAST_THE_KNEE: dict[Choke, str] = {
    "network": "NETWORK CHOKE: don't add GPUs",
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
_MOST_REMEDIES = 4


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
    knee: Knee
    knee_words: str
    doubt: str | None = None


def predicted_finding(
    platform: str,
    largest: Prediction,
    remedies: Sequence[Remedy],
    knee: Knee,
    gradient_bytes: float,
) -> ChokeFinding:
    """What the largest predicted configuration that fits waits for."""
    choke = _predicted_choke(largest, knee)
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
        knee_words=knee.sentence,
    )
    return _finding(platform, "predicted", f"On {platform}", evidence, remedies)


def unfit_finding(
    platform: str, largest: Prediction, remedies: Sequence[Remedy], lacking: str
) -> ChokeFinding:
    """That nothing of what was tried fits, and with what it would."""
    return ChokeFinding(
        platform=platform,
        basis="predicted",
        choke="none",
        gpus=largest.gpus,
        scaling_efficiency=largest.scaling_efficiency,
        sentence=f"On {platform}, it does not fit: {lacking}.",
        remedies=tuple(remedies[:_MOST_REMEDIES]),
        fits=False,
    )


def _predicted_choke(largest: Prediction, knee: Knee) -> Choke:
    """As predicted; but past the knee it is not the GPUs, as the added ones bring too little."""
    if largest.choke != "gpu" or not knee.is_past(largest.gpus):
        return largest.choke
    step = largest.step
    if step.input_seconds > step.exposed_communication_seconds:
        return "storage"
    return "network" if largest.nodes > 1 else "pcie"


def measured_finding(
    largest: Measurement,
    alone: Alone,
    remedies: Sequence[Remedy],
    knee: Knee,
    gradient_bytes: float,
    *,
    doubt: str | None = None,
) -> ChokeFinding:
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
    if knee.is_past(largest.workers):
        weights.pop("gpu")  # whatever it waits for, the added workers have brought too little
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
        knee_words=_measured_knee(knee),
        doubt=doubt,
    )
    return _finding(THIS_MACHINE, "measured", f"Measured on {THIS_MACHINE}", evidence, remedies)


def _measured_knee(knee: Knee) -> str:
    if knee.beyond is None:
        return ""
    past = "one worker" if knee.gpus == 1 else f"{knee.gpus} workers"
    share = f"{format_share(knee.beyond)} of what one does alone" if knee.beyond > 0 else "nothing"
    return f"Past {past}, an added one brought {share}."


def _finding(
    platform: str, basis: Basis, place: str, evidence: _Evidence, remedies: Sequence[Remedy]
) -> ChokeFinding:
    return ChokeFinding(
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
        knee=evidence.knee if evidence.count > 1 else None,
        doubt=evidence.doubt,
    )


def _sentence(place: str, e: _Evidence) -> str:
    if e.count == 1:
        return f"{place}, only one GPU was tried, which says nothing about adding more."
    work = e.count * e.efficiency
    return (
        f"{place}, {e.members} do the work of {format_effective(work)} "
        f"({format_share(e.efficiency)} efficiency): of a step of {format_seconds(e.step_seconds)}, "
        f"{format_seconds(e.compute_seconds)} is arithmetic and {format_seconds(e.exposed_seconds)} "
        f"is waiting for {format_bytes(e.gradient_bytes)} of gradients. "
        f"It waits mostly for {e.waits_for}." + (f" {e.knee_words}" if e.knee_words else "")
    )


def judge(findings: Sequence[ChokeFinding]) -> StudyVerdict:
    """One choke for the workload: the one on most platforms; where they tie, the more cautious.

    What does not fit and what is doubtful has no vote.
    """
    telling = [finding for finding in findings if finding.tells]
    if not telling:
        return _no_evidence(findings)
    votes = Counter(_family(finding.choke) for finding in telling)
    order: list[Choke] = ["network", "storage", "host", "none", "gpu"]
    choke = max(votes, key=lambda c: (votes[c], -order.index(c)))
    agreeing = [f for f in telling if _family(f.choke) == choke]
    past = any(f.past_knee for f in agreeing)
    leading = next(f for f in agreeing if f.past_knee == past)
    headline = (past and _PAST_THE_KNEE.get(choke)) or _HEADLINES[choke]
    sentence = " ".join([leading.sentence, *_elsewhere(findings, choke)])
    return StudyVerdict(choke, headline, sentence, tuple(findings))


def _elsewhere(findings: Sequence[ChokeFinding], choke: Choke) -> Iterator[str]:
    """Where it is different, and what was not counted."""
    others = [f for f in findings if f.tells and _family(f.choke) != choke]
    if others:
        differing = "; ".join(f"{f.platform} waits for {_WAITS_FOR[f.choke]}" for f in others)
        yield f"Not everywhere, though: {differing}."
    if unfit := [f.platform for f in findings if not f.fits]:
        yield f"It does not fit on {', '.join(unfit)}."
    for finding in findings:
        if finding.doubt is not None:
            yield f"What was measured on {finding.platform} is not counted: {finding.doubt}."


def _no_evidence(findings: Sequence[ChokeFinding]) -> StudyVerdict:
    unfit = [finding for finding in findings if not finding.fits]
    doubtful = [finding for finding in findings if finding.doubt is not None]
    if unfit:
        headline = "DOES NOT FIT: use a smaller batch or GPUs with more memory"
    elif doubtful:
        headline = "NO CREDIBLE EVIDENCE: measure again when the machine is quiet"
    else:
        headline = "NO EVIDENCE: try more than one GPU"
    said = [finding.sentence for finding in (unfit or doubtful or findings)[:1]]
    said += _elsewhere([f for f in findings if f not in unfit[:1]], "none")
    sentence = " ".join(said) or "Nothing was measured or predicted."
    return StudyVerdict("none", headline, sentence, tuple(findings))


def _family(choke: Choke) -> Choke:
    return "network" if choke == "pcie" else choke
