"""Fit the predictor's free constants to the published tables and write them into the package.

    python scripts/fit_constants.py            # writes src/gpuyard/predictor/data/fitted.json
    python scripts/fit_constants.py --check    # exits 1 if the file would change

Needs scipy. The fit is least squares on the soft-L1 loss of log(predicted / published). Each constant is fitted on an unbounded
scale: a share as its logit, all others as logarithms. Every source (one publisher's machines under one software stack) has the
same weight, and so has every series within it. A penalty pulls each constant toward its default, so constants that the tables
say nothing about keep theirs. The fit runs once with all tables, for the package, and once without each table, for
`gpuyard validate`. Nothing is random.
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

from fit_intervals import collect_errors, fit_spreads
from gpuyard.catalog.published import (
    SIZING_TABLES,
    TRAINING_TABLES,
    collective_rows,
    published_table,
)
from gpuyard.catalog.published_rows import SingleGpuRow
from gpuyard.predictor.constants import LinkClass, RooflineFit, Tuning
from gpuyard.predictor.table import Floats
from gpuyard.predictor.validation.cases import Cases, compile_cases
from gpuyard.predictor.validation.collectives import (
    FACT_THREADS,
    LINK_CLASSES,
    classify,
    fit_log_width,
    log_errors,
    predicted_seconds,
    timed_all_reduces,
)
from gpuyard.predictor.validation.single import (
    Pair,
    batch_pairs,
    estimated_seconds,
    load_single_gpu_rows,
    measured_seconds,
    smaller_batch_seconds,
)

OUTPUT = Path(__file__).parent.parent / "src/gpuyard/predictor/data/fitted.json"
ALL_REDUCE = "allreduce"
TABLES = (*TRAINING_TABLES, ALL_REDUCE)
NAMES = [field.name for field in fields(Tuning)]
SHARES = {name for name in NAMES if name.endswith("_share") or name.startswith("overlap")}
SCALE = 0.05  # larger errors count linearly instead of squared
# a constant that differs by a factor of e from its default costs as much as a table with an error of SCALE
PULL_TO_DEFAULT = 1.0
TOTAL_SOURCE_WEIGHT = 2.5  # with a larger weight, the older tables get worse by more than a point
DIGITS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, do not write")
    check = parser.parse_args().check
    cases = {name: compile_cases(published_table(name).rows) for name in TRAINING_TABLES}
    sets: dict[str, Any] = {"all": fit_without(None, cases), "without": {}}
    for name in TABLES:
        sets["without"][name] = fit_without(name, cases)
    sets["links"] = fit_link_widths(sets)
    sets["roofline"] = fit_rooflines()
    sets["spread"] = fit_interval_spreads(sets, cases)
    text = json.dumps(sets, indent=1) + "\n"
    if check:
        sys.exit(0 if OUTPUT.read_text(encoding="utf-8") == text else 1)
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(text, encoding="utf-8")
    print(text)


def fit_interval_spreads(sets: dict[str, Any], cases: dict[str, list[Cases]]) -> dict[str, Any]:
    """Fit interval widths to every table's errors, predicted with constants that were not fitted to that table."""
    predicted = []
    for name in (*TRAINING_TABLES, *SIZING_TABLES):
        constants = sets["without"][name] if name in cases else sets["all"]
        tuning = Tuning(**constants["constants"])
        members = cases[name] if name in cases else compile_cases(published_table(name).rows)
        predicted += [(member, member.predict(tuning)) for member in members]
    return fit_spreads(collect_errors(predicted))


def fit_link_widths(sets: dict[str, Any]) -> dict[str, Any]:
    """Fit the intervals of bus bandwidths by class of links, and once without each thread.

    No constant is fitted to threads. Those that gave the catalog its rates don't count.
    """
    rows = [row for row in collective_rows() if row.thread not in FACT_THREADS]
    errors = log_errors(rows, Tuning(**sets["all"]["constants"]))
    by_thread: dict[LinkClass, dict[str, list[float]]] = {link: {} for link in LINK_CLASSES}
    for row, error in zip(rows, errors, strict=True):
        by_thread[classify(row)].setdefault(row.thread, []).append(float(error))

    def fit(link: LinkClass, excluded: str | None = None) -> float:
        kept = (np.array(e) for thread, e in by_thread[link].items() if thread != excluded)
        return round_to_digits(fit_log_width(link, kept))

    threads = sorted({row.thread for row in rows})
    return {
        "all": {link: fit(link) for link in LINK_CLASSES},
        "without": {
            thread: {link: fit(link, thread) for link in LINK_CLASSES if thread in by_thread[link]}
            for thread in threads
        },
    }


def fit_without(excluded: str | None, cases: dict[str, list[Cases]]) -> dict[str, Any]:
    used = [name for name in TABLES if name != excluded]
    start = to_free_scale(Tuning())
    weights = weigh_rows({name: cases[name] for name in used if name in cases})

    def residuals(x: Floats) -> Floats:
        tuning = from_free_scale(x)
        blocks = [
            soft_l1_residuals(compute_log_errors(name, cases, tuning) / SCALE, weights[name])
            for name in used
        ]
        blocks.append(PULL_TO_DEFAULT * (x - start))
        return np.concatenate(blocks)

    fitted = from_free_scale(least_squares(residuals, start).x)
    tuning = Tuning(**{name: round_to_digits(value) for name, value in asdict(fitted).items()})
    return {"constants": asdict(tuning)}


def fit_rooflines() -> dict[str, Any]:
    """Fit one set of constants to all GPUs, and one per GPU without its rows."""
    rows, pairs = load_single_gpu_rows(), batch_pairs()
    ids = sorted({row.gpu for row in rows} | {small.gpu for small, _ in pairs})

    def fit_without_gpu(gpu: str) -> RooflineFit:
        others = [pair for pair in pairs if pair[0].gpu != gpu]
        return fit_roofline([row for row in rows if row.gpu != gpu], others)

    return {
        "all": asdict(fit_roofline(rows, pairs)),
        "without": {gpu: asdict(fit_without_gpu(gpu)) for gpu in ids},
    }


def fit_roofline(rows: Sequence[SingleGpuRow], pairs: Sequence[Pair]) -> RooflineFit:
    measured = measured_seconds(rows)
    measured_smaller = measured_seconds([small for small, _ in pairs])
    names = [field.name for field in fields(RooflineFit)]
    start = np.log([getattr(RooflineFit(), name) for name in names])

    def residuals(x: Floats) -> Floats:
        fit = RooflineFit(**dict(zip(names, np.exp(x).tolist(), strict=True)))
        errors = np.log(estimated_seconds(rows, fit) / measured)
        smaller = np.log(smaller_batch_seconds(pairs, fit) / measured_smaller)
        return np.concatenate(
            [np.arcsinh(errors / 0.2), np.arcsinh(smaller / 0.05), 0.1 * (x - start)]
        )

    values = np.exp(least_squares(residuals, start).x).tolist()
    return RooflineFit(**{n: round_to_digits(v) for n, v in zip(names, values, strict=True)})


def weigh_rows(cases: dict[str, list[Cases]]) -> dict[str, Floats]:
    """Return the weight of every row, by table.

    Sources have equal weights, so do the series of a source, and so do the rows of a series. All sources together
    weigh TOTAL_SOURCE_WEIGHT, and all timed all-reduces weigh 1.
    """
    rows = {
        name: [row for member in members for row in member.rows] for name, members in cases.items()
    }
    all_rows = [row for table in rows.values() for row in table]
    rows_in = Counter((row.source, row.series, row.model, row.precision) for row in all_rows)
    series_in = Counter(key[0] for key in rows_in)
    source_weight = TOTAL_SOURCE_WEIGHT / len(series_in)
    weights = {
        name: np.array(
            [
                source_weight
                / series_in[row.source]
                / rows_in[row.source, row.series, row.model, row.precision]
                for row in table
            ]
        )
        for name, table in rows.items()
    }
    timed = len(timed_all_reduces())
    return weights | {ALL_REDUCE: np.full(timed, 1 / timed)}


def soft_l1_residuals(errors: Floats, weight: Floats) -> Floats:
    """Return residuals whose squares are the weighted soft-L1 loss."""
    return np.sqrt(2 * (np.sqrt(1 + errors**2) - 1) * weight)


def compute_log_errors(name: str, cases: dict[str, list[Cases]], tuning: Tuning) -> Floats:
    if name == ALL_REDUCE:
        rows = timed_all_reduces()
        measured = np.array([row.seconds for row in rows])
        return np.log(measured / predicted_seconds(rows, tuning))
    return np.concatenate(
        [np.log(c.measured_seconds / c.predict(tuning).step_seconds) for c in cases[name]]
    )


def to_free_scale(tuning: Tuning) -> Floats:
    return np.array(
        [
            np.log(value / (1 - value)) if name in SHARES else np.log(value)
            for name, value in asdict(tuning).items()
        ]
    )


def from_free_scale(x: Floats) -> Tuning:
    return Tuning(
        **{
            name: float(1 / (1 + np.exp(-value)) if name in SHARES else np.exp(value))
            for name, value in zip(NAMES, x, strict=True)
        }
    )


def round_to_digits(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


if __name__ == "__main__":
    main()
