"""All jobs, and the policy by which they share GPUs."""

from collections.abc import Sequence
from typing import Any

from gpuyard.jobs.engines.base import Availability
from gpuyard.jobs.engines.slurm.rebalancing import Rebalance, Resize
from gpuyard.jobs.explain import Explanation, Range
from gpuyard.jobs.job import JobStatus
from gpuyard.jobs.policies import POLICIES, Policy
from gpuyard.report.answer import Answer, Column, Part, Sentence, Table, Words
from gpuyard.report.answers.jobs.status import gpus_text, moment_text, one_line, state_text
from gpuyard.share.store.clock import stamp
from gpuyard.units import format_duration

_LONGEST_NAME = 40


def queue_answer(
    jobs: Sequence[JobStatus], engines: Sequence[tuple[str, Availability]], *, all_: bool
) -> Answer:
    """A row for each job, and which engines could not be asked."""
    document = {
        "jobs": [job.document() for job in jobs],
        "engines": [
            {"name": name, "available": found.ok, "reason": found.reason} for name, found in engines
        ],
    }
    parts: list[Part] = []
    if jobs:
        columns = (
            "job",
            Column("name", 1),
            "state",
            "GPUs",
            Column("restarts", 3),
            Column("submitted", 4),
            Column("deadline", 2),
        )
        parts.append(Table("", columns, [_row(job) for job in jobs]))
    else:
        usable = [name for name, found in engines if found.ok]
        kind = "job" if all_ else "job that waits or runs"
        where = f" (engines: {', '.join(usable)})" if usable else ""
        parts.append(Sentence(f"You have no {kind}{where}."))
    if not any(found.ok for _, found in engines):
        parts += [
            Sentence(f"The engine {name} can't be used here: {found.reason}.", "caution")
            for name, found in engines
        ]
    return Answer(parts, document, verb="queue")


def explain_answer(status: JobStatus, explanation: Explanation | None) -> Answer:
    """Why a job waits and what will come of it; else what its engine says of it."""
    document = {"handle": str(status.handle), "state": status.state, "reason": status.reason}
    if explanation is None:
        why = f": {status.reason}" if status.reason else ""
        parts: list[Part] = [Sentence(f"{status.handle} is {status.state}{why}.")]
        return Answer(parts, document, verb="queue")
    return Answer(
        [Sentence(sentence) for sentence in explanation.sentences],
        {**document, **_stamped(explanation)},
        verb="queue",
    )


def _stamped(explanation: Explanation) -> dict[str, Any]:
    """Moments as elsewhere: ISO 8601."""

    def moments(one: Range | None) -> dict[str, str | None] | None:
        if one is None:
            return None
        return {
            "expected": stamp(one.expected_s),
            "low": stamp(one.low_s),
            "high": stamp(one.high_s),
        }

    return {
        "policy": explanation.policy,
        "reasons": list(explanation.reasons),
        "prospects": list(explanation.prospects),
        "gpus": explanation.gpus,
        "start": moments(explanation.start),
        "end": moments(explanation.end),
        "deadline": stamp(explanation.deadline_s),
        "deadline_probability": explanation.deadline_probability,
    }


def policy_answer(policy: Policy) -> Answer:
    """The one that is used, and the others."""
    rows = [[one.name, one.summary] for one in POLICIES.values()]
    return Answer(
        [
            Sentence(f"The local queue uses {policy.name}: {policy.summary}."),
            Table("Policies", ("policy", "what it does"), rows),
        ],
        {"policy": policy.name, "policies": [one.name for one in POLICIES.values()]},
        verb="queue",
    )


def rebalance_answer(found: Rebalance, *, dry_run: bool) -> Answer:
    """Which jobs on Slurm change their nodes, and why others don't."""
    document = {
        "policy": found.policy,
        "dry_run": dry_run,
        "resizes": [one.document() for one in found.resizes],
        "kept": [{"job": job, "reason": why} for job, why in found.kept],
    }
    parts: list[Part] = []
    if found.resizes:
        said = "would change" if dry_run else "are changed at their next checkpoint"
        parts.append(
            Table(
                f"Jobs that {said} ({found.policy})",
                ("job", "GPUs", "GPUs then", "nodes then", "why"),
                [
                    [one.job, str(one.gpus), str(one.new_gpus), str(one.new_nodes), _why(one)]
                    for one in found.resizes
                ],
            )
        )
    elif found.open_jobs:
        parts.append(Sentence(f"No job on Slurm changes its GPUs by {found.policy}."))
    else:
        parts.append(Sentence("You have no job on Slurm that waits or runs."))
    parts += [Sentence(f"{job} keeps what it has: {why}.") for job, why in found.kept]
    return Answer(parts, document, verb="queue")


def _why(one: Resize) -> str:
    if one.seconds_saved is None:
        return "makes room for others"
    return f"done {format_duration(one.seconds_saved)} sooner"


def _row(job: JobStatus) -> list[Words]:
    return [
        str(job.handle),
        one_line(job.name, _LONGEST_NAME),
        state_text(job),
        gpus_text(job),
        str(job.restarts),
        "" if job.submitted is None else moment_text(job.submitted),
        "" if job.deadline is None else moment_text(job.deadline),
    ]
