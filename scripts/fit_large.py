"""Fit the constants of the large-model formulas to published runs, and size intervals on publishers left out.

python scripts/fit_large.py            # report only
python scripts/fit_large.py --write    # also write predictor/data/large.json and the tables of docs/validation-large.md
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np

from gpuyard.predictor.large.published_table import compile_table
from gpuyard.predictor.large.rows import PublishedRow, read_rows
from gpuyard.predictor.large.validation import judge_choices
from gpuyard.predictor.table import Floats
from large_memory_fit import (
    MEMORY_MARGIN,
    fit_memory,
    judge_fits_left_out,
    leave_memory_out,
    read_memory_rows,
)
from large_step_fit import StepFitter
from large_tables import build_table, report, size_intervals, spread, within_series, write_page

DATA = Path(__file__).parents[1] / "src/gpuyard/predictor/data"


def is_usable(row: PublishedRow) -> bool:
    """Return whether a row says what it ran; tokens of padded batches would count what was not trained."""
    known = row.quality != "C" and row.batch_known and not row.padded
    return known and (row.tokens_per_second_per_gpu() or 0) > 0


def round_digits(value: float) -> float:
    """Return a value that the last digits of a solver's result do not change."""
    return float(f"{value:.4g}")


def name_kinds(rows: list[PublishedRow], known: Floats) -> np.ndarray:
    """Return the kind of interval that each row has."""
    seen = known & np.array([row.flash for row in rows])
    dense = np.where(seen, "dense/known", "dense/unknown")
    return np.where([row.shape.experts > 0 for row in rows], "moe", dense)


def main() -> None:
    rows = [row for row in read_rows(DATA / "large_runs.csv")[0] if is_usable(row)]
    fitter, everything = StepFitter(compile_table(rows)), np.arange(len(rows))
    fit = fitter.fit(everything)
    report(rows, fitter.measured - fitter.predict(everything, fit), "fitted")
    ratios, known = fitter.leave_publishers_out()
    report(rows, ratios, "publisher left out")
    kinds = name_kinds(rows, known)
    with_point = within_series(rows, ratios)
    report(rows, with_point, "publisher left out, with one measured figure per series")
    memory_rows = read_memory_rows(DATA / "large_memory.csv")
    memory, memory_ratios = fit_memory(memory_rows)
    report(memory_rows, memory_ratios, "memory")
    memory_out = leave_memory_out(memory_rows)
    report(memory_rows, memory_out, "memory, publisher left out")
    print(
        "fits, publisher left out:",
        judge_fits_left_out(read_rows(DATA / "large_memory.csv")[0], memory_rows),
    )
    print(
        "choices, publisher left out:",
        judge_choices(rows, np.exp(fitter.measured), np.exp(fitter.measured - ratios)),
    )
    judged = ~np.isnan(with_point)
    one_kind = np.full(max(len(rows), len(memory_rows)), "dense/known")
    spreads = size_intervals(rows, ratios, kinds, np.ones(len(rows), dtype=bool))
    document = {
        "constants": {n: round_digits(v) for n, v in asdict(fitter.constants(fit)).items()},
        "effects": {key: round(value, 4) + 0.0 for key, value in fitter.effects(fit).items()},
        "memory": {name: round_digits(value) for name, value in asdict(memory).items()},
        "spread": {kind: list(map(round_digits, ends)) for kind, ends in spreads.items()},
        "spread_with_point": list(map(round_digits, spread(rows, with_point, judged))),
        "memory_margin": MEMORY_MARGIN,
        "memory_high": round_digits(spread(memory_rows, memory_out, ~np.isnan(memory_out))[1]),
    }
    print(json.dumps(document, indent=1))
    tables = {
        "throughput": build_table(rows, ratios, kinds),
        "with a point": build_table(rows, with_point, one_kind[: len(rows)]),
        "memory": build_table(memory_rows, memory_out, one_kind[: len(memory_rows)]),
    }
    print("\n\n".join(tables.values()))
    if "--write" in sys.argv:
        (DATA / "large.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        write_page(tables)


if __name__ == "__main__":
    main()
