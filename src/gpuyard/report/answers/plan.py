"""Which machines to get for a goal: the choice and its reasons, the best options, and why the others lost."""

from collections.abc import Sequence

from gpuyard import units
from gpuyard.catalog import Gpu, gpus
from gpuyard.catalog.hardware import ends_of
from gpuyard.planner import Choice, PlanResult
from gpuyard.planner.result import dollars
from gpuyard.report.answer import (
    ALL_BATCHES,
    Answer,
    Bullets,
    Chart,
    Column,
    Only,
    Part,
    Section,
    Sentence,
    Table,
    Text,
)
from gpuyard.report.figures.pareto import pareto_option

_PRECISION = Column("precision", 6)  # the title says it where all have the same
_OPTIONS = (
    "",
    "what",
    "how acquired",
    Column("GPUs per run", 4),
    Column("network", 5),
    Column("batch per GPU", 8),
    Column("remedy", 7),
    _PRECISION,
    Column("efficiency", 6),
    Column("effective GPUs", 9),
    "time",
    "cost per run",
    Column("90 % interval", 2),
    Column("total", 1),
    Column("price date", 10),
    Column("goal", 3),
)
_CAPTION = (
    "Left is faster, down is cheaper. Whatever lies above the blue line is beaten by a point on it; "
    "what lies below it is ruled out or over the budget. Predicted, at the prices and dates in the table."
)


def plan_answer(result: PlanResult) -> Answer:
    """The whole answer."""
    goal = result.goal
    now, at_end = (f"{runs:,.3g}" for runs in (goal.runs_per_month, goal.runs_per_month_at_end))
    return Answer(
        [Only("terminal", [Sentence(result.name, "strong")]), *plan_parts(result)],
        result.as_json()
        | {
            "end_of_life": [
                end.model_dump(mode="json")
                for end in ends_of(gpu for choice in result.shown for gpu in _gpus_of(choice))
            ]
        },
        title=result.name,
        verb="plan",
        meta=f"{goal.workload} in {result.trained_in} · {now} runs per month now, {at_end} at the end",
    )


def plan_parts(result: PlanResult) -> list[Part]:
    """What an answer or a study says about a plan."""
    parts: list[Part] = [Sentence(result.verdict, "strong")]
    parts += [Sentence(end.sentence, "caution") for end in ends_of(_gpus_of(result.winner))]
    parts += [
        Sentence(f"Refused by {result.site}: {one.sentence}", "caution")
        for one in result.refused
        if one.would_win
    ]
    if result.runners_up:
        parts.append(_runners_up(result))
    if result.would_change:
        parts += [
            Sentence("What would change the decision:", "strong"),
            Bullets(result.would_change),
        ]
    if result.reasons:
        parts += [Sentence("Why:", "strong"), Bullets(result.reasons)]
    if result.front:
        caption = f"{_CAPTION} Trained in {result.trained_in}."
        parts.append(Chart("chart-plan", caption, {ALL_BATCHES: pareto_option(result)}))
        title = f"Best options ({result.trained_in}): no other is both cheaper and faster"
        rows = [[_mark(result, choice), *_option(choice)] for choice in result.front]
        parts.append(Table(title, _naming_precision(_OPTIONS, result), rows, folded=True))
    if result.refused:
        parts.append(_refused(result))
    if result.places:
        parts.append(_sitings(result))
    if result.alternatives:
        parts.append(_alternatives(result))
    ruled_out = f"{result.candidates:,} candidates from {result.offers:,} offers; ruled out"
    counts = [(left.reason, f"{left.candidates:,}") for left in result.left_out]
    parts.append(Table(ruled_out, ("why", "candidates"), counts, folded=True))
    said = [*result.assumptions, result.price_dates]
    said += [end.sentence for end in ends_of(g for c in result.shown for g in _gpus_of(c))]
    parts.append(Section("What this rests on", [Bullets(said)], folded=True))
    return parts


def _gpus_of(choice: Choice | None) -> list[Gpu]:
    """Those that are kept, those that are owned, and those that are rented beside them."""
    if choice is None:
        return []
    rented = [choice.rest.gpu] if choice.rest else []
    return [gpus().get(name) for name in (*(k.gpu for k in choice.kept), choice.gpu, *rented)]


def _refused(result: PlanResult) -> Table:
    """What would be among the best without this site."""
    columns = ("what", Column("cost per run", 2), Column("what is missing", 1))
    rows = [[one.what, dollars(one.usd_per_run), one.why] for one in result.refused]
    return Table(f"What {result.site} can't house", columns, rows, folded=True)


def _runners_up(result: PlanResult) -> Table:
    columns = (
        "alternative",
        "what",
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
            dollars(other.choice.usd_per_run),
            dollars(other.choice.total_usd),
            other.sentence,
        ]
        for other in result.runners_up
        if other.choice is not None
    ]
    title = f"Alternatives ({result.trained_in})"
    return Table(title, _naming_precision(columns, result), rows)


def _naming_precision(columns: Sequence[str | Column], result: PlanResult) -> list[str | Column]:
    """Where several were tried, rows say which at any width."""
    kept = "precision" if len(result.precisions) > 1 else _PRECISION
    return [kept if column is _PRECISION else column for column in columns]


def _option(choice: Choice) -> list[str | Text]:
    low, high = dollars(choice.usd_per_run_low), dollars(choice.usd_per_run_high)
    date = choice.price_date or "given"
    return [
        choice.machines,
        choice.acquired_cell,
        str(choice.gpus),
        choice.network,
        str(choice.batch_per_gpu),
        "" if choice.remedy == "none" else choice.remedy,
        choice.precision,
        units.format_share(choice.scaling_efficiency),
        f"{choice.effective_gpus:.1f}",
        units.format_seconds(choice.run_seconds),
        dollars(choice.usd_per_run),
        f"{low} to {high}",
        dollars(choice.total_usd),
        f"estimate, {date}" if choice.price_is_estimate else date,
        Text("met", "good") if choice.meets_goal else Text("missed", "caution"),
    ]


def _mark(result: PlanResult, choice: Choice) -> Text | str:
    """The choice and both ends."""
    if result.winner is not None and choice.same_machines(result.winner):
        return Text("choice", "good")
    if choice is result.front[0]:
        return "fastest"
    return "cheapest" if choice is result.front[-1] else ""


def _sitings(result: PlanResult) -> Table:
    """On premises and in a colocation, side by side; what is empty for both is left out."""
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
            f"{siting.where}, PUE {siting.pue:g}, ${siting.usd_per_kwh:g}/kWh",
            dollars(siting.energy_usd_per_month),
            dollars(siting.rent_usd_per_month) if siting.way == "colocate" else "",
            "" if siting.build_usd_per_month is None else dollars(siting.build_usd_per_month),
            dollars(siting.total_usd),
            dollars(siting.usd_per_run),
            "; ".join(siting.broken_rules),
        ]
        for siting in result.places
    ]
    filled = [i for i in range(len(columns)) if any(row[i] for row in rows)]
    return Table(
        "Where the bought machines could go",
        [columns[i] for i in filled],
        [[row[i] for i in filled] for row in rows],
    )


def _alternatives(result: PlanResult) -> Table:
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
    title = f"Why the others lost ({result.trained_in})"
    return Table(title, _naming_precision(columns, result), rows)
