"""Publishers of large-model runs, the spread of their errors, and tables of both for a page."""

from collections import Counter
from pathlib import Path

import numpy as np

from gpuyard.predictor.large.rows import PublishedRow
from gpuyard.predictor.large.validation import find_series, reference_row
from gpuyard.predictor.table import Booleans, Floats

PAGE = Path(__file__).parents[1] / "docs/validation-large.md"
MIN_SPREAD = 0.12  # no interval is narrower, in logarithms
MAX_WEIGHT = 10  # rows that one publisher counts for
PUBLISHERS = {
    "nvidia": "NVIDIA", "megatron-seqsel": "NVIDIA", "torchtitan": "Meta", "torchao": "Meta",
    "torchtune": "Meta", "llama3-herd": "Meta", "nanotron": "Hugging Face", "simumax": "Moore Threads",
    "colossalai": "HPC-AI Tech", "flash-attention": "Dao-AILab", "alpa": "UC Berkeley", "vtrain": "KAIST",
    "litgpt": "Lightning AI", "yafsdp": "Yandex", "olmo-core": "Ai2", "mt-nlg": "Microsoft",
    "gpt-neox": "EleutherAI", "deepspeed-a800": "Y. Chen",
}  # fmt: skip


def find_publisher(row: PublishedRow) -> str:
    names = (name for start, name in PUBLISHERS.items() if row.source.startswith(start))
    return next(names, row.source)


def find_publishers(rows: list[PublishedRow]) -> np.ndarray:
    return np.array(list(map(find_publisher, rows)))


def spread(rows: list[PublishedRow], ratios: Floats, mask: Booleans) -> list[float]:
    """Return the 5% and 95% quantiles of measured over predicted; large publishers count no more than medium ones."""
    names = find_publishers(rows)
    mask = mask & ~np.isnan(ratios)
    counts = Counter(names[mask])
    weight = np.array(
        [min(counts[n], MAX_WEIGHT) / counts[n] if k else 0.0 for n, k in zip(names, mask, strict=True)]
    )  # fmt: skip
    order = np.argsort(ratios)
    total = np.cumsum(weight[order]) / weight.sum()
    low, high = (float(ratios[order][np.searchsorted(total, q)]) for q in (0.05, 0.95))
    return [float(np.exp(min(low, -MIN_SPREAD))), float(np.exp(max(high, MIN_SPREAD)))]


def within_series(rows: list[PublishedRow], ratios: Floats) -> Floats:
    """Return the ratios after one row of each series has corrected the others."""
    corrected = np.full(len(rows), np.nan)
    for indices in find_series(rows).values():
        point = reference_row(rows, indices)
        others = [index for index in indices if index != point]
        corrected[others] = ratios[others] - ratios[point]
    return corrected


def report(rows: list[PublishedRow], ratios: Floats, title: str) -> None:
    """Print the errors by source."""
    print(title)
    sources = np.array([row.source for row in rows])
    for source in [*dict.fromkeys(sources), "all"]:
        own = ratios[((sources == source) | (source == "all")) & ~np.isnan(ratios)]
        if len(own):
            error = np.abs(np.exp(-own) - 1)
            print(
                f"  {source:28}{len(own):6} median {np.median(error):6.1%} p90 {np.quantile(error, 0.9):6.1%}"
                f" bias {np.exp(-np.median(own)) - 1:+6.1%}"
            )


def build_table(rows: list[PublishedRow], ratios: Floats, kinds: np.ndarray | None = None) -> str:
    """Return the errors by publisher as a Markdown table; intervals differ by kind of row."""
    names = find_publishers(rows)
    kinds = np.zeros(len(rows)) if kinds is None else kinds
    lines = [
        "| publisher | rows | median error | 90th percentile | bias | inside |",
        "| --- " * 6 + "|",
    ]
    measured, everything = ~np.isnan(ratios), []
    for name in [*sorted(set(names), key=str.lower), "all"]:
        mask = ((names == name) | (name == "all")) & measured
        if not mask.any():
            continue
        if name != "all":
            inside = _count_inside(rows, ratios, name, kinds)
            everything.append(inside)
        else:
            inside = float(np.mean(everything))
        error = np.abs(np.exp(-ratios[mask]) - 1)
        lines.append(
            f"| {name} | {mask.sum():,} | {np.median(error):.1%} | {np.quantile(error, 0.9):.0%} | "
            f"{np.exp(-np.median(ratios[mask])) - 1:+.0%} | {inside:.0%} |"
        )
    return "\n".join(lines)


def _count_inside(
    rows: list[PublishedRow], ratios: Floats, publisher: str, kinds: np.ndarray
) -> float:
    """Return the share of a publisher's rows inside the intervals that the others alone would give."""
    names = find_publishers(rows)
    inside: list[bool] = []
    for kind in sorted(set(kinds)):
        own = ratios[(names == publisher) & (kinds == kind) & ~np.isnan(ratios)]
        others = (names != publisher) & (kinds == kind) & ~np.isnan(ratios)
        if not len(own):
            continue
        low, high = np.log(spread(rows, ratios, others if others.any() else names != publisher))
        inside += list((own >= low) & (own <= high))
    return float(np.mean(inside))


def write_page(tables: dict[str, str]) -> None:
    """Replace the tables of the page, each between its markers."""
    text = PAGE.read_text(encoding="utf-8")
    for name, table in tables.items():
        start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, _, rest = text.partition(start)
        text = f"{before}{start}\n{table}\n{end}{rest.partition(end)[2]}"
    PAGE.write_text(text, encoding="utf-8")
