"""The answer of `gpuyard plan`: the choice and its reasons, the best options, and why the others lost."""

from collections.abc import Sequence

from gpuyard import units
from gpuyard.catalog import Gpu, gpus
from gpuyard.catalog.hardware import EndOfLife, find_ends_of_life
from gpuyard.planner import Choice, PlanResult
from gpuyard.planner.choice import format_dollars
from gpuyard.report.answer import (
    ALL_BATCHES,
    Answer,
    Bullets,
    Chart,
    Column,
    Part,
    RendererOnly,
    Section,
    Sentence,
    Table,
    Text,
)

_PRECISION = Column(
    "precision", 6
)  # droppable, because the title names it if all rows have the same
_BATCH, _REMEDY = Column("batch per GPU", 8), Column("remedy", 7)
_LAYOUT, _TOKENS = Column("layout", 3), Column("tokens/s per GPU", 4)
_OPTIONS = (
    "",
    "machines",
    "how acquired",
    Column("GPUs per run", 4),
    Column("network", 5),
    _BATCH,
    _REMEDY,
    _LAYOUT,
    _TOKENS,
    _PRECISION,
    Column("efficiency", 6),
    Column("effective GPUs", 9),
    "time",
    "cost per run",
    Column("90% interval", 2),
    Column("total", 1),
    Column("price date", 10),
    Column("goal", 3),
)
_NOTABLE_GOODPUT = 0.98  # a smaller loss is only explained with --why
_CAPTION = (
    "Left is faster, down is cheaper. Every point above the blue line is worse than a point on it; "
    "points below it are ruled out or over the budget. Predicted, at the prices and dates in the table."
)


def plan_answer(
    result: PlanResult, *, with_chart: bool = True, why: bool = True, assumed: Sequence[str] = ()
) -> Answer:
    """Show a plan; only pages need the chart. Without `why`, a terminal shows one screen.

    `assumed` lists what gpuyard assumed about a goal without a file.
    """
    goal = result.goal
    verdict, *parts = plan_parts(result, with_chart=with_chart)
    now, at_end = (f"{runs:,.3g}" for runs in (goal.runs_per_month, goal.runs_per_month_at_end))
    return Answer(
        [
            verdict,
            *([Sentence(f"Assumed: {'; '.join(assumed)}.")] if assumed else []),
            *_fold(parts, why=why),
        ],
        result.as_json()
        | {"end_of_life": [end.model_dump(mode="json") for end in _find_ends_of_life(result)]},
        title=result.name,
        verb="plan",
        rows="front",
        meta=f"{goal.workload} in {result.precision_label} · {now} runs per month now, {at_end} at the end",
    )


def _fold(parts: Sequence[Part], *, why: bool) -> list[Part]:
    """Leave only the decision in the terminal; a page shows everything."""
    if why:
        return list(parts)
    first = [
        index
        for index, part in enumerate(parts)
        if isinstance(part, Sentence) and part.text == _WHY
    ]
    end = first[0] if first else len(parts)
    more = Sentence("Add --why for the reasons, all good options, and the assumptions.", "quiet")
    return [*parts[:end], RendererOnly("terminal", [more]), RendererOnly("page", parts[end:])]


_WHY = "Why:"


def plan_parts(result: PlanResult, *, with_chart: bool = True) -> list[Part]:
    """Return the parts of an answer or a study about a plan."""
    parts: list[Part] = [Sentence(result.verdict, "strong")]
    if result.winner and result.winner.evidence_note:
        parts.append(Sentence(result.winner.evidence_note, "caution"))
    if result.winner is not None:
        ends = find_ends_of_life(_list_gpus(result.winner))
        parts += [Sentence(end.sentence, "caution") for end in ends]
    parts += [
        Sentence(f"Refused by {result.site}: {refusal.sentence}", "caution")
        for refusal in result.refused
        if refusal.would_win
    ]
    if result.runners_up:
        parts.append(_create_runners_up_table(result))
    if result.would_change:
        parts += [
            Sentence("What would change the decision:", "strong"),
            Bullets(result.would_change),
        ]
    lost = _describe_failures(result)
    if lost and lost.tone == "caution":
        parts.append(lost)
    if result.reasons:
        parts += [Sentence(_WHY, "strong"), Bullets(result.reasons)]
        parts += [lost] if lost and lost.tone != "caution" else []
    if result.front:
        if with_chart:
            parts.append(_create_chart(result))
        title = f"Best options ({result.precision_label}): no other is both cheaper and faster"
        rows = [[_mark(result, choice), *_format_option(choice)] for choice in result.front]
        divided = all(choice.layout is not None for choice in result.front)
        hidden = (_BATCH, _REMEDY) if divided else ()
        if not any(choice.layout is not None for choice in result.front):
            hidden = (_LAYOUT, _TOKENS)
        kept = [index for index, column in enumerate(_OPTIONS) if column not in hidden]
        columns = [_OPTIONS[index] for index in kept]
        rows = [[row[index] for index in kept] for row in rows]
        parts.append(Table(title, _keep_precision(columns, result), rows, folded=True))
    if result.refused:
        parts.append(_create_refusal_table(result))
    if result.places:
        parts.append(_create_location_table(result))
    if result.alternatives:
        parts.append(_create_alternatives_table(result))
    ruled_out = f"{result.candidates:,} candidates from {result.offers:,} offers; ruled out"
    counts = [(exclusion.reason, f"{exclusion.candidates:,}") for exclusion in result.left_out]
    parts.append(Table(ruled_out, ("why", "candidates"), counts, folded=True))
    assumptions = [*result.assumptions, result.price_dates]
    assumptions += [end.sentence for end in _find_ends_of_life(result)]
    parts.append(Section("Assumptions", [Bullets(assumptions)], folded=True))
    return parts


def _describe_failures(result: PlanResult) -> Sentence | None:
    """Return what failures leave of the winner's time; times and costs do not include it."""
    if result.winner is None:
        return None
    goodput = result.winner.goodput
    sentence = (
        f"Failures and checkpoints leave {goodput:.1%} of a run's time on "
        f"{units.format_count(result.winner.gpus, 'GPU')}, which is not in the figures; see gpuyard goodput."
    )
    return Sentence(sentence, "caution" if goodput < _NOTABLE_GOODPUT else "plain")


def _create_chart(result: PlanResult) -> Chart:
    from gpuyard.report.figures.pareto import build_pareto_chart

    caption = f"{_CAPTION} Trained in {result.precision_label}."
    return Chart("chart-plan", caption, {ALL_BATCHES: build_pareto_chart(result)})


def _find_ends_of_life(result: PlanResult) -> list[EndOfLife]:
    return find_ends_of_life(gpu for choice in result.all_choices for gpu in _list_gpus(choice))


def _list_gpus(choice: Choice) -> list[Gpu]:
    """Return the kept, owned, and rented GPUs of a choice."""
    rented = [choice.rest.gpu] if choice.rest else []
    return [gpus().get(name) for name in (*(k.gpu for k in choice.kept), choice.gpu, *rented)]


def _create_refusal_table(result: PlanResult) -> Table:
    """List the choices that would be among the best without this site."""
    columns = ("machines", Column("cost per run", 2), Column("reason", 1))
    rows = [
        [refusal.choice, format_dollars(refusal.usd_per_run), refusal.why]
        for refusal in result.refused
    ]
    return Table(f"Machines that {result.site} cannot house", columns, rows, folded=True)


def _create_runners_up_table(result: PlanResult) -> Table:
    columns = (
        "alternative",
        "machines",
        _PRECISION,
        "time",
        "cost per run",
        Column("total", 3),
        Column("why not", 1),
    )
    rows = [
        [
            other.name,
            other.choice.machines,
            other.choice.precision,
            units.format_seconds(other.choice.run_seconds),
            format_dollars(other.choice.usd_per_run),
            format_dollars(other.choice.total_usd),
            other.sentence,
        ]
        for other in result.runners_up
        if other.choice is not None
    ]
    title = f"Alternatives ({result.precision_label})"
    return Table(title, _keep_precision(columns, result), rows)


def _keep_precision(columns: Sequence[str | Column], result: PlanResult) -> list[str | Column]:
    """If several precisions were tried, show the column at any width."""
    column = "precision" if len(result.precisions) > 1 else _PRECISION
    return [column if c is _PRECISION else c for c in columns]


def _format_option(choice: Choice) -> list[str | Text]:
    low, high = format_dollars(choice.usd_per_run_low), format_dollars(choice.usd_per_run_high)
    date = choice.price_date or "given"
    return [
        choice.machines,
        choice.acquisition_cell,
        str(choice.gpus),
        choice.network,
        str(choice.batch_per_gpu),
        "" if choice.remedy == "none" else choice.remedy,
        choice.layout.description if choice.layout else "",
        f"{choice.tokens_per_second / choice.gpus:,.0f}" if choice.tokens_per_second else "",
        choice.precision,
        units.format_share(choice.scaling_efficiency),
        f"{choice.effective_gpus:.1f}",
        units.format_seconds(choice.run_seconds),
        format_dollars(choice.usd_per_run),
        f"{low} to {high}",
        format_dollars(choice.total_usd),
        f"estimate, {date}" if choice.price_is_estimate else date,
        Text("met", "good") if choice.meets_goal else Text("missed", "caution"),
    ]


def _mark(result: PlanResult, choice: Choice) -> Text | str:
    """Mark the choice and both ends of the front."""
    if result.winner is not None and choice.has_same_machines(result.winner):
        return Text("choice", "good")
    if choice is result.front[0]:
        return "fastest"
    return "cheapest" if choice is result.front[-1] else ""


def _create_location_table(result: PlanResult) -> Table:
    """Compare on premises with colocation, without columns that are empty for both."""
    columns = (
        "where",
        Column("energy per month", 2),
        Column("rent per month", 3),
        Column("room per month", 4),
        "total",
        "cost per run",
        Column("caveat", 1),
    )
    rows = [
        [
            f"{place.where}, PUE {place.pue:g}, ${place.usd_per_kwh:g}/kWh",
            format_dollars(place.energy_usd_per_month),
            format_dollars(place.rent_usd_per_month) if place.way == "colocate" else "",
            "" if place.build_usd_per_month is None else format_dollars(place.build_usd_per_month),
            format_dollars(place.total_usd),
            format_dollars(place.usd_per_run),
            "; ".join(place.broken_rules),
        ]
        for place in result.places
    ]
    used = [i for i in range(len(columns)) if any(row[i] for row in rows)]
    return Table(
        "Where the bought machines could go",
        [columns[i] for i in used],
        [[row[i] for i in used] for row in rows],
    )


def _create_alternatives_table(result: PlanResult) -> Table:
    rows = [
        [
            other.name,
            other.sentence,
            other.choice.precision if other.choice else "",
            str(other.choice.gpus) if other.choice else "",
            units.format_share(other.choice.scaling_efficiency) if other.choice else "",
        ]
        for other in result.alternatives
    ]
    columns = (
        "alternative",
        "why",
        _PRECISION,
        Column("GPUs", 2),
        Column("efficiency", 1),
    )
    title = f"Why the others lost ({result.precision_label})"
    return Table(title, _keep_precision(columns, result), rows)
