"""Fit the constants of the large-model formulas to published runs, and size intervals on publishers left out.

python scripts/fit_large.py            # report only
python scripts/fit_large.py --write    # also write predictor/data/large.json and the tables of docs/validation-large.md
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np

from gpuyard.predictor.large.interval import interval_kind
from gpuyard.predictor.large.published_table import compile_table, published_bytes
from gpuyard.predictor.large.row_batches import infer_micro_batches
from gpuyard.predictor.large.rows import PublishedRow, read_rows
from gpuyard.predictor.large.validation import judge_choices
from gpuyard.predictor.table import Booleans, Floats
from large_memory_fit import MEMORY_MARGIN, fit_memory, is_ordinary, judge_fits, leave_memory_out
from large_step_fit import StepFitter, find_expert_evidence
from large_tables import (
    build_table,
    report,
    size_by_difference,
    size_intervals,
    spread,
    within_series,
    write_page,
)

DATA = Path(__file__).parents[1] / "src/gpuyard/predictor/data"


def is_usable(row: PublishedRow) -> bool:
    """Return whether a row says what it ran; tokens of padded batches would count what was not trained."""
    known = row.quality != "C" and row.batch_known and not row.padded
    return known and (row.tokens_per_second_per_gpu() or 0) > 0


def round_digits(value: float) -> float:
    """Return a value that the last digits of a solver's result do not change."""
    return float(f"{value:.4g}")


def name_kinds(rows: list[PublishedRow], known: Booleans) -> np.ndarray:
    """Return the kind of interval that each row has."""
    seen = known & np.array([row.flash for row in rows])
    return np.array(
        [interval_kind(experts=row.shape.experts, known=bool(k)) for row, k in zip(rows, seen, strict=True)]
    )  # fmt: skip


def main() -> None:
    rows = [row for row in read_rows(DATA / "large_runs.csv")[0] if row.has_speed]
    rows = infer_micro_batches(rows)
    usable, every = np.array(list(map(is_usable, rows))), np.ones(len(rows), dtype=bool)
    fitter = StepFitter(compile_table(rows), usable)
    fit = fitter.fit(fitter.usable)
    report(rows, fitter.measured - fitter.predict(np.arange(len(rows)), fit), "fitted")
    ratios, known = fitter.leave_publishers_out()
    report(rows, ratios, "publisher left out")
    kinds = name_kinds(rows, known)
    with_point, differences = within_series(rows, ratios)
    report(rows, with_point, "publisher left out, with one measured figure per series")

    def find_ends(others: Booleans) -> Floats:
        intervals = size_intervals(rows, ratios, kinds, others & usable)
        return np.log([intervals[kind] for kind in kinds])

    def find_narrow_ends(others: Booleans) -> Floats:
        wide = find_ends(others)
        by_difference = np.log(size_by_difference(rows, with_point, differences, others & usable))
        low, high = by_difference[differences].T
        return np.stack([np.maximum(wide[:, 0], low), np.minimum(wide[:, 1], high)], axis=1)

    memory_rows = [row for row in read_rows(DATA / "large_memory.csv")[0] if not row.has_speed]
    ordinary = np.array(list(map(is_ordinary, memory_rows)))
    memory, memory_ratios = fit_memory([row for row in memory_rows if is_ordinary(row)])
    report([row for row in memory_rows if is_ordinary(row)], memory_ratios, "memory")
    predicted_memory = leave_memory_out(memory_rows, ordinary)
    memory_out = np.log([published_bytes(row) for row in memory_rows] / predicted_memory)
    report(memory_rows, memory_out, "memory, publisher left out")
    print("fits, publisher left out:", judge_fits(memory_rows, predicted_memory))

    def find_memory_ends(others: Booleans) -> Floats:
        ends = np.log(spread(memory_rows, memory_out, others & ordinary))
        return np.tile(ends, (len(memory_rows), 1))

    judged_rows = [row for row, good in zip(rows, usable, strict=True) if good]
    measured = fitter.measured[usable]
    print(
        "choices, publisher left out:",
        judge_choices(judged_rows, np.exp(measured), np.exp(measured - ratios[usable])),
    )
    spreads = size_intervals(rows, ratios, kinds, usable)
    narrow = size_by_difference(rows, with_point, differences, usable)
    document = {
        "constants": {n: round_digits(v) for n, v in asdict(fitter.constants(fit)).items()},
        "effects": {key: round(value, 4) + 0.0 for key, value in fitter.effects(fit).items()},
        "expert_evidence": find_expert_evidence([rows[i] for i in fitter.usable]),
        "memory": {name: round_digits(value) for name, value in asdict(memory).items()},
        "spread": {kind: list(map(round_digits, ends)) for kind, ends in spreads.items()},
        "spread_with_point": [list(map(round_digits, ends)) for ends in narrow],
        "memory_margin": MEMORY_MARGIN,
        "memory_high": round_digits(spread(memory_rows, memory_out, ordinary)[1]),
    }
    print(json.dumps(document, indent=1))
    ran = ~np.isnan(memory_out)
    tables = {
        "throughput": build_table(rows, ratios, find_ends, usable),
        "throughput of all rows": build_table(rows, ratios, find_ends, every, shown=~usable),
        "with a point": build_table(rows, with_point, find_narrow_ends, usable),
        "memory": build_table(memory_rows, memory_out, find_memory_ends, ordinary),
        "memory of all rows": build_table(memory_rows, memory_out, find_memory_ends, ran, shown=~ordinary),
    }  # fmt: skip
    print("\n\n".join(tables.values()))
    if "--write" in sys.argv:
        (DATA / "large.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        write_page(tables)


if __name__ == "__main__":
    main()
