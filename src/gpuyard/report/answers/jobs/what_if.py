"""What would have happened: a trace as it is, beside the same with something changed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gpuyard.jobs.simulate.outcome import SimulationOutcome
from gpuyard.jobs.simulate.trace import Trace
from gpuyard.report.answer import (
    ALL_BATCHES,
    Answer,
    Bullets,
    Chart,
    Charts,
    Column,
    Only,
    Sentence,
    Table,
)
from gpuyard.report.answers.jobs.simulation import alike
from gpuyard.report.figures.simulation import completion_option
from gpuyard.report.formats import percent
from gpuyard.units import counted, format_seconds

_SAME = 0.005  # less than this share is no difference


def what_if_answer(named: Sequence[tuple[str, SimulationOutcome]], assumed: str = "") -> Answer:
    """The first is how it is, the others are what could be; `assumed` is what that rests on."""
    base = named[0][1]
    trace = base.trace
    heading = f"{counted(len(trace.jobs), 'job')} of {trace.name}, simulated"
    shown = [replace(outcome, policy=name) for name, outcome in named]
    chart = Chart(
        "chart-completion", "Further left is sooner.", {ALL_BATCHES: completion_option(shown)}
    )
    return Answer(
        [
            Table(heading, _columns(base), _rows(named)),
            Bullets([_said(name, outcome, base) for name, outcome in named[1:]]),
            *([Sentence(_reality(trace, base), "quiet")] if _waits(trace) else []),
            *([Sentence(assumed, "quiet")] if assumed else []),
            Only("page", [Charts([chart])]),
        ],
        what_if_document(named),
        title=f"What if: {trace.name}",
        verb="simulate",
        meta=heading,
    )


def what_if_document(named: Sequence[tuple[str, SimulationOutcome]]) -> dict[str, Any]:
    """`policies` as of a simulation without changes; each case has its name and machines too."""
    trace = named[0][1].trace
    waits = _waits(trace)
    cases = [
        {
            "case": name,
            "gpus": outcome.pool.gpus,
            "machines": len(outcome.pool.gpus_by_machine),
            **outcome.as_json(),
        }
        for name, outcome in named
    ]
    return {
        "trace": trace.name,
        "jobs": len(trace.jobs),
        "recorded_mean_wait_seconds": sum(waits) / len(waits) if waits else None,
        "what_if": cases,
        "policies": [outcome.as_json() for _, outcome in named],
    }


def _columns(base: SimulationOutcome) -> list[Column]:
    return [
        Column("case"),
        Column("policy", 2),
        Column("GPUs", 3),
        Column("mean wait"),
        Column("mean completion"),
        Column("99th percentile", 4),
        *([Column("deadlines met")] if base.deadlines else []),
        Column("utilisation", 1),
    ]


def _rows(named: Sequence[tuple[str, SimulationOutcome]]) -> list[list[str]]:
    every: list[Any] = [outcome.as_json() for _, outcome in named]
    times = [
        alike([figures[f"{key}_seconds"] for figures in every])
        for key in ("mean_wait", "mean_completion", "p99_completion")
    ]
    return [
        [
            name,
            outcome.policy,
            f"{outcome.pool.gpus:,}",
            *(column[at] for column in times),
            *([f"{outcome.deadlines_met} of {outcome.deadlines}"] if outcome.deadlines else []),
            percent(outcome.utilisation),
        ]
        for at, (name, outcome) in enumerate(named)
    ]


def _said(name: str, outcome: SimulationOutcome, base: SimulationOutcome) -> str:
    before, after = (float(o.completion_seconds.mean()) for o in (base, outcome))
    waited, waits = (float((o.started_s - o.submitted_s).mean()) for o in (base, outcome))
    change = after / before - 1
    if abs(change) < _SAME:
        return f"{name}: jobs would have taken as long as they do now."
    sooner = "sooner" if change < 0 else "later"
    return (
        f"{name}: on average a job would have ended {percent(abs(change))} {sooner}, "
        f"{format_seconds(after)} after its submission instead of {format_seconds(before)}, and "
        f"waited {format_seconds(waits)} instead of {format_seconds(waited)}."
    )


def _waits(trace: Trace) -> list[float]:
    return [job.waited_s for job in trace.jobs if job.waited_s is not None]


def _reality(trace: Trace, base: SimulationOutcome) -> str:
    """How far the simulation is from what was."""
    waits = _waits(trace)
    simulated = float((base.started_s - base.submitted_s).mean())
    return (
        f"In reality jobs waited {format_seconds(sum(waits) / len(waits))} on average, "
        f"simulated under {base.policy} {format_seconds(simulated)}."
    )
