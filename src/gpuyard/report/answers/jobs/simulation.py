"""What a trace of jobs would have met under each policy."""

from collections.abc import Sequence
from typing import Any

from gpuyard.draw.gantt import GanttBar, GanttRow, gantt_svg
from gpuyard.jobs.simulate.outcome import SimulationOutcome
from gpuyard.report.answer import (
    ALL_BATCHES,
    Answer,
    Chart,
    Charts,
    Column,
    Drawing,
    Only,
    Part,
    Sentence,
    Table,
)
from gpuyard.report.figures.simulation import completion_option, use_option
from gpuyard.report.formats import percent
from gpuyard.units import counted

_UNITS = ((3600.0, "h"), (60.0, "min"), (1.0, "s"))
_SAME = 0.005  # less than this share is no difference
_MOST_GANTT_ROWS = 200  # more lines than that are no picture


def simulation_answer(outcomes: Sequence[SimulationOutcome], about: str = "") -> Answer:
    """One row a policy, the lowest mean completion time first."""
    best_first = sorted(outcomes, key=lambda outcome: outcome.completion_seconds.mean())
    sentences = [Sentence(_verdict(best_first)), *_deadlines(best_first)]
    trace, pool = outcomes[0].trace, outcomes[0].pool
    heading = (
        f"{counted(len(trace.jobs), 'job')} of {trace.name} on {counted(pool.gpus, 'GPU')} in "
        f"{counted(len(pool.gpus_by_machine), 'machine')}{about}"
    )
    parts: list[Part] = [
        Table(heading, _columns(outcomes), _rows(best_first)),
        *sentences,
        Only("page", _pictures(outcomes)),
    ]
    return Answer(
        parts,
        simulation_document(outcomes),
        title=f"Simulation of {trace.name}",
        verb="simulate",
        meta=heading,
    )


def simulation_document(outcomes: Sequence[SimulationOutcome]) -> dict[str, Any]:
    """In the order in which the policies were named."""
    trace, pool = outcomes[0].trace, outcomes[0].pool
    return {
        "trace": trace.name,
        "jobs": len(trace.jobs),
        "gpus": pool.gpus,
        "machines": len(pool.gpus_by_machine),
        "policies": [outcome.as_json() for outcome in outcomes],
    }


def _columns(outcomes: Sequence[SimulationOutcome]) -> list[Column]:
    deadlines = [Column("deadlines met")] if outcomes[0].deadlines else []
    return [
        Column("policy"),
        Column("mean completion"),
        Column("median", 2),
        Column("99th percentile", 3),
        Column("makespan", 1),
        *deadlines,
        Column("utilisation", 4),
        Column("GPU-hours", 5),
        Column("restarts", 6),
    ]


def _rows(outcomes: Sequence[SimulationOutcome]) -> list[list[str]]:
    every: list[Any] = [outcome.as_json() for outcome in outcomes]
    times = [
        alike([figures[f"{name}_seconds"] for figures in every])
        for name in ("mean_completion", "median_completion", "p99_completion", "makespan")
    ]
    return [
        [
            figures["policy"],
            *(column[at] for column in times),
            *(
                [f"{figures['deadlines_met']} of {figures['deadlines']}"]
                if figures["deadlines"]
                else []
            ),
            percent(figures["utilisation"]),
            f"{figures['gpu_hours']:,.0f}",
            f"{figures['restarts']:,}",
        ]
        for at, figures in enumerate(every)
    ]


def alike(seconds: Sequence[float]) -> list[str]:
    """Times that are compared have the same unit: the largest in which the smallest is at least 1."""
    unit, name = next((unit for unit in _UNITS if min(seconds) >= unit[0]), _UNITS[-1])
    digits = 2 if min(seconds) < 10 * unit else 1
    return [f"{value / unit:,.{digits}f} {name}" for value in seconds]


def _verdict(best_first: Sequence[SimulationOutcome]) -> str:
    best = best_first[0]
    means = [float(outcome.completion_seconds.mean()) for outcome in best_first]
    lowest = alike(means)[0]
    if len(best_first) == 1:
        return f"Under {best.policy} a job ends {lowest} after its submission, on average."
    if 1 - means[0] / means[1] < _SAME:
        alike_ones = [
            one.policy
            for one, mean in zip(best_first, means, strict=True)
            if 1 - means[0] / mean < _SAME
        ]
        names = f"{', '.join(alike_ones[:-1])} and {alike_ones[-1]}"
        return f"Under {names} a job ends {lowest} after its submission, on average."
    return (
        f"{best.policy} has the lowest mean completion time: {lowest}, "
        f"{percent(1 - means[0] / means[1])} less than {best_first[1].policy}."
    )


def _deadlines(best_first: Sequence[SimulationOutcome]) -> list[Sentence]:
    """Where there is something to choose."""
    if len({outcome.deadlines_met for outcome in best_first}) < 2:
        return []
    most = max(best_first, key=lambda outcome: outcome.deadlines_met)
    met = f"{most.deadlines_met} of {most.deadlines}"
    return [Sentence(f"{most.policy} meets the most deadlines: {met}.")]


def _pictures(outcomes: Sequence[SimulationOutcome]) -> list[Part]:
    charts = Charts(
        [
            Chart(
                "chart-completion",
                "Further left is sooner.",
                {ALL_BATCHES: completion_option(outcomes)},
            ),
            Chart(
                "chart-use", "What is below the top is idle.", {ALL_BATCHES: use_option(outcomes)}
            ),
        ]
    )
    if len(outcomes[0].trace.jobs) > _MOST_GANTT_ROWS:
        return [charts]
    caption = (
        "A line a job, in the order of submission; grey while it waits, stronger with more GPUs."
    )
    until_s = max(float(outcome.ended_s.max()) for outcome in outcomes)
    gantts = [
        Drawing(
            gantt_svg(_gantt_rows(outcome), f"Jobs under {outcome.policy}", until_s),
            caption=caption,
        )
        for outcome in outcomes
    ]
    return [charts, *gantts]


def _gantt_rows(outcome: SimulationOutcome) -> list[GanttRow]:
    bars: dict[int, list[GanttBar]] = {at: [] for at in range(len(outcome.trace.jobs))}
    for stay in outcome.stays:
        bars[stay.job].append(GanttBar(stay.begin_s, stay.end_s, stay.gpus))
    return [
        GanttRow(job.id, job.user, job.submitted_s, tuple(bars[at]))
        for at, job in enumerate(outcome.trace.jobs)
    ]
