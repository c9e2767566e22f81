"""The answer of `gpuyard simulate --what-if`: a trace as it is, and with changes."""

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
    RendererOnly,
    Sentence,
    Table,
)
from gpuyard.report.answers.jobs.simulation import format_same_unit
from gpuyard.report.figures.simulation import build_completion_chart
from gpuyard.report.formats import percent
from gpuyard.units import format_count, format_seconds

_SAME = 0.005  # smaller relative differences do not count


def what_if_answer(cases: Sequence[tuple[str, SimulationOutcome]], assumption: str = "") -> Answer:
    """Compare the first case, which is the trace as it is, with the changed ones."""
    base = cases[0][1]
    trace = base.trace
    heading = f"{format_count(len(trace.jobs), 'job')} of {trace.name}, simulated"
    renamed = [replace(outcome, policy=name) for name, outcome in cases]
    chart = Chart(
        "chart-completion",
        "Further left is sooner.",
        {ALL_BATCHES: build_completion_chart(renamed)},
    )
    return Answer(
        [
            Table(heading, _list_columns(base), _format_rows(cases)),
            Bullets([_compare(name, outcome, base) for name, outcome in cases[1:]]),
            *(
                [Sentence(_compare_with_reality(trace, base), "quiet")]
                if _list_waits(trace)
                else []
            ),
            *([Sentence(assumption, "quiet")] if assumption else []),
            RendererOnly("page", [Charts([chart])]),
        ],
        what_if_document(cases),
        title=f"What if: {trace.name}",
        verb="simulate",
        rows="what_if",
        meta=heading,
    )


def what_if_document(cases: Sequence[tuple[str, SimulationOutcome]]) -> dict[str, Any]:
    """Return the JSON form; `policies` is as for a simulation without changes."""
    trace = cases[0][1].trace
    waits = _list_waits(trace)
    rows = [
        {
            "case": name,
            "gpus": outcome.pool.gpus,
            "machines": len(outcome.pool.gpus_by_machine),
            **outcome.as_json(),
        }
        for name, outcome in cases
    ]
    return {
        "trace": trace.name,
        "jobs": len(trace.jobs),
        "recorded_mean_wait_seconds": sum(waits) / len(waits) if waits else None,
        "what_if": rows,
        "policies": [outcome.as_json() for _, outcome in cases],
    }


def _list_columns(base: SimulationOutcome) -> list[Column]:
    return [
        Column("case"),
        Column("policy", 2),
        Column("GPUs", 3),
        Column("mean wait"),
        Column("mean completion"),
        Column("99th percentile", 4),
        *([Column("deadlines met")] if base.deadlines else []),
        Column("utilization", 1),
    ]


def _format_rows(cases: Sequence[tuple[str, SimulationOutcome]]) -> list[list[str]]:
    documents: list[Any] = [outcome.as_json() for _, outcome in cases]
    times = [
        format_same_unit([document[f"{key}_seconds"] for document in documents])
        for key in ("mean_wait", "mean_completion", "p99_completion")
    ]
    return [
        [
            name,
            outcome.policy,
            f"{outcome.pool.gpus:,}",
            *(column[row] for column in times),
            *([f"{outcome.deadlines_met} of {outcome.deadlines}"] if outcome.deadlines else []),
            percent(outcome.utilization),
        ]
        for row, (name, outcome) in enumerate(cases)
    ]


def _compare(name: str, outcome: SimulationOutcome, base: SimulationOutcome) -> str:
    before, after = (float(o.completion_seconds.mean()) for o in (base, outcome))
    old_wait, new_wait = (float((o.started_s - o.submitted_s).mean()) for o in (base, outcome))
    change = after / before - 1
    if abs(change) < _SAME:
        return f"{name}: jobs would have taken as long as they do now."
    sooner = "sooner" if change < 0 else "later"
    return (
        f"{name}: on average a job would have ended {percent(abs(change))} {sooner}, "
        f"{format_seconds(after)} after its submission instead of {format_seconds(before)}, and "
        f"waited {format_seconds(new_wait)} instead of {format_seconds(old_wait)}."
    )


def _list_waits(trace: Trace) -> list[float]:
    return [job.recorded_wait_s for job in trace.jobs if job.recorded_wait_s is not None]


def _compare_with_reality(trace: Trace, base: SimulationOutcome) -> str:
    waits = _list_waits(trace)
    simulated = float((base.started_s - base.submitted_s).mean())
    return (
        f"In reality, jobs waited {format_seconds(sum(waits) / len(waits))} on average; "
        f"simulated under {base.policy}, they wait {format_seconds(simulated)}."
    )
