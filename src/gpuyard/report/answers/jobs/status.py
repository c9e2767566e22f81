"""The answer of `gpuyard status`: the state of a job."""

import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from gpuyard import units
from gpuyard.jobs.job import JobState, JobStatus
from gpuyard.report import formats
from gpuyard.report.answer import Answer, DefinitionList, StyledText, Text, Tone
from gpuyard.units import format_per_second, format_rough_seconds, format_share

_TONES: dict[JobState, Tone] = {
    "running": "accent",
    "succeeded": "good",
    "failed": "bad",
    "lost": "bad",
    "cancelled": "quiet",
    "unknown": "caution",
}
_MAX_CHARACTERS = 400


def status_answer(status: JobStatus) -> Answer:
    """Show everything that is known about a job."""
    facts: list[tuple[str, StyledText]] = [
        ("job", f"{status.handle} {shorten(status.name, _MAX_CHARACTERS)}"),
        ("state", format_state(status)),
        ("GPUs", format_gpus(status)),
        ("restarts", str(status.restarts)),
    ]
    if status.exit_status is not None:
        facts.append(("exit status", str(status.exit_status)))
    if status.nodes:
        facts.append(("nodes", ", ".join(status.nodes)))
    if status.done is not None:
        facts.append(("done", format_share(status.done)))
    if status.samples_per_second is not None:
        rate = format_per_second(status.samples_per_second)
        facts.append(("samples/s", f"{rate} ({status.speed_basis}{_describe_expected(status)})"))
    if status.mfu is not None:
        facts.append(("MFU", format_share(status.mfu)))
    if status.loss is not None:
        facts.append(("loss", f"{status.loss:.4g}"))
    if status.verdict:
        facts.append(("verdict", status.verdict))
    if status.checkpoints is not None:
        facts.append(("checkpoints", describe_checkpoints(status.checkpoints)))
    by_speed = f" (at the {status.speed_basis} speed)" if status.speed_basis else ""
    if status.elapsed_seconds is not None:
        facts.append(("elapsed", format_elapsed(status)))
    facts += [
        (name.replace("_", " "), format_time(timestamp) + by_speed * (name == "expected_end"))
        for name in ("submitted", "started", "expected_end", "ended", "deadline")
        if (timestamp := getattr(status, name)) is not None
    ]
    if status.command:
        facts.append(("command", shorten(shlex.join(status.command), _MAX_CHARACTERS)))
    facts += [("log", log) for log in status.logs]
    return Answer([DefinitionList(facts)], status.document(), verb="status")


def _describe_expected(status: JobStatus) -> str:
    """Return the interval that was predicted at the submission."""
    expected = status.expected_speed
    if expected is None:
        return ""
    return f"; predicted {format_per_second(expected.low)} to {format_per_second(expected.high)}"


def describe_checkpoints(advice: Mapping[str, Any]) -> str:
    """Describe the job's own checkpoint interval and the best one."""
    best, saving, restart = (
        format_rough_seconds(advice[name])
        for name in ("checkpoint_every_seconds", "checkpoint_seconds", "restart_seconds")
    )
    own = advice["own_checkpoint_every_seconds"]
    if own is None:
        runs = units.format_count(advice["past_runs"], "past run")
        return f"none yet; every {best} would be best (one took {saving} in {runs}, a restart {restart})"
    every = format_rough_seconds(own)
    return f"every {every}; every {best} would be best (one takes {saving}, a restart {restart})"


def jobs_answer(statuses: Sequence[JobStatus]) -> Answer:
    """Return several statuses, for JSON only."""
    jobs = [status.document() for status in statuses]
    return Answer([], {"jobs": jobs}, verb="wait", rows=jobs)


def describe_end(status: JobStatus) -> str:
    """Describe how a job ended."""
    how = f" with exit status {status.exit_status}" if status.exit_status else ""
    why = f": {status.reason}" if status.reason else ""
    return f"{status.handle} {_ENDS[status.state]}{how}{why}."


_ENDS: dict[JobState, str] = {
    "succeeded": "succeeded",
    "failed": "failed",
    "cancelled": "was cancelled",
    "lost": "was lost",
}


def format_state(status: JobStatus) -> Text:
    """Format the state with its reason, if there is one."""
    why = f": {status.reason}" if status.reason else ""
    state = "canceling" if status.canceling else status.state
    return Text(f"{state}{why}", _TONES.get(status.state, "plain"))


def shorten(text: str, max_characters: int) -> str:
    """Return the text as one line, cut off if it is too long."""
    line = " ".join(text.split())
    return line if len(line) <= max_characters else f"{line[:max_characters]}…"


def format_gpus(status: JobStatus) -> str:
    """Format the GPUs that a job has or wants."""
    return format_count(status.gpus, status.min_gpus, status.max_gpus)


def format_count(gpus: int | None, min_gpus: int, max_gpus: int) -> str:
    """Format a number of GPUs, or the numbers that are wanted if there is none yet."""
    if gpus is not None:
        return str(gpus)
    return f"wants {min_gpus}" if min_gpus == max_gpus else f"wants {min_gpus} to {max_gpus}"


def format_elapsed(status: JobStatus) -> str:
    """Format the time since a job first got its GPUs, up to its end."""
    return formats.elapsed(status.elapsed_seconds)


def format_time(timestamp: float) -> str:
    """Format a time in the local time zone."""
    return f"{datetime.fromtimestamp(timestamp):%a %Y-%m-%d %H:%M}"
