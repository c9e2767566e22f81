"""Fit the constants of the large-model formulas to published runs, and size intervals on publishers left out.

    python scripts/fit_large.py            # report only
    python scripts/fit_large.py --write    # also write predictor/data/large.json and the tables of docs/validation-large.md

A publisher's rows weigh as the square root of their number. Constants have priors, so that they move only as far as
the rows pull them.
"""

import json
import sys
from collections import Counter
from dataclasses import asdict, fields, replace
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from gpuyard.predictor.large.constants import LargeConstants
from gpuyard.predictor.large.layout import stack_layouts
from gpuyard.predictor.large.memory import MemoryConstants, compute_memory
from gpuyard.predictor.large.model import describe_model, stack_models
from gpuyard.predictor.large.published_table import (
    Table,
    compile_table,
    predict_table,
    published_bytes,
    state_bytes,
)
from gpuyard.predictor.large.rows import PublishedRow, read_rows
from gpuyard.predictor.large.validation import find_series, reference_row
from gpuyard.predictor.table import Floats

DATA = Path(__file__).parents[1] / "src/gpuyard/predictor/data"
PAGE = Path(__file__).parents[1] / "docs/validation-large.md"
PRIORS = {  # standard deviation of each constant's prior, in logarithms
    "gemm_share": 0.3, "attention_share": 0.3, "pytorch_attention_share": 0.3, "memory_share": 0.15, "elementwise_passes": 0.4,
    "quantize_passes": 0.5, "pytorch_quantize_passes": 0.5, "permute_passes": 0.5, "score_passes": 0.5, "layer_seconds": 0.5, "unfused_seconds": 0.7,
    "expert_seconds": 1.0, "tensor_exposed": 0.3, "data_exposed": 0.4, "shard_exposed": 0.5,
    "expert_exposed": 0.4, "context_exposed": 0.5, "pipeline_exposed": 0.5, "selective_share": 0.5,
    "full_share": 0.15, "optimizer_passes": 0.3, "expert_tokens": 0.6, "straggling": 0.7,
}  # fmt: skip
EFFECT_PRIOR = 0.25
NOISE, MEMORY_NOISE, MEMORY_PRIOR = 0.12, 0.07, 0.4
MEMORY_MARGIN = 1.02  # a model must fit with this much to spare
MIN_SPREAD = 0.12  # no interval is narrower, in logarithms
PUBLISHERS = {
    "nvidia": "NVIDIA", "megatron-seqsel": "NVIDIA", "torchtitan": "Meta", "torchao": "Meta",
    "torchtune": "Meta", "nanotron": "Hugging Face", "simumax": "Moore Threads",
    "colossalai": "HPC-AI Tech", "flash-attention": "Dao-AILab", "alpa": "UC Berkeley",
    "vtrain": "KAIST", "litgpt": "Lightning AI",
}  # fmt: skip


def find_publisher(row: PublishedRow) -> str:
    names = (name for start, name in PUBLISHERS.items() if row.source.startswith(start))
    return next(names, row.source)


def is_usable(row: PublishedRow) -> bool:
    return row.quality != "C" and row.batch_known and (row.tokens_per_second_per_gpu() or 0) > 0


def unpack(vector: Floats, keys: list[str]) -> tuple[LargeConstants, dict[str, float]]:
    start = LargeConstants()
    values = {
        name: float(getattr(start, name)) * float(np.exp(vector[i]))
        for i, name in enumerate(PRIORS)
    }
    effects = dict(zip(keys, map(float, vector[len(PRIORS) :]), strict=True))
    return replace(start, **values), effects


def fit(table: Table) -> tuple[LargeConstants, dict[str, float]]:
    """Return the constants and effects that explain a table best."""
    keys = sorted({key for row in table.effect_keys for key in row if key})
    counts = Counter(map(find_publisher, table.rows))
    weight = np.array([counts[find_publisher(row)] ** -0.25 for row in table.rows])
    prior = np.array([*PRIORS.values(), *([EFFECT_PRIOR] * len(keys))])

    def residuals(vector: Floats) -> Floats:
        predicted, _ = predict_table(table, *unpack(vector, keys))
        return np.concatenate([weight * np.log(predicted / table.measured) / NOISE, vector / prior])

    solution = least_squares(residuals, np.zeros(len(prior)), loss="soft_l1", f_scale=1.5)
    return unpack(solution.x, keys)


def leave_publishers_out(rows: list[PublishedRow]) -> tuple[Floats, Floats]:
    """Return the logarithm of measured over predicted, and whether other publishers had that GPU and precision."""
    ratios, known = np.full(len(rows), np.nan), np.zeros(len(rows), dtype=bool)
    names = np.array(list(map(find_publisher, rows)))
    for name in sorted(set(names)):
        out = np.flatnonzero(names == name)
        constants, effects = fit(compile_table([r for r in rows if find_publisher(r) != name]))
        judged = compile_table([rows[i] for i in out])
        ratios[out] = np.log(judged.measured / predict_table(judged, constants, effects)[0])
        known[out] = [keys[1] in effects for keys in judged.effect_keys]
    return ratios, known


def spread(rows: list[PublishedRow], ratios: Floats, mask: Floats) -> list[float]:
    """Return the 5% and 95% quantiles of measured over predicted, with equal weight for each publisher of ten rows or more."""
    names = [find_publisher(row) for row in rows]
    counts = Counter(name for name, keep in zip(names, mask, strict=True) if keep)
    weight = np.array(
        [min(counts[n], 10) / counts[n] if k else 0.0 for n, k in zip(names, mask, strict=True)]
    )
    order = np.argsort(ratios)
    total = np.cumsum(weight[order]) / weight.sum()
    low, high = (float(ratios[order][np.searchsorted(total, q)]) for q in (0.05, 0.95))
    return [float(np.exp(min(low, -MIN_SPREAD))), float(np.exp(max(high, MIN_SPREAD)))]


def widest(*spreads: list[float]) -> list[float]:
    return [min(low for low, _ in spreads), max(high for _, high in spreads)]


def within_series(rows: list[PublishedRow], ratios: Floats) -> Floats:
    """Return the ratios after one row of each series has corrected the others."""
    corrected = np.full(len(rows), np.nan)
    for indices in find_series(rows).values():
        point = reference_row(rows, indices)
        others = [index for index in indices if index != point]
        corrected[others] = ratios[others] - ratios[point]
    return corrected


def fit_memory(rows: list[PublishedRow]) -> tuple[MemoryConstants, Floats]:
    """Return the memory constants and the logarithms of measured over predicted."""
    names = [f.name for f in fields(MemoryConstants)]
    model = stack_models([describe_model(row.shape) for row in rows])
    layout = stack_layouts([row.layout for row in rows], [row.expert_tensor for row in rows])
    states, measured = state_bytes(rows), np.array([published_bytes(row) for row in rows])
    counts = Counter(row.source for row in rows)
    weight = np.array([counts[row.source] ** -0.25 for row in rows])

    def build(vector: Floats) -> MemoryConstants:
        start = MemoryConstants()
        return MemoryConstants(
            **{n: float(getattr(start, n) * np.exp(x)) for n, x in zip(names, vector, strict=True)}
        )

    def errors(vector: Floats) -> Floats:
        return np.log(measured / compute_memory(model, layout, states, build(vector)).total)

    solution = least_squares(
        lambda v: np.concatenate([weight * errors(v) / MEMORY_NOISE, v / MEMORY_PRIOR]),
        np.zeros(len(names)), loss="soft_l1", f_scale=1.5,
    )  # fmt: skip
    return build(solution.x), errors(solution.x)


def memory_rows() -> list[PublishedRow]:
    """Return the rows whose software is the ordinary one: no offloading, chunked loss, or optimizer in backward."""
    rows, _ = read_rows(DATA / "large_memory.csv")
    plain = [row for row in rows if row.quality != "C" and not row.source.startswith("torchtune")]
    return [r for r in plain if not np.isnan(r.value) and not (r.source == "litgpt" and r.gpus > 1)]


def report(rows: list[PublishedRow], ratios: Floats, title: str) -> None:
    print(title)
    sources = [row.source for row in rows]
    for source in [*dict.fromkeys(sources), "all"]:
        mask = np.array([source in (s, "all") for s in sources]) & ~np.isnan(ratios)
        if mask.any():
            error = np.abs(np.exp(-ratios[mask]) - 1)
            print(
                f"  {source:28}{mask.sum():6} median {np.median(error):6.1%} p90 {np.quantile(error, 0.9):6.1%}"
                f" bias {np.exp(-np.median(ratios[mask])) - 1:+6.1%}"
            )


def count_inside(rows: list[PublishedRow], ratios: Floats, publisher: str) -> float:
    """Return the share of a publisher's rows inside the interval that the others alone would give."""
    names = np.array(list(map(find_publisher, rows)))
    low, high = np.log(spread(rows, ratios, ~np.isnan(ratios) & (names != publisher)))
    own = ratios[(names == publisher) & ~np.isnan(ratios)]
    return float(((own >= low) & (own <= high)).mean())


def build_table(rows: list[PublishedRow], ratios: Floats) -> str:
    """Return the errors by publisher as a Markdown table."""
    names = np.array(list(map(find_publisher, rows)))
    lines = [
        "| publisher | rows | median error | 90th percentile | bias | inside |",
        "| --- " * 6 + "|",
    ]
    for name in [*sorted(set(names), key=str.lower), "all"]:
        mask = ((names == name) | (name == "all")) & ~np.isnan(ratios)
        if mask.any():
            error = np.abs(np.exp(-ratios[mask]) - 1)
            inside = "" if name == "all" else f"{count_inside(rows, ratios, name):.0%}"
            lines.append(
                f"| {name} | {mask.sum():,} | {np.median(error):.1%} | {np.quantile(error, 0.9):.0%} | "
                f"{np.exp(-np.median(ratios[mask])) - 1:+.0%} | {inside} |"
            )
    return "\n".join(lines)


def write_page(tables: dict[str, str]) -> None:
    """Replace the tables of the page, each between its markers."""
    text = PAGE.read_text(encoding="utf-8")
    for name, table in tables.items():
        start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, _, rest = text.partition(start)
        text = f"{before}{start}\n{table}\n{end}{rest.partition(end)[2]}"
    PAGE.write_text(text, encoding="utf-8")


def leave_memory_out(rows: list[PublishedRow]) -> Floats:
    """Return the logarithm of measured over predicted memory, with each publisher left out of the fit."""
    names = np.array(list(map(find_publisher, rows)))
    ratios = np.full(len(rows), np.nan)
    for name in sorted(set(names)):
        out = np.flatnonzero(names == name)
        constants, _ = fit_memory([row for row in rows if find_publisher(row) != name])
        judged = [rows[i] for i in out]
        model = stack_models([describe_model(row.shape) for row in judged])
        layout = stack_layouts([r.layout for r in judged], [r.expert_tensor for r in judged])
        predicted = compute_memory(model, layout, state_bytes(judged), constants).total
        ratios[out] = np.log(np.array([published_bytes(row) for row in judged]) / predicted)
    return ratios


def main() -> None:
    rows = [row for row in read_rows(DATA / "large_runs.csv")[0] if is_usable(row)]
    table = compile_table(rows)
    constants, effects = fit(table)
    report(rows, np.log(table.measured / predict_table(table, constants, effects)[0]), "fitted")
    ratios, known = leave_publishers_out(rows)
    report(rows, ratios, "publisher left out")
    moe = np.array([bool(row.shape.experts) for row in rows])
    fused = np.array([row.flash for row in rows])
    everything = ~np.isnan(ratios)
    with_point = within_series(rows, ratios)
    report(rows, with_point, "publisher left out, with one measured figure per series")
    memory, memory_ratios = fit_memory(memory_rows())
    report(memory_rows(), memory_ratios, "memory")
    memory_out = leave_memory_out(memory_rows())
    report(memory_rows(), memory_out, "memory, publisher left out")
    document = {
        "constants": {name: round(float(getattr(constants, name)), 7) for name in PRIORS},
        "effects": {key: round(value, 4) for key, value in effects.items()},
        "memory": {name: round(value, 5) for name, value in asdict(memory).items()},
        "spread": {
            "dense/known": spread(rows, ratios, everything & known & ~moe & fused),
            "dense/unknown": spread(rows, ratios, everything & ~moe),
            # few publishers have experts, so their interval also covers what dense models need
            "moe/known": widest(
                spread(rows, ratios, everything & moe),
                spread(rows, ratios, everything & known & ~moe & fused),
            ),
            "moe/unknown": spread(rows, ratios, everything),
        },
        "spread_with_point": spread(rows, with_point, ~np.isnan(with_point)),
        "memory_margin": MEMORY_MARGIN,
        "memory_high": round(float(np.exp(np.quantile(memory_ratios, 0.95))), 4),
    }
    print(json.dumps(document, indent=1))
    if "--write" in sys.argv:
        (DATA / "large.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        write_page(
            {
                "throughput": build_table(rows, ratios),
                "with a point": build_table(rows, with_point),
                "memory": build_table(memory_rows(), memory_out),
            }
        )


if __name__ == "__main__":
    main()
