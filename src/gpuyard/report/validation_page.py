"""Predicted against published: one standalone page of all tables, with a scatter of each."""

from html import escape
from pathlib import Path

from gpuyard.draw.validation import validation_svg
from gpuyard.files import write_text
from gpuyard.predict.validation import Report, Score, TableScore, Validation


def write_validation(found: Report, path: Path) -> None:
    """One file that opens from disk and loads nothing."""
    sections = [
        f"<h2>{escape(scored.source.title)}</h2>"
        f"<p><code>{escape(name)}</code>, {escape(scored.source.source)}, "
        f"{scored.source.date.isoformat()}. {escape(scored.source.added)}</p>"
        f"{_table(_beside(scored))}"
        f"{validation_svg(scored)}"
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
