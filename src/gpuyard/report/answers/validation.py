"""Predicted against published: the errors of every table, and the same as Markdown for the docs."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from gpuyard.draw.validation import validation_svg
from gpuyard.predict.validation import (
    PointsScore,
    Report,
    Score,
    SourceScore,
    TableScore,
    Validation,
)
from gpuyard.report.answer import (
    Answer,
    Bullets,
    Column,
    Drawing,
    Only,
    Part,
    Section,
    Sentence,
    Table,
)

_ERRORS = ("rows", "mean", Column("median", 2), Column("90th", 3), "worst", Column("bias", 1))
_INTERVAL = (Column("inside", 4), Column("interval", 5))
_FORMULAS = (Column("perfect scaling", 7), Column("no overlap", 6))
_LEAST = 0.75  # of every source should be inside


def validation_answer(found: Report) -> Answer:
    """The errors in words and tables; a page has a picture of each table."""
    every = found.training
    errors = [_row(name, scored) for name, scored in every.tables.items()]
    errors.append(_row("average", every))
    if found.lab is not None:
        errors.append(_row("our lab (not in the average)", found.lab))
    columns = ("table", *_ERRORS, *_INTERVAL, *_FORMULAS)
    parts: list[Part] = [Table("Errors of predicted throughput", columns, errors)]
    parts += _coverage(every)
    parts += _points(found.points)
    if found.judges is not None:
        parts += _judged(found.judges)
        parts += _points(found.judge_points, "sources in no fit")
    if found.single_gpu:
        parts.append(_short("One GPU without a measurement of it", "one GPU", found.single_gpu))
        parts.append(_short("Bandwidth of timed all-reduces", "all-reduce", found.all_reduces))
    skipped = [
        (name, str(rows), reason)
        for name, scored in every.tables.items()
        for reason, rows in scored.skipped
    ]
    if skipped:
        parts.append(Table("Rows left out", ("table", "rows", "why"), skipped, folded=True))
    parts += [Sentence(found.method), Only("page", [_section(s) for s in every.tables.values()])]
    return Answer(parts, found.as_json(), title="Predicted against published", verb="validate")


def _judged(judges: Validation) -> list[Part]:
    """What had no part in any fit at all."""
    average, worst = judges.by_source, judges.worst_source
    words = (
        f"No constant, interval or stack is fitted to these {len(judges.sources)} sources: they are only ever predicted. "
        f"90 % intervals hold {100 * (average.inside_interval or 0):.0f} % of their rows on average, and least of "
        f"{_held(worst)}."
    )
    return [_by_source("Sources that are in no fit", judges), Sentence(words)]


def _held(of: SourceScore) -> str:
    inside = of.score.inside_interval or 0.0
    return f"{of.source}: {100 * inside:.0f} % ({of.score.rows * inside:.0f} of {of.score.rows:,} rows)"


def _coverage(every: Validation) -> list[Part]:
    title = "Coverage by source, each with an interval that was sized without it"
    return [_by_source(title, every), *map(Sentence, _covered_words(every))]


def _covered_words(every: Validation) -> list[str]:
    held, worst = every.by_source.inside_interval or 0.0, every.worst_source
    if len(every.sources) == 1:
        words = f"90 % intervals hold {100 * held:.0f} % of the rows of {worst.source}, which had no part in sizing them"
        if every.nested:
            words += f"; {100 * every.nested_average:.0f} % if it had no say in how far they are stretched either"
        return [f"{words}."]
    said = [
        f"90 % intervals hold {100 * held:.0f} % of the rows of a source that had no "
        f"part in sizing them, on average over {len(every.sources)} sources, and least of {_held(worst)}."
    ]
    if every.nested:
        low = sorted((held, name) for name, held in every.nested.items() if held < _LEAST)
        few = " and ".join(f"{100 * held:.0f} % of {name}" for held, name in low)
        said.append(
            "Intervals are stretched by the least that makes the aims hold on all sources of the fit. With a stretch "
            "that was chosen without the source too, as for software that nobody has seen, they hold "
            f"{100 * every.nested_average:.0f} % on average, "
            + (f"but only {few}." if low else f"and of none less than {100 * _LEAST:.0f} %.")
        )
    return said


def _by_source(title: str, every: Validation) -> Table:
    """The least covered first."""
    found = sorted(every.sources.values(), key=lambda one: one.score.inside_interval or 0.0)
    rows = [
        [one.source, f"{one.score.rows:,}", _percent(one.score.median_abs_error),
         f"{100 * one.score.bias:+.1f} %".replace("-", "−"), *_interval(one.score), _reach(one)]
        for one in found
    ]  # fmt: skip
    average = every.by_source
    rows.append(
        ["average over sources", f"{average.rows:,}", _percent(average.median_abs_error),
         f"{100 * average.bias:+.1f} %".replace("-", "−"), *_interval(average), ""]
    )  # fmt: skip
    columns = (
        "source",
        "rows",
        Column("median", 2),
        Column("bias", 1),
        "inside",
        "interval",
        Column("reaches", 3),
    )
    return Table(title, columns, rows)


def _points(found: Mapping[str, Sequence[PointsScore]], of_what: str = "") -> list[Part]:
    """What so many measured figures of several GPUs are worth to each source."""
    if not found:
        return []
    counts = [one.points for one in next(iter(found.values()))]
    scores = list(found.values())
    rows = [[name, *map(_worth, of)] for name, of in found.items()]
    average = [
        _width(
            fmean(of[i].median_interval_width for of in scores),
            fmean(of[i].inside_interval for of in scores),
        )
        for i in range(len(counts))
    ]
    rows.append(["average over sources", *average])
    heads = [f"{count} point{'' if count == 1 else 's'}" for count in counts]
    title = "Interval (and rows inside) by number of measured multi-GPU figures"
    if of_what:
        return [Table(f"{title}: {of_what}", ("source", *heads), rows)]
    words = (
        "Each row of a source is predicted with other rows of it known: the same training on most GPUs of one "
        "machine, then on the fewest machines. How likely stacks are is by all other sources."
    )
    return [Table(title, ("source", *heads), rows), Sentence(words)]


def _worth(score: PointsScore) -> str:
    return _width(score.median_interval_width, score.inside_interval)


def _width(width: float, inside: float) -> str:
    return f"±{100 * width:.1f} % ({100 * inside:.0f} %)"


def _interval(score: Score) -> tuple[str, str]:
    inside, width = score.inside_interval, score.median_interval_width
    return (
        "" if inside is None else f"{100 * inside:.0f} %",
        "" if width is None else f"±{100 * width:.1f} %",
    )


def _reach(scored: SourceScore) -> str:
    low, high = 100 * scored.median_low, 100 * scored.median_high
    return f"{low:+.0f} to {high:+.0f} %".replace("-", "−")


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _section(scored: TableScore) -> Section:
    source = scored.source
    formulas = {
        "gpuyard": scored.score,
        "perfect scaling": scored.perfect_scaling,
        "no overlap": scored.no_overlap,
    }
    facts = [
        f"{source.source}, {source.date.isoformat()}. {source.added}",
        f"Not known: {source.unknown}",
    ]
    return Section(
        source.title,
        [_short("", "predicted by", formulas), Drawing(validation_svg(scored)), Bullets(facts)],
    )


def _row(name: str, scored: TableScore | Validation) -> list[str]:
    score = scored.score if isinstance(scored, TableScore) else scored.overall
    formulas = (scored.perfect_scaling, scored.no_overlap)
    return [
        name,
        *_cells(score),
        *_interval(score),
        *(_percent(formula.mean_abs_error) for formula in formulas),
    ]


def _short(title: str, what: str, scores: Mapping[str, Score]) -> Table:
    rows = [[name, *_cells(score)] for name, score in scores.items()]
    return Table(title, (what, *_ERRORS), rows)


def _cells(score: Score) -> list[str]:
    errors = (score.mean_abs_error, score.median_abs_error, score.p90_abs_error,
              score.worst_abs_error)  # fmt: skip
    return [
        f"{score.rows:,}",
        *(_percent(error) for error in errors),
        f"{100 * score.bias:+.1f} %".replace("-", "−"),
    ]


def markdown(found: Report) -> str:
    """The tables of the answer for the docs, so that they can't drift from the command."""
    tables = [part for part in validation_answer(found).parts if isinstance(part, Table)]
    return "\n\n".join(_markdown(table) for table in tables if not table.folded) + "\n"


def _markdown(table: Table) -> str:
    heads = [column.name if isinstance(column, Column) else column for column in table.columns]
    lines: list[Sequence[str]] = [heads, ["---"] * len(heads), *table.rows]  # type: ignore[list-item]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
