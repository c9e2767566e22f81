"""Fit the effects that correct the roofline of one GPU, and write them with their evidence into the package.

    python scripts/fit_speed.py            # writes src/gpuyard/predictor/data/speed.json
    python scripts/fit_speed.py --check    # exits 1 if the file would change

Needs scipy. The variances of the effects have the highest marginal likelihood under a weak prior that each σ is about
10%. Run it after scripts/fit_constants.py, whose rooflines it corrects. Nothing is random.
"""

import argparse
import json
import sys
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize

from gpuyard.predictor.interval import NORMAL_90
from gpuyard.predictor.speed_evidence import EFFECTS, NOISE, Case, SpeedEvidence
from gpuyard.predictor.table import Floats
from gpuyard.predictor.validation.speed import (
    PublishedSpeeds,
    compare_scaled,
    compile_published_speeds,
    hold_out_publishers,
    score_held_out,
)

OUTPUT = Path(__file__).parents[1] / "src/gpuyard/predictor/data/speed.json"
PRIOR_VARIANCE = 0.1**2
COVERAGE = 0.9
PRIOR_LOG_SIGMA = 2.5  # of a variance's logarithm
NAMES = (*EFFECTS, NOISE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, do not write")
    check = parser.parse_args().check
    speeds = compile_published_speeds()
    text = format_document(speeds, fit_variances(speeds))
    if check:
        sys.exit(0 if OUTPUT.read_text(encoding="utf-8") == text else 1)
    OUTPUT.write_text(text, encoding="utf-8")
    variances = json.loads(text)["variances"]
    print({name: round(variance**0.5, 3) for name, variance in variances.items()})
    evidence = SpeedEvidence(speeds.cases, speeds.log_ratios.tolist(), variances)
    for also_gpu in (False, True):
        print(score_held_out(hold_out_publishers(evidence, also_gpu=also_gpu)))


def fit_variances(speeds: PublishedSpeeds) -> dict[str, float]:
    shared = [share_labels(speeds.cases, effect) for effect in EFFECTS] + [
        np.eye(len(speeds.cases))
    ]
    y = speeds.log_ratios - np.array([case.log_expected for case in speeds.cases])
    prior = np.log(PRIOR_VARIANCE)

    def loss(x: Floats) -> tuple[float, Floats]:
        variances = np.exp(x)
        covariance = sum(v * s for v, s in zip(variances, shared, strict=True))
        inverse = np.linalg.inv(covariance)
        weights = inverse @ y
        _, log_determinant = np.linalg.slogdet(covariance)
        pulled = (x - prior) / PRIOR_LOG_SIGMA
        gradient = [
            0.5 * v * (np.sum(inverse * s) - weights @ s @ weights)
            for v, s in zip(variances, shared, strict=True)
        ]
        value = 0.5 * (y @ weights + log_determinant + pulled @ pulled)
        return float(value), np.array(gradient) + pulled / PRIOR_LOG_SIGMA

    start = np.full(len(NAMES), prior)
    bounds = [(-12.0, 1.0)] * len(NAMES)
    fitted = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    return {n: float(f"{v:.3g}") for n, v in zip(NAMES, np.exp(fitted).tolist(), strict=True)}


def share_labels(cases: tuple[Case, ...], effect: str) -> Floats:
    codes: dict[object, int] = {}
    labels = [case.effects()[effect] for case in cases]
    numbers = np.array(
        [-1 if label is None else codes.setdefault(label, len(codes)) for label in labels]
    )
    same = (numbers[:, None] == numbers[None, :]) & (numbers >= 0)[:, None]
    return np.asarray(same, dtype=float)


def format_document(speeds: PublishedSpeeds, variances: dict[str, float]) -> str:
    columns = [field.name for field in fields(Case)]
    rows: list[Any] = [list(asdict(case).values()) for case in speeds.cases]
    log_ratios = [round(ratio, 4) for ratio in speeds.log_ratios.tolist()]
    evidence = SpeedEvidence(speeds.cases, speeds.log_ratios.tolist(), variances)
    errors = {"scaled": np.log(compare_scaled(evidence)), "roofline": speeds.log_ratios}
    sigmas = {
        name: float(f"{np.quantile(np.abs(error), COVERAGE) / NORMAL_90:.3g}")
        for name, error in errors.items()
    }
    head = {"variances": variances, "sigmas": sigmas, "columns": columns, "log_ratios": log_ratios}
    lines = ",\n".join(json.dumps(row) for row in rows)
    return json.dumps(head, indent=1)[:-2] + f',\n "rows": [\n{lines}\n]\n}}\n'


if __name__ == "__main__":
    main()
