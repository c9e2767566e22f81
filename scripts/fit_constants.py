"""Fit the predictor's free constants to the published tables and write them into the package.

    python scripts/fit_constants.py            # writes src/gpuyard/predict/data/fitted.json
    python scripts/fit_constants.py --check    # exits 1 where the file would change

Needs scipy. A constant is sought on the scale where it is free (a share as its logit, the rest as
logarithms) by least squares on soft-L1 of the logarithm of predicted over published. Every table
of 50 rows or more counts the same, whatever its number of rows. A penalty draws each constant back to its default, so
that what the tables say nothing about stays where it is. It is done once with all tables, for the
package, and once without each table, for `gpuyard validate`. Nothing is random.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares, minimize

from gpuyard.catalog.published import TRAINING_TABLES, published
from gpuyard.catalog.published_rows import SingleGpuRow
from gpuyard.predict.constants import RooflineFit, Spread, Tuning
from gpuyard.predict.table import Floats
from gpuyard.predict.validation.cases import Cases, compiled
from gpuyard.predict.validation.collectives import predicted_seconds, timed_all_reduces
from gpuyard.predict.validation.score import relative_sigma
from gpuyard.predict.validation.single import (
    Pair,
    batch_pairs,
    estimated_seconds,
    measured_seconds,
    one_gpu_rows,
    slower_by,
    smaller_batch_seconds,
)

OUTPUT = Path(__file__).parent.parent / "src/gpuyard/predict/data/fitted.json"
ALL_REDUCE = "allreduce"
TABLES = (*TRAINING_TABLES, ALL_REDUCE)
NAMES = [field.name for field in fields(Tuning)]
SHARES = {name for name in NAMES if name.endswith("_share") or name.startswith("overlap")}
SCALE = 0.05  # errors beyond it count linearly, not squared
DRAWN_BACK = 1.0  # a constant e times off its default costs as much as a table that is SCALE off
REASONS = ("compute", "between", "exchange_inside", "exchange_between", "batch", "skew")
# a table that the fit has not seen lies further off than those it has: 92 % of these are about 90 % of it
HELD = 0.92
HELD_UNSEEN = 0.9
SPREAD_DRAWN_BACK = 0.01
ENOUGH_ROWS = 50
DIGITS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, do not write")
    check = parser.parse_args().check
    cases = {name: compiled(published(name).rows) for name in TRAINING_TABLES}
    sets: dict[str, Any] = {"all": fitted_without(None, cases), "without": {}}
    for name in TABLES:
        sets["without"][name] = fitted_without(name, cases)
    sets["roofline"] = rooflines()
    sets["roofline"]["spread"] = one_gpu_spread(sets)
    text = json.dumps(sets, indent=1) + "\n"
    if check:
        sys.exit(0 if OUTPUT.read_text(encoding="utf-8") == text else 1)
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(text, encoding="utf-8")
    print(text)


def fitted_without(left_out: str | None, cases: dict[str, list[Cases]]) -> dict[str, Any]:
    used = [name for name in TABLES if name != left_out]
    start = free(Tuning())

    def residuals(x: Floats) -> Floats:
        tuning = bound(x)
        blocks = [soft(log_errors(name, cases, tuning) / SCALE) for name in used]
        blocks.append(DRAWN_BACK * (x - start))
        return np.concatenate(blocks)

    found = bound(least_squares(residuals, start).x)
    tuning = Tuning(**{name: rounded(value) for name, value in asdict(found).items()})
    off = calibrated([name for name in used if name != ALL_REDUCE], cases, tuning)
    return {"constants": asdict(tuning), "spread": asdict(off)}


def rooflines() -> dict[str, Any]:
    """One set on all GPUs, and for each GPU one without its rows."""
    rows, pairs = one_gpu_rows(), batch_pairs()
    ids = sorted({row.gpu for row in rows} | {small.gpu for small, _ in pairs})

    def without(gpu: str) -> RooflineFit:
        others = [pair for pair in pairs if pair[0].gpu != gpu]
        return roofline_of([row for row in rows if row.gpu != gpu], others)

    return {
        "all": asdict(roofline_of(rows, pairs)),
        "without": {gpu: asdict(without(gpu)) for gpu in ids},
    }


def one_gpu_spread(sets: dict[str, Any]) -> dict[str, float]:
    """σ of one GPU's step that was not measured: so large that the interval around it holds 90 % of the
    figures of GPUs that the constants have not seen."""
    off = Spread(**sets["all"]["spread"])
    found = {}
    for name, ratio in slower_by(
        lambda gpu: RooflineFit(**sets["roofline"]["without"][gpu])
    ).items():
        slower = np.log(ratio)
        reach = unskewed(np.sign(slower) * np.expm1(np.abs(slower)), off)
        enough = np.quantile(reach, HELD_UNSEEN, method="inverted_cdf")
        found[name] = rounded_up(float(enough) / off.factor)
    return found


def roofline_of(rows: Sequence[SingleGpuRow], pairs: Sequence[Pair]) -> RooflineFit:
    measured = measured_seconds(rows)
    measured_smaller = measured_seconds([small for small, _ in pairs])
    names = [field.name for field in fields(RooflineFit)]
    start = np.log([getattr(RooflineFit(), name) for name in names])

    def as_fit(x: Floats) -> RooflineFit:
        values = np.exp(x).tolist()
        return RooflineFit(**{n: rounded(v) for n, v in zip(names, values, strict=True)})

    def residuals(x: Floats) -> Floats:
        fit = RooflineFit(**dict(zip(names, np.exp(x).tolist(), strict=True)))
        errors = np.log(estimated_seconds(rows, fit) / measured)
        smaller = np.log(smaller_batch_seconds(pairs, fit) / measured_smaller)
        return np.concatenate(
            [np.arcsinh(errors / 0.2), np.arcsinh(smaller / 0.05), 0.1 * (x - start)]
        )

    return as_fit(least_squares(residuals, start).x)


def soft(errors: Floats) -> Floats:
    """Residuals whose squares are a table's mean soft-L1 loss; a table of few rows counts less."""
    loss = 2 * (np.sqrt(1 + errors**2) - 1)
    return np.sqrt(loss * min(1.0, len(errors) / ENOUGH_ROWS) / len(errors))


def log_errors(name: str, cases: dict[str, list[Cases]], tuning: Tuning) -> Floats:
    if name == ALL_REDUCE:
        rows = timed_all_reduces()
        measured = np.array([row.seconds for row in rows])
        return np.log(measured / predicted_seconds(rows, tuning))
    return np.concatenate(
        [np.log(c.measured_seconds / c.predicted(tuning).step_seconds) for c in cases[name]]
    )


def calibrated(names: list[str], cases: dict[str, list[Cases]], tuning: Tuning) -> Spread:
    """σ for each reason, by the likelihood of the errors as double exponentials, wider on the slow side by
    the skew; then the factor that holds enough of the rows, each table counting the same."""
    parts = {name: [(c, c.predicted(tuning)) for c in cases[name]] for name in names}
    errors = {
        name: np.concatenate([np.log(c.measured_seconds / p.step_seconds) for c, p in made])
        for name, made in parts.items()
    }

    def sigmas(off: Spread) -> dict[str, Floats]:
        return {
            name: np.concatenate([relative_sigma(c, p, off) for c, p in made])
            for name, made in parts.items()
        }

    start = np.log([getattr(Spread(), name) for name in REASONS])

    def unlikeliness(x: Floats) -> float:
        off = Spread(**dict(zip(REASONS, np.exp(x).tolist(), strict=True)))
        by_table = sigmas(off)
        both_sides = np.log(off.skew + 1 / off.skew)
        off_by = [
            np.mean(np.log(by_table[n]) + both_sides + unskewed(errors[n], off) / by_table[n])
            for n in names
        ]
        return float(np.mean(off_by) + SPREAD_DRAWN_BACK * np.sum((x - start) ** 2))

    found = np.exp(minimize(unlikeliness, start, method="L-BFGS-B").x).tolist()
    best = Spread(**{name: rounded(v) for name, v in zip(REASONS, found, strict=True)})
    by_table = sigmas(best)
    # an interval reaches from 1/(1+w) to 1+w, so that without its skew it is symmetric in logarithms
    needed = np.concatenate(
        [unskewed(np.sign(e) * np.expm1(np.abs(e)), best) / by_table[n] for n, e in errors.items()]
    )
    weight = np.concatenate([np.full(len(errors[n]), 1 / len(errors[n])) for n in names])
    order = np.argsort(needed)
    reached = np.cumsum(weight[order]) / weight.sum()
    factor = float(needed[order][np.searchsorted(reached, HELD)])
    return replace(best, factor=rounded(factor))


def unskewed(slower: Floats, off: Spread) -> Floats:
    """Distances, where those of a step that was slower than predicted count less."""
    return np.where(slower > 0, slower / off.skew, -slower * off.skew)


def free(tuning: Tuning) -> Floats:
    return np.array(
        [
            np.log(value / (1 - value)) if name in SHARES else np.log(value)
            for name, value in asdict(tuning).items()
        ]
    )


def bound(x: Floats) -> Tuning:
    return Tuning(
        **{
            name: float(1 / (1 + np.exp(-value)) if name in SHARES else np.exp(value))
            for name, value in zip(NAMES, x, strict=True)
        }
    )


def rounded_up(value: float) -> float:
    """So that the last row that an interval must hold is not lost to rounding."""
    unit = 10.0 ** (np.floor(np.log10(value)) + 1 - DIGITS)
    return rounded(float(np.ceil(value / unit) * unit))


def rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


if __name__ == "__main__":
    main()
