"""The answers of `gpuyard queue`: jobs, explanations, policies, and rebalancing."""

import math
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gpuyard.jobs.engines.base import Availability
from gpuyard.jobs.job import JobStatus
from gpuyard.report import formats
from gpuyard.report.answer import Answer, Column, Part, Sentence, StyledText, Table
from gpuyard.report.answers.jobs.status import (
    format_count,
    format_elapsed,
    format_gpus,
    format_state,
    format_time,
    shorten,
)
from gpuyard.share.clock import iso_timestamp
from gpuyard.units import format_duration

if TYPE_CHECKING:
    from gpuyard.jobs.engines.slurm.rebalancing import Rebalance, Resize
    from gpuyard.jobs.explain import Explanation, TimeRange
    from gpuyard.policies import Policy

_MAX_NAME = 40
_JOB_COLUMNS = ("handle", "state", "name", "user", "gpus", "submitted")  # the first of CSV
_EVERYONE_COLUMNS = ("user", "job", "state", "gpus")


def queue_answer(
    jobs: Sequence[JobStatus],
    engines: Sequence[tuple[str, Availability]],
    silent: Sequence[str] = (),
    *,
    includes_ended: bool,
) -> Answer:
    """Show a row for each job, and why jobs are missing: of `silent` engines, or of those that are down."""
    document = {
        "jobs": [job.document() for job in jobs],
        "engines": [
            {"name": name, "available": availability.ok, "reason": availability.reason}
            for name, availability in engines
        ],
    }
    parts: list[Part] = []
    if jobs:
        columns = (
            "job",
            Column("name", 1),
            "state",
            "GPUs",
            Column("elapsed", 3),
            Column("restarts", 5),
            Column("submitted", 4),
            Column("deadline", 2),
        )
        parts.append(Table("", columns, [_format_row(job) for job in jobs]))
    else:
        usable = [name for name, availability in engines if availability.ok]
        kind = "job" if includes_ended else "waiting or running job"
        where = f" (engines: {', '.join(usable)})" if usable else ""
        parts.append(Sentence(f"You have no {kind}{where}."))
    if not any(availability.ok or availability.down for _, availability in engines):
        hint = "No engine that runs jobs is set up here; `gpuyard status --json` says what each one lacks."
        parts.append(Sentence(hint, "quiet"))
    for name, availability in engines:
        if name in silent or availability.down:
            problem = "did not list its jobs" if name in silent else "cannot be used here"
            parts.append(Sentence(f"Engine {name} {problem}: {availability.reason}.", "caution"))
    return Answer(parts, document, verb="queue", rows="jobs", columns=_JOB_COLUMNS)


def everyone_answer(document: dict[str, Any]) -> Answer:
    """Show a row for each open job of any user."""
    jobs = document["jobs"]
    if not jobs:
        return Answer(
            [Sentence("No user has a waiting or running job here.")],
            document,
            verb="queue",
            rows=jobs,
            columns=_EVERYONE_COLUMNS,
        )
    rows: list[list[StyledText]] = [
        [
            job["user"],
            job["job"],
            job["state"],
            format_count(job["gpus"], job["min_gpus"], job["max_gpus"]),
            formats.elapsed(job["elapsed_seconds"]),
            format_time(datetime.fromisoformat(job["submitted"]).timestamp()),
        ]
        for job in jobs
    ]
    columns = ("user", "job", "state", "GPUs", Column("elapsed", 1), Column("submitted", 2))
    return Answer(
        [Table("", columns, rows)], document, verb="queue", rows=jobs, columns=_EVERYONE_COLUMNS
    )


def prune_answer(pruned: int | None, keep_seconds: float, *, dry_run: bool) -> Answer:
    """Show how many jobs were deleted (None: not asked for), and how long ended jobs are kept."""
    forever = math.isinf(keep_seconds)
    kept = "forever" if forever else f"for {format_duration(keep_seconds)}"
    sentences = [f"Ended jobs {'would be' if dry_run else 'are'} kept {kept}."]
    if pruned is not None:
        jobs = "1 job" if pruned == 1 else f"{pruned:,} jobs"
        verb = "Would delete" if dry_run else "Deleted"
        sentences.insert(0, f"{verb} {jobs}; their measurements stay in the results.")
    document = {
        "pruned": pruned,
        "keep_seconds": None if forever else keep_seconds,
        "dry_run": dry_run,
    }
    return Answer([Sentence(sentence) for sentence in sentences], document, verb="queue")


def explain_answer(status: JobStatus, explanation: "Explanation | None") -> Answer:
    """Show why a job waits and its outlook, or else the reason from its engine."""
    document = {"handle": str(status.handle), "state": status.state, "reason": status.reason}
    if explanation is None:
        why = f": {status.reason}" if status.reason else ""
        state = "canceling" if status.canceling else status.state
        parts: list[Part] = [Sentence(f"{status.handle} is {state}{why}.")]
        return Answer(parts, document, verb="queue")
    return Answer(
        [Sentence(sentence) for sentence in explanation.sentences],
        {**document, **_explanation_document(explanation)},
        verb="queue",
    )


def _explanation_document(explanation: "Explanation") -> dict[str, Any]:
    """Return the JSON form, with times in ISO 8601."""

    def format_range(times: "TimeRange | None") -> dict[str, str | None] | None:
        if times is None:
            return None
        return {
            "expected": iso_timestamp(times.expected_s),
            "low": iso_timestamp(times.low_s),
            "high": iso_timestamp(times.high_s),
        }

    return {
        "policy": explanation.policy,
        "reasons": list(explanation.reasons),
        "prospects": list(explanation.prospects),
        "gpus": explanation.gpus,
        "start": format_range(explanation.start),
        "end": format_range(explanation.end),
        "deadline": iso_timestamp(explanation.deadline_s),
        "deadline_probability": explanation.deadline_probability,
    }


def policy_answer(
    policy: "Policy", own: "Policy | None", *, is_shared: bool, has_slurm: bool
) -> Answer:
    """Show the current policy, the user's own if the machine's replaces it, and all policies."""
    from gpuyard.policies import POLICIES

    whose = "The GPUs of this machine use" if is_shared else "Your jobs on Slurm use"
    if not is_shared and not has_slurm:
        whose = (
            "This machine neither shares its GPUs nor has Slurm; with Slurm, your jobs would use"
        )
    parts: list[Part] = [Sentence(f"{whose} {policy.name}: {policy.summary}.")]
    replaced = own.name if is_shared and own is not None and own.name != policy.name else None
    if replaced is not None:
        parts.append(
            Sentence(
                f"It replaces your own policy, {replaced}, also for your jobs on Slurm: this machine has shared its GPUs "
                "since you set that."
            )
        )
    rows = [[each.name, each.summary] for each in POLICIES.values()]
    document = {
        "policy": policy.name,
        "applies_to": "machine" if is_shared else "own Slurm jobs",
        "replaced_own_policy": replaced,
        "policies": list(POLICIES),
    }
    return Answer([*parts, Table("Policies", ("policy", "effect"), rows)], document, verb="queue")


def rebalance_answer(result: "Rebalance", *, dry_run: bool) -> Answer:
    """Show which Slurm jobs are resized, and why others are not."""
    document = {
        "policy": result.policy,
        "dry_run": dry_run,
        "resizes": [resize.document() for resize in result.resizes],
        "kept": [{"job": job, "reason": why} for job, why in result.kept],
        "open_jobs": result.open_jobs,
    }
    parts: list[Part] = []
    if result.resizes:
        when = "would change" if dry_run else "are changed at their next checkpoint"
        parts.append(
            Table(
                f"Jobs that {when} ({result.policy})",
                ("job", "GPUs", "new GPUs", "new nodes", "reason"),
                [
                    [
                        resize.job,
                        str(resize.gpus),
                        str(resize.new_gpus),
                        str(resize.new_nodes),
                        _format_reason(resize),
                    ]
                    for resize in result.resizes
                ],
            )
        )
    elif result.open_jobs:
        parts.append(Sentence(f"{result.policy} resizes no Slurm job now."))
    else:
        parts.append(Sentence("You have no waiting or running job on Slurm."))
    parts += [Sentence(f"{job} keeps its GPUs: {why}.") for job, why in result.kept]
    return Answer(parts, document, verb="queue")


def _format_reason(resize: "Resize") -> str:
    if resize.seconds_saved is None:
        return "makes room for others"
    return f"done {format_duration(resize.seconds_saved)} sooner"


def _format_row(job: JobStatus) -> list[StyledText]:
    return [
        str(job.handle),
        shorten(job.name, _MAX_NAME),
        format_state(job),
        format_gpus(job),
        format_elapsed(job),
        str(job.restarts),
        "" if job.submitted is None else format_time(job.submitted),
        "" if job.deadline is None else format_time(job.deadline),
    ]
