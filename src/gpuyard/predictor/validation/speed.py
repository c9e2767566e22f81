"""Validation of one GPU's speed against published figures, each without the figures of its publisher."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gpuyard.catalog import gpus
from gpuyard.catalog.published import compute_profile, single_gpu_rows
from gpuyard.errors import UserMistake
from gpuyard.predictor.compute import find_peak_rate, roofline
from gpuyard.predictor.interval import NORMAL_90
from gpuyard.predictor.speed_evidence import (
    Case,
    SpeedEvidence,
    create_case,
    load_speed_evidence,
)
from gpuyard.predictor.table import Floats
from gpuyard.predictor.validation.score import Score, score_errors


@dataclass(frozen=True)
class PublishedSpeeds:
    """Cases with log(measured / roofline seconds); figures of one case and batch are averaged."""

    cases: tuple[Case, ...]
    log_ratios: Floats


def compile_published_speeds() -> PublishedSpeeds:
    """Return all published figures of one GPU for which the catalog has a rate."""
    ratios: dict[tuple[Case, float], list[float]] = {}
    for row in single_gpu_rows():
        gpu, profile = gpus().get(row.gpu), compute_profile(row.model)
        try:
            used, peak = find_peak_rate(row.precision, gpu)
        except UserMistake:
            continue
        line = roofline(profile, gpu, row.precision)
        estimated = line.fixed_seconds + row.batch_per_gpu * line.seconds_per_sample
        case = create_case(
            row.model,
            profile,
            gpu,
            used,
            channels_last=row.channels_last,
            compiled=row.compiled,
            publisher=row.publisher,
            stack=row.stack,
        )
        measured = row.batch_per_gpu / row.samples_per_second
        if case.kind == "matrix" and 3 * profile.forward_flops * row.samples_per_second > peak:
            continue  # more than the GPU can do: a misprint
        ratios.setdefault((case, row.batch_per_gpu), []).append(math.log(measured / estimated))
    means = np.array([np.mean(values) for values in ratios.values()])
    return PublishedSpeeds(tuple(case for case, _ in ratios), means)


@dataclass(frozen=True)
class HeldOut:
    """A published figure, predicted without its publisher: log(measured / predicted seconds), and one σ."""

    case: Case
    log_error: float
    sigma: float
    gpu_known: bool
    family_known: bool

    @property
    def inside(self) -> bool:
        return abs(self.log_error) <= NORMAL_90 * self.sigma


def hold_out_publishers(evidence: SpeedEvidence, *, also_gpu: bool = False) -> list[HeldOut]:
    """Predict every figure from other publishers', with `also_gpu` also without the figures of its GPU."""
    groups = sorted({(c.publisher or "", c.gpu if also_gpu else "") for c in evidence.cases})
    results = []
    for publisher, gpu in groups:
        out = [i for i, c in enumerate(evidence.cases) if publisher == c.publisher or gpu == c.gpu]
        rest = [c for c in evidence.cases if publisher != c.publisher and gpu != c.gpu]
        gpus_known = {case.gpu for case in rest}
        families_known = {_get_family_label(case) for case in rest}
        for i, error, sigma in zip(out, *evidence.hold_out(out), strict=True):
            case = evidence.cases[i]
            if case.publisher == publisher and gpu in ("", case.gpu):
                family_known = _get_family_label(case) in families_known
                known = case.gpu in gpus_known, family_known
                results.append(HeldOut(case, float(error), float(sigma), *known))
    return results


def _get_family_label(case: Case) -> tuple[object, ...]:
    return case.family, case.units, case.channels_last


def score_held_out(held_out: Sequence[HeldOut]) -> Score:
    return score_errors(
        np.array([math.expm1(h.log_error) for h in held_out]),
        float(np.mean([h.inside for h in held_out])),
        float(np.median([math.sinh(NORMAL_90 * h.sigma) for h in held_out])),
    )


def score_speeds() -> dict[str, Score]:
    """Score the speed of one GPU on publishers never seen: overall, and by family and precision."""
    unseen = hold_out_publishers(load_speed_evidence())
    unseen_gpu = hold_out_publishers(load_speed_evidence(), also_gpu=True)

    def is_known(h: HeldOut) -> bool:
        return h.gpu_known and h.family_known

    scores = {
        "publisher never seen": score_held_out(unseen),
        "known GPU and family": score_held_out([h for h in unseen if is_known(h)]),
        "GPU never seen either": score_held_out([h for h in unseen_gpu if h.family_known]),
    }
    return scores | _score_groups(unseen, lambda h: f"{h.case.family or 'other'}, {h.case.units}")


def _score_groups(held_out: Sequence[HeldOut], name: Callable[[HeldOut], str]) -> dict[str, Score]:
    groups: dict[str, list[HeldOut]] = {}
    for h in held_out:
        groups.setdefault(name(h), []).append(h)
    return {group: score_held_out(groups[group]) for group in sorted(groups)}


def compare_scaled(evidence: SpeedEvidence) -> Floats:
    """Return measured over predicted seconds of figures scaled from the same stack's figure on another GPU.

    No figure of the publisher or of the predicted GPU has a part in it.
    """
    ratios: list[float] = []
    for publisher, gpu in sorted({(c.publisher or "", c.gpu) for c in evidence.cases}):
        out = [i for i, c in enumerate(evidence.cases) if publisher == c.publisher or gpu == c.gpu]
        errors = dict(zip(out, evidence.hold_out(out)[0].tolist(), strict=True))
        own = [i for i in out if evidence.cases[i].publisher == publisher]
        ratios += [
            errors[i] - errors[j]
            for i in own
            for j in own
            if evidence.cases[i].gpu == gpu != evidence.cases[j].gpu
            and _is_same_program(evidence.cases[i], evidence.cases[j])
        ]
    return np.asarray(np.exp(ratios))


def _is_same_program(case: Case, other: Case) -> bool:
    settings = ("model", "stack", "units", "channels_last", "compiled")
    return all(getattr(case, name) == getattr(other, name) for name in settings)
