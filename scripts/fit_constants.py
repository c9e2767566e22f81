"""Fit the predictor's free constants to the published tables and write them into the package.

    python scripts/fit_constants.py            # writes src/gpuyard/predict/data/fitted.json
    python scripts/fit_constants.py --check    # exits 1 where the file would change

Needs scipy. A constant is sought on the scale where it is free (a share as its logit, the rest as
logarithms) by least squares on soft-L1 of the logarithm of predicted over published. Every source
(one publisher's machines under one software stack) counts the same, in it every series. A penalty draws each constant back to its default, so
that what the tables say nothing about stays where it is. It is done once with all tables, for the
package, and once without each table, for `gpuyard validate`. Nothing is random.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from fit_intervals import errors_of, spreads
from gpuyard.catalog.published import SIZING_TABLES, TRAINING_TABLES, published
from gpuyard.catalog.published_rows import SingleGpuRow
from gpuyard.predict.constants import RooflineFit, Tuning
from gpuyard.predict.interval import NORMAL_90
from gpuyard.predict.table import Floats
from gpuyard.predict.validation.cases import Cases, compiled
from gpuyard.predict.validation.collectives import predicted_seconds, timed_all_reduces
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
HELD_UNSEEN = 0.9
TABLES_WORTH = 2.5  # more than that, and the older tables get worse by more than a point
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
    sets["spread"] = intervals(sets, cases)
    text = json.dumps(sets, indent=1) + "\n"
    if check:
        sys.exit(0 if OUTPUT.read_text(encoding="utf-8") == text else 1)
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(text, encoding="utf-8")
    print(text)


def intervals(sets: dict[str, Any], cases: dict[str, list[Cases]]) -> dict[str, Any]:
    """What intervals reach, by errors of every table with constants that were not fitted to it."""
    predicted = []
    for name in (*TRAINING_TABLES, *SIZING_TABLES):
        constants = sets["without"][name] if name in cases else sets["all"]
        tuning = Tuning(**constants["constants"])
        members = cases[name] if name in cases else compiled(published(name).rows)
        predicted += [(one, one.predicted(tuning)) for one in members]
    return spreads(errors_of(predicted))


def fitted_without(left_out: str | None, cases: dict[str, list[Cases]]) -> dict[str, Any]:
    used = [name for name in TABLES if name != left_out]
    start = free(Tuning())
    weights = weights_of({name: cases[name] for name in used if name != ALL_REDUCE})

    def residuals(x: Floats) -> Floats:
        tuning = bound(x)
        blocks = [soft(log_errors(name, cases, tuning) / SCALE, weights[name]) for name in used]
        blocks.append(DRAWN_BACK * (x - start))
        return np.concatenate(blocks)

    found = bound(least_squares(residuals, start).x)
    tuning = Tuning(**{name: rounded(value) for name, value in asdict(found).items()})
    return {"constants": asdict(tuning)}


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
    by_basis = slower_by(lambda gpu: RooflineFit(**sets["roofline"]["without"][gpu]))
    return {
        name: rounded_up(
            float(np.quantile(np.abs(np.log(ratio)), HELD_UNSEEN, method="inverted_cdf"))
            / NORMAL_90
        )
        for name, ratio in by_basis.items()
    }


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


def weights_of(cases: dict[str, list[Cases]]) -> dict[str, Floats]:
    """Of every row: sources count the same, in a source all series, in a series all rows. All sources together
    count as much as TABLES_WORTH tables did, against what draws constants back; timed all-reduces as one."""
    rows = {name: [row for one in members for row in one.rows] for name, members in cases.items()}
    every = [row for members in rows.values() for row in members]
    series = Counter((row.source, row.series, row.model, row.precision) for row in every)
    of_source = Counter(key[0] for key in series)
    each = TABLES_WORTH / len(of_source)
    found = {
        name: np.array(
            [
                each
                / of_source[row.source]
                / series[row.source, row.series, row.model, row.precision]
                for row in members
            ]
        )
        for name, members in rows.items()
    }
    timed = len(timed_all_reduces())
    return found | {ALL_REDUCE: np.full(timed, 1 / timed)}


def soft(errors: Floats, weight: Floats) -> Floats:
    """Residuals whose squares are the weighted soft-L1 loss."""
    return np.sqrt(2 * (np.sqrt(1 + errors**2) - 1) * weight)


def log_errors(name: str, cases: dict[str, list[Cases]], tuning: Tuning) -> Floats:
    if name == ALL_REDUCE:
        rows = timed_all_reduces()
        measured = np.array([row.seconds for row in rows])
        return np.log(measured / predicted_seconds(rows, tuning))
    return np.concatenate(
        [np.log(c.measured_seconds / c.predicted(tuning).step_seconds) for c in cases[name]]
    )


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
