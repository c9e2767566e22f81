"""Publishers of large-model runs, the spread of their errors, and tables of both for a page."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

from gpuyard.predictor.large.interval import correction_weight, count_differences
from gpuyard.predictor.large.rows import PublishedRow
from gpuyard.predictor.large.validation import find_reference_row, find_series
from gpuyard.predictor.table import Booleans, Floats

PAGE = Path(__file__).parents[1] / "docs/validation-large.md"
MIN_SPREAD = 0.12  # no interval is narrower, in logarithms
# somewhat wider than 90%: publishers differ more than their number shows
QUANTILES = (0.04, 0.96)
MIN_PUBLISHERS, STRETCH = 3, 1.5
MAX_DIFFERENCES = 3  # parts in which a layout differs from a measured one; more count as these
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
    """Return outer quantiles of measured over predicted; large publishers count no more than medium ones."""
    names = find_publishers(rows)
    mask = mask & ~np.isnan(ratios)
    counts = Counter(names[mask])
    weight = np.array(
        [min(counts[n], MAX_WEIGHT) / counts[n] if k else 0.0 for n, k in zip(names, mask, strict=True)]
    )  # fmt: skip
    order = np.argsort(ratios)
    total = np.cumsum(weight[order]) / weight.sum()
    low, high = (float(ratios[order][np.searchsorted(total, q)]) for q in QUANTILES)
    return [float(np.exp(min(low, -MIN_SPREAD))), float(np.exp(max(high, MIN_SPREAD)))]


def size_intervals(
    rows: list[PublishedRow], ratios: Floats, kinds: np.ndarray, mask: Booleans
) -> dict[str, list[float]]:
    """Return the interval of each kind of row, sized on the rows of a mask.

    A kind that fewer than three publishers have is half as wide again as dense models, and covers its own rows. Models
    with experts on a kind of GPU that nobody measured them on get half as much again as those on known ones.
    """
    names, dense = find_publishers(rows), np.char.startswith(kinds, "dense")
    common = spread(rows, ratios, mask & dense)
    intervals = {"dense/known": common}
    for kind, own in (("dense/unknown", kinds == "dense/unknown"), ("moe/known", ~dense)):
        wide = [common]
        if len(set(names[mask & own])) < MIN_PUBLISHERS:
            wide.append([end**STRETCH for end in common])
        if (mask & own).any():
            wide.append(spread(rows, ratios, mask & own))
        intervals[kind] = [min(low for low, _ in wide), max(high for _, high in wide)]
    intervals["moe/unknown"] = [end**STRETCH for end in intervals["moe/known"]]
    return intervals


def within_series(rows: list[PublishedRow], ratios: Floats) -> tuple[Floats, np.ndarray]:
    """Return the ratios after one row of each series has corrected the others, and how many parts differ from it."""
    corrected, differences = np.full(len(rows), np.nan), np.zeros(len(rows), dtype=int)
    for indices in find_series(rows).values():
        point = find_reference_row(rows, indices)
        for index in set(indices) - {point}:
            weight = correction_weight(rows[index].layout, rows[point].layout)
            corrected[index] = ratios[index] - weight * ratios[point]
            differences[index] = count_differences(rows[index].layout, rows[point].layout)
    return corrected, np.minimum(differences, MAX_DIFFERENCES)


def size_by_difference(
    rows: list[PublishedRow], corrected: Floats, differences: np.ndarray, mask: Booleans
) -> list[list[float]]:
    """Return the interval by the number of parts that differ from a measured layout; more never narrows it."""
    sizes: list[list[float]] = []
    for count in range(MAX_DIFFERENCES + 1):
        own = mask & (differences == count) & ~np.isnan(corrected)
        ends = spread(rows, corrected, own) if own.any() else [1.0, 1.0]
        low, high = sizes[-1] if sizes else ends
        sizes.append([min(low, ends[0]), max(high, ends[1])])
    return sizes


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


def build_table(
    rows: list[PublishedRow],
    ratios: Floats,
    find_ends: Callable[[Booleans], Floats],
    judged: Booleans,
    shown: Booleans | None = None,
) -> str:
    """Return the errors of judged rows by publisher as a Markdown table, with one more line for all.

    `find_ends` returns both ends of each row's interval, in logarithms, sized on the rows of a mask. Only publishers with
    a row in `shown` have a line.
    """
    names, measured = find_publishers(rows), judged & ~np.isnan(ratios)
    lines = [
        "| publisher | rows | median error | 90th percentile | bias | inside |",
        "| --- " * 6 + "|",
    ]
    shares = {}
    for name in sorted(set(names[measured]), key=str.lower):
        mask = (names == name) & measured
        low, high = find_ends(names != name)[mask].T
        shares[name] = float(((ratios[mask] >= low) & (ratios[mask] <= high)).mean())
        if shown is None or (mask & shown).any():
            lines.append(_build_line(name, ratios[mask], shares[name]))
    large = [
        share
        for name, share in shares.items()
        if (measured & (names == name)).sum() >= MIN_PUBLISHERS
    ]
    lines.append(_build_line("all", ratios[measured], float(np.mean(large))))
    return "\n".join(lines)


def _build_line(name: str, ratios: Floats, inside: float) -> str:
    error, bias = np.abs(np.exp(-ratios) - 1), np.exp(-np.median(ratios)) - 1
    return (
        f"| {name} | {len(ratios):,} | {np.median(error):.1%} | {np.quantile(error, 0.9):.0%} | "
        f"{bias:+.0%} | {inside:.0%} |"
    )


def write_page(tables: dict[str, str]) -> None:
    """Replace the tables of the page, each between its markers."""
    text = PAGE.read_text(encoding="utf-8")
    for name, table in tables.items():
        start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, _, rest = text.partition(start)
        text = f"{before}{start}\n{table}\n{end}{rest.partition(end)[2]}"
    PAGE.write_text(text, encoding="utf-8")
