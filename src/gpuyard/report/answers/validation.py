"""Shows the errors of predictions against every published table, as an answer and as Markdown for the docs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from gpuyard.draw.validation import draw_validation_svg
from gpuyard.predictor.validation import (
    PointsScore,
    Report,
    Score,
    SourceScore,
    TableScore,
    Validation,
)
from gpuyard.predictor.validation.collectives import ThreadScore, score_links
from gpuyard.report.answer import (
    Answer,
    Bullets,
    Column,
    Drawing,
    Part,
    RendererOnly,
    Section,
    Sentence,
    Table,
)

_ERRORS = ("rows", "mean", Column("median", 2), Column("90th", 3), "worst", Column("bias", 1))
_INTERVAL = (Column("inside", 4), Column("interval", 5))
_FORMULAS = (Column("perfect scaling", 7), Column("no overlap", 6))
_MIN_COVERAGE = 0.75  # share of each source's rows that should be inside their intervals


def validation_answer(report: Report) -> Answer:
    """Show the errors in tables and sentences; a page also has a picture of each table."""
    training = report.training
    errors = [_format_row(name, scored) for name, scored in training.tables.items()]
    errors.append(_format_row("average", training))
    if report.lab is not None:
        errors.append(_format_row("our lab (not in the average)", report.lab))
    columns = ("table", *_ERRORS, *_INTERVAL, *_FORMULAS)
    title = "Coverage by source; each interval was sized without its source"
    parts: list[Part] = [
        Table("Errors of predicted throughput", columns, errors),
        RendererOnly("page", [_build_section(s) for s in training.tables.values()]),
        _build_source_table(title, training),
        *map(Sentence, _describe_coverage(training)),
        *_build_points_parts(report.points),
    ]
    if report.judges is not None:
        parts += _build_held_out_parts(report.judges)
        parts += _build_points_parts(report.judge_points, "held-out sources")
    if report.single_gpu:
        parts.append(
            _build_error_table(
                "One GPU, predicted without the figures of its publisher",
                "one GPU",
                report.single_gpu,
            )
        )
        parts.append(
            _build_error_table("Bandwidth of timed all-reduces", "all-reduce", report.all_reduces)
        )
    if report.threads:
        parts += _build_collective_tables(report.threads)
    skipped = [
        (name, str(rows), reason)
        for name, scored in training.tables.items()
        for reason, rows in scored.skipped
    ]
    if skipped:
        parts.append(Table("Rows left out", ("table", "rows", "reason"), skipped, folded=True))
    parts.append(Sentence(report.method))
    return Answer(parts, report.as_json(), title="Predicted against published", verb="validate")


def _build_held_out_parts(held_out: Validation) -> list[Part]:
    """Show the sources that are not part of any fit."""
    coverage = 100 * (held_out.by_source.inside_interval or 0)
    sentence = (
        f"No constant, interval, or stack is fitted to these {len(held_out.sources)} sources; they only test predictions. "
        f"90% intervals contain {coverage:.0f}% of their rows on average. The lowest share is "
        f"{_format_coverage(held_out.worst_source)}."
    )
    return [_build_source_table("Held-out sources", held_out), Sentence(sentence)]


def _format_coverage(source: SourceScore) -> str:
    inside, rows = source.score.inside_interval or 0.0, source.score.rows
    return f"{100 * inside:.0f}% for {source.source} ({rows * inside:.0f} of {rows:,} rows)"


def _describe_coverage(training: Validation) -> list[str]:
    coverage, worst = training.by_source.inside_interval or 0.0, training.worst_source
    if len(training.sources) == 1:
        sentences = [
            f"90% intervals that were sized without {worst.source} contain {100 * coverage:.0f}% of its rows."
        ]
        if training.nested:
            sentences.append(
                f"If the stretch of the intervals is also chosen without it, they contain {100 * training.nested_average:.0f}%."
            )
        return sentences
    sentences = [
        f"90% intervals that were sized without a source contain {100 * coverage:.0f}% of its rows, on average over "
        f"{len(training.sources)} sources. The lowest share is {_format_coverage(worst)}."
    ]
    if training.nested:
        low = sorted(
            (share, name) for name, share in training.nested.items() if share < _MIN_COVERAGE
        )
        exceptions = " and ".join(f"{100 * share:.0f}% of {name}" for share, name in low)
        sentences += [
            "Intervals are stretched by the smallest factor that meets the aims on all sources of the fit.",
            "If the stretch is also chosen without the source, as for unknown software, intervals contain "
            f"{100 * training.nested_average:.0f}% of its rows on average, "
            + (
                f"but only {exceptions}."
                if low
                else f"and at least {100 * _MIN_COVERAGE:.0f}% for each source."
            ),
        ]
    return sentences


def _build_source_table(title: str, validation: Validation) -> Table:
    """List the sources, those with the lowest coverage first."""
    sources = sorted(validation.sources.values(), key=lambda s: s.score.inside_interval or 0.0)
    rows = [
        [s.source, f"{s.score.rows:,}", _format_percent(s.score.median_abs_error),
         f"{100 * s.score.bias:+.1f}%".replace("-", "−"), *_format_interval(s.score), _format_range(s)]
        for s in sources
    ]  # fmt: skip
    average = validation.by_source
    rows.append(
        ["average over sources", f"{average.rows:,}", _format_percent(average.median_abs_error),
         f"{100 * average.bias:+.1f}%".replace("-", "−"), *_format_interval(average), ""]
    )  # fmt: skip
    columns = (
        "source",
        "rows",
        Column("median", 2),
        Column("bias", 1),
        "inside",
        "interval",
        Column("range", 3),
    )
    return Table(title, columns, rows)


def _build_points_parts(
    scores: Mapping[str, Sequence[PointsScore]], sources: str = ""
) -> list[Part]:
    """Show how the intervals of each source shrink with the number of measured multi-GPU points."""
    if not scores:
        return []
    counts = [score.points for score in next(iter(scores.values()))]
    rows = [
        [name, *(_format_width(s.median_interval_width, s.inside_interval) for s in by_count)]
        for name, by_count in scores.items()
    ]
    average = [
        _format_width(
            fmean(by_count[i].median_interval_width for by_count in scores.values()),
            fmean(by_count[i].inside_interval for by_count in scores.values()),
        )
        for i in range(len(counts))
    ]
    rows.append(["average over sources", *average])
    headers = [f"{count} point{'' if count == 1 else 's'}" for count in counts]
    title = "Interval (and rows inside) by number of measured multi-GPU points"
    if sources:
        return [Table(f"{title}: {sources}", ("source", *headers), rows)]
    sentence = (
        "Each row is predicted from other rows of its source: the same training on the most GPUs of one machine, then "
        "on the fewest machines. All other sources determine the likelihood of software stacks."
    )
    return [Table(title, ("source", *headers), rows), Sentence(sentence)]


def _format_width(width: float, inside: float) -> str:
    return f"±{100 * width:.1f}% ({100 * inside:.0f}%)"


def _format_interval(score: Score) -> tuple[str, str]:
    inside, width = score.inside_interval, score.median_interval_width
    return (
        "" if inside is None else f"{100 * inside:.0f}%",
        "" if width is None else f"±{100 * width:.1f}%",
    )


def _format_range(scored: SourceScore) -> str:
    low, high = 100 * scored.median_low, 100 * scored.median_high
    return f"{low:+.0f} to {high:+.0f}%".replace("-", "−")


def _format_percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _build_section(scored: TableScore) -> Section:
    source = scored.source
    formulas = {
        "gpuyard": scored.score,
        "perfect scaling": scored.perfect_scaling,
        "no overlap": scored.no_overlap,
    }
    facts = [
        f"{source.source}, {source.date.isoformat()}. {source.added}",
        f"Unknown: {source.unknown}",
    ]
    return Section(
        source.title,
        [
            _build_error_table("", "predicted by", formulas),
            Drawing(draw_validation_svg(scored)),
            Bullets(facts),
        ],
    )


def _format_row(name: str, scored: TableScore | Validation) -> list[str]:
    score = scored.score if isinstance(scored, TableScore) else scored.overall
    formulas = (scored.perfect_scaling, scored.no_overlap)
    return [
        name,
        *_format_errors(score),
        *_format_interval(score),
        *(_format_percent(formula.mean_abs_error) for formula in formulas),
    ]


def _build_error_table(title: str, header: str, scores: Mapping[str, Score]) -> Table:
    with_interval = any(score.inside_interval is not None for score in scores.values())
    rows = [
        [name, *_format_errors(score), *(_format_interval(score) if with_interval else ())]
        for name, score in scores.items()
    ]
    return Table(title, (header, *_ERRORS, *(_INTERVAL if with_interval else ())), rows)


_LINK_NAMES = {
    "nvlink": "NVLink, NVSwitch, Infinity Fabric",
    "pcie": "PCIe with peer-to-peer access",
    "staged": "PCIe, staged through host memory",
    "network": "several machines",
}


def _build_collective_tables(threads: Sequence[ThreadScore]) -> list[Part]:
    """Show how well bus bandwidths of public threads are predicted, each with an interval sized without it."""
    links = [
        [
            _LINK_NAMES[score.link],
            str(score.threads),
            str(score.rows),
            _format_percent(score.median_abs_error),
            f"{100 * score.inside_interval:.0f}%",
            f"{score.low:.2f} to {score.high:.2f} times",
        ]
        for score in score_links(threads)
    ]
    by_thread = [
        [
            thread.thread + (" (gave the catalog its rates)" if thread.is_fact else ""),
            thread.link,
            str(thread.score.rows),
            _format_percent(thread.score.median_abs_error),
            f"{100 * thread.score.bias:+.1f}%".replace("-", "−"),
            f"{100 * (thread.score.inside_interval or 0):.0f}%",
        ]
        for thread in threads
    ]
    columns = ("bus bandwidth", "threads", "rows", "median", "inside", "interval")
    heads = ("thread", "links", "rows", "median", "bias", "inside")
    return [
        Table("Bus bandwidth of public threads, each left out", columns, links),
        Table("Thread by thread", heads, by_thread),
    ]


def _format_errors(score: Score) -> list[str]:
    errors = (score.mean_abs_error, score.median_abs_error, score.p90_abs_error,
              score.worst_abs_error)  # fmt: skip
    return [
        f"{score.rows:,}",
        *(_format_percent(error) for error in errors),
        f"{100 * score.bias:+.1f}%".replace("-", "−"),
    ]


def format_markdown(report: Report) -> str:
    """Format the tables of the answer for the docs, so that both always agree, except those of threads."""
    return _format_tables(validation_answer(replace(report, threads=())).parts)


def format_threads_markdown(report: Report) -> str:
    """Format the tables of bus bandwidths for the docs."""
    return _format_tables(_build_collective_tables(report.threads))


def _format_tables(parts: Sequence[Part]) -> str:
    tables = [part for part in parts if isinstance(part, Table)]
    return "\n\n".join(_format_table(table) for table in tables if not table.folded) + "\n"


def _format_table(table: Table) -> str:
    headers = [column.name if isinstance(column, Column) else column for column in table.columns]
    lines: list[Sequence[str]] = [headers, ["---"] * len(headers), *table.rows]  # type: ignore[list-item]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
