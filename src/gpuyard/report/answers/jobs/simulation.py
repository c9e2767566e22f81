"""The answer of `gpuyard simulate`: a trace of jobs under each policy."""

from collections.abc import Sequence
from typing import Any

from gpuyard.draw.gantt import GanttBar, GanttRow, draw_gantt_svg
from gpuyard.jobs.simulate.outcome import SimulationOutcome
from gpuyard.report.answer import (
    ALL_BATCHES,
    Answer,
    Chart,
    Charts,
    Column,
    Drawing,
    Part,
    RendererOnly,
    Sentence,
    Table,
)
from gpuyard.report.figures.simulation import build_completion_chart, build_use_chart
from gpuyard.report.formats import percent
from gpuyard.units import format_count

_UNITS = ((3600.0, "h"), (60.0, "min"), (1.0, "s"))
_SAME = 0.005  # smaller relative differences do not count
_MAX_GANTT_ROWS = 200  # a chart with more rows is not legible


def simulation_answer(outcomes: Sequence[SimulationOutcome]) -> Answer:
    """Show one row per policy, the lowest mean completion time first."""
    best_first = sorted(outcomes, key=lambda outcome: outcome.completion_seconds.mean())
    sentences = [Sentence(_describe_best(best_first)), *_compare_deadlines(best_first)]
    sentences += [
        Sentence(
            f"{outcome.policy}: {format_count(outcome.failures, 'failure')} of machines cost jobs "
            f"{outcome.lost_gpu_seconds / 3600:,.1f} GPU-hours."
        )
        for outcome in best_first
        if outcome.failures
    ]
    trace, pool = outcomes[0].trace, outcomes[0].pool
    heading = (
        f"{format_count(len(trace.jobs), 'job')} of {trace.name} on {format_count(pool.gpus, 'GPU')} in "
        f"{format_count(len(pool.gpus_by_machine), 'machine')}"
    )
    parts: list[Part] = [
        Table(heading, _list_columns(outcomes), _format_rows(best_first)),
        *sentences,
        RendererOnly("page", _draw_charts(outcomes)),
    ]
    return Answer(
        parts,
        simulation_document(outcomes),
        title=f"Simulation of {trace.name}",
        verb="simulate",
        rows="policies",
        meta=heading,
    )


def simulation_document(outcomes: Sequence[SimulationOutcome]) -> dict[str, Any]:
    """Return the JSON form, in the order in which the policies were named."""
    trace, pool = outcomes[0].trace, outcomes[0].pool
    return {
        "trace": trace.name,
        "jobs": len(trace.jobs),
        "gpus": pool.gpus,
        "machines": len(pool.gpus_by_machine),
        "policies": [outcome.as_json() for outcome in outcomes],
    }


def _list_columns(outcomes: Sequence[SimulationOutcome]) -> list[Column]:
    deadlines = [Column("deadlines met")] if outcomes[0].deadlines else []
    return [
        Column("policy"),
        Column("mean completion"),
        Column("median", 2),
        Column("99th percentile", 3),
        Column("makespan", 1),
        *deadlines,
        Column("utilization", 4),
        Column("GPU-hours", 5),
        Column("restarts", 6),
    ]


def _format_rows(outcomes: Sequence[SimulationOutcome]) -> list[list[str]]:
    documents: list[Any] = [outcome.as_json() for outcome in outcomes]
    times = [
        format_same_unit([document[f"{name}_seconds"] for document in documents])
        for name in ("mean_completion", "median_completion", "p99_completion", "makespan")
    ]
    return [
        [
            document["policy"],
            *(column[row] for column in times),
            *(
                [f"{document['deadlines_met']} of {document['deadlines']}"]
                if document["deadlines"]
                else []
            ),
            percent(document["utilization"]),
            f"{document['gpu_hours']:,.0f}",
            f"{document['restarts']:,}",
        ]
        for row, document in enumerate(documents)
    ]


def format_same_unit(seconds: Sequence[float]) -> list[str]:
    """Format times for comparison in one unit: the largest in which the smallest is at least 1."""
    unit, name = next((unit for unit in _UNITS if min(seconds) >= unit[0]), _UNITS[-1])
    digits = 2 if min(seconds) < 10 * unit else 1
    return [f"{value / unit:,.{digits}f} {name}" for value in seconds]


def _describe_best(best_first: Sequence[SimulationOutcome]) -> str:
    best = best_first[0]
    means = [float(outcome.completion_seconds.mean()) for outcome in best_first]
    lowest = format_same_unit(means)[0]
    if len(best_first) == 1:
        return f"Under {best.policy} a job ends {lowest} after its submission, on average."
    if 1 - means[0] / means[1] < _SAME:
        equal = [
            outcome.policy
            for outcome, mean in zip(best_first, means, strict=True)
            if 1 - means[0] / mean < _SAME
        ]
        names = f"{', '.join(equal[:-1])} and {equal[-1]}"
        return f"Under {names} a job ends {lowest} after its submission, on average."
    return (
        f"{best.policy} has the lowest mean completion time: {lowest}, "
        f"{percent(1 - means[0] / means[1])} less than {best_first[1].policy}."
    )


def _compare_deadlines(best_first: Sequence[SimulationOutcome]) -> list[Sentence]:
    """Name the policy that meets the most deadlines, if they differ."""
    if len({outcome.deadlines_met for outcome in best_first}) < 2:
        return []
    most = max(best_first, key=lambda outcome: outcome.deadlines_met)
    met = f"{most.deadlines_met} of {most.deadlines}"
    return [Sentence(f"{most.policy} meets the most deadlines: {met}.")]


def _draw_charts(outcomes: Sequence[SimulationOutcome]) -> list[Part]:
    charts = Charts(
        [
            Chart(
                "chart-completion",
                "Further left is sooner.",
                {ALL_BATCHES: build_completion_chart(outcomes)},
            ),
            Chart(
                "chart-use",
                "GPUs above the line are idle.",
                {ALL_BATCHES: build_use_chart(outcomes)},
            ),
        ]
    )
    if len(outcomes[0].trace.jobs) > _MAX_GANTT_ROWS:
        return [charts]
    caption = "One row per job, in order of submission: gray while it waits, darker with more GPUs."
    if outcomes[0].deadlines:
        caption += " An upright line is the job's deadline, red if it is missed."
    until_s = max(float(outcome.ended_s.max()) for outcome in outcomes)
    gantts = [
        Drawing(
            draw_gantt_svg(_list_gantt_rows(outcome), f"Jobs under {outcome.policy}", until_s),
            caption=caption,
        )
        for outcome in outcomes
    ]
    return [charts, *gantts]


def _list_gantt_rows(outcome: SimulationOutcome) -> list[GanttRow]:
    bars: dict[int, list[GanttBar]] = {index: [] for index in range(len(outcome.trace.jobs))}
    for interval in outcome.intervals:
        bars[interval.job].append(GanttBar(interval.begin_s, interval.end_s, interval.gpus))
    return [
        GanttRow(job.id, job.user, job.submitted_s, tuple(bars[index]), job.deadline_s)
        for index, job in enumerate(outcome.trace.jobs)
    ]
