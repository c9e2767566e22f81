"""Predicted against published: a scatter of each table as SVG, and one standalone page of them all."""

import math
from collections.abc import Callable
from html import escape
from pathlib import Path

from gpuyard.files import write_text
from gpuyard.predict.validation import PredictedRow, Report, Score, TableScore, Validation

_SIDE, _MARGIN = 420, 56
_MOST_DOTS = 1500  # of a table; more would only be drawn over each other
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#332288", "#882255",
            "#117733", "#999933")  # fmt: skip


def scatter(scored: TableScore) -> str:
    """Throughput over that of the anchor: published across, predicted up, both logarithmic."""
    rows = scored.rows[:: max(1, len(scored.rows) // _MOST_DOTS)]
    points = [(_speed_up(p, p.row.samples_per_second), _speed_up(p, p.samples_per_second), p)
              for p in rows]  # fmt: skip
    low = min(min(x, y) for x, y, _ in points) / 1.1
    high = max(max(x, y) for x, y, _ in points) * 1.1
    span = math.log(high / low)

    def place(value: float) -> float:
        return _MARGIN + (_SIDE - _MARGIN - 14) * math.log(value / low) / span

    models = list(dict.fromkeys(p.row.model for p in scored.rows))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_SIDE + 170} {_SIDE}" '
        'font-family="sans-serif" font-size="12" role="img">',
        f"<title>{escape(scored.source.title)}: predicted against published</title>",
        f'<rect width="{_SIDE + 170}" height="{_SIDE}" fill="white"/>',
        *_axes(low, high, place),
    ]
    for factor, dash in ((1.0, ""), (1.15, "3 3"), (1 / 1.15, "3 3")):
        start, end = (low, high / factor) if factor >= 1 else (low / factor, high)
        parts.append(
            f'<line x1="{place(start):.1f}" y1="{_SIDE - place(start * factor):.1f}" '
            f'x2="{place(end):.1f}" y2="{_SIDE - place(end * factor):.1f}" stroke="#666" '
            f'stroke-dasharray="{dash}"/>'
        )
    for x, y, p in points:
        colour = _COLOURS[models.index(p.row.model) % len(_COLOURS)]
        parts.append(
            f'<circle cx="{place(x):.1f}" cy="{_SIDE - place(y):.1f}" r="2.4" fill="{colour}" '
            'fill-opacity="0.55"/>'
        )
    for i, model in enumerate(models):
        top = 24 + 18 * i
        parts.append(
            f'<circle cx="{_SIDE + 8}" cy="{top}" r="4" fill="{_COLOURS[i % len(_COLOURS)]}"/>'
            f'<text x="{_SIDE + 18}" y="{top + 4}">{escape(model)}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _speed_up(point: PredictedRow, rate: float) -> float:
    return rate / point.row.anchor.samples_per_second


def _axes(low: float, high: float, place: Callable[[float], float]) -> list[str]:
    foot = _SIDE - _MARGIN
    parts = [
        f'<path d="M{_MARGIN} 10 V{foot} H{_SIDE - 10}" fill="none" stroke="black"/>',
        f'<text x="{(_SIDE + _MARGIN) / 2}" y="{_SIDE - 12}" text-anchor="middle">'
        "published, times the anchor</text>",
        f'<text transform="translate(14 {foot / 2 + 10}) rotate(-90)" text-anchor="middle">'
        "predicted, times the anchor</text>",
    ]
    for tick in _ticks(low, high):
        at = place(tick)
        parts.append(
            f'<line x1="{at:.1f}" y1="{foot}" x2="{at:.1f}" y2="{foot + 5}" stroke="black"/>'
            f'<text x="{at:.1f}" y="{foot + 18}" text-anchor="middle">{tick:g}</text>'
            f'<line x1="{_MARGIN - 5}" y1="{_SIDE - at:.1f}" x2="{_MARGIN}" '
            f'y2="{_SIDE - at:.1f}" stroke="black"/>'
            f'<text x="{_MARGIN - 8}" y="{_SIDE - at + 4:.1f}" text-anchor="end">{tick:g}</text>'
        )
    return parts


def _ticks(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log2(low)), math.ceil(math.log2(high)) + 1)
    step = max(1, len(powers) // 7)
    return [2.0**power for power in powers[::step] if low <= 2.0**power <= high]


def write_validation(found: Report, path: Path) -> None:
    """One file that opens from disk and loads nothing."""
    sections = [
        f"<h2>{escape(scored.source.title)}</h2>"
        f"<p><code>{escape(name)}</code>, {escape(scored.source.source)}, "
        f"{scored.source.date.isoformat()}. {escape(scored.source.added)}</p>"
        f"{_table(_beside(scored))}"
        f"{scatter(scored)}"
        f"<p>Not known: {escape(scored.source.unknown)}</p>{_skipped(scored)}"
        for name, scored in found.training.tables.items()
    ]
    every = found.training
    if found.single_gpu:
        sections.append(
            "<h2>One GPU without a measurement</h2>" + _table(list(found.single_gpu.items()))
        )
        sections.append("<h2>All-reduce bandwidth</h2>" + _table(list(found.all_reduces.items())))
    page = (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        "<title>gpuyard: predicted against published</title>"
        "<style>body{font:16px/1.5 sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
        "td,th{padding:.2rem .7rem;text-align:right}td:first-child,th:first-child{text-align:left}"
        "svg{width:100%;max-width:40rem}</style>"
        "<h1>Predicted against published</h1>"
        f"<p>{escape(found.method)}</p><h2>Average of the tables</h2>{_table(_beside(every))}"
        + "".join(sections)
        + "</html>\n"
    )
    write_text(path, page)


def _beside(scored: TableScore | Validation) -> list[tuple[str, Score]]:
    ours = scored.score if isinstance(scored, TableScore) else scored.overall
    return [
        ("gpuyard", ours),
        ("perfect scaling", scored.perfect_scaling),
        ("no overlap", scored.no_overlap),
    ]


def _table(scores: list[tuple[str, Score]]) -> str:
    head = ("", "rows", "mean", "median", "90th", "worst", "bias", "inside", "interval")
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in (name, *_cells(score))) + "</tr>"
        for name, score in scores
    )
    return "<table><tr>" + "".join(f"<th>{cell}</th>" for cell in head) + f"</tr>{rows}</table>"


def _cells(score: Score) -> list[str]:
    shares = (score.mean_abs_error, score.median_abs_error, score.p90_abs_error,
              score.worst_abs_error, score.bias)  # fmt: skip
    inside, width = score.inside_interval, score.median_interval_width
    return [
        f"{score.rows:,}",
        *(f"{100 * share:.1f} %" for share in shares),
        "" if inside is None else f"{100 * inside:.0f} %",
        "" if width is None else f"±{100 * width:.1f} %",
    ]


def _skipped(scored: TableScore) -> str:
    if not scored.skipped:
        return ""
    items = "".join(f"<li>{rows} rows: {escape(reason)}</li>" for reason, rows in scored.skipped)
    return f"<p>Left out:</p><ul>{items}</ul>"
