"""How far a job is."""

import shlex
from collections.abc import Sequence
from datetime import datetime

from gpuyard.jobs.job import JobState, JobStatus
from gpuyard.report.answer import Answer, DefinitionList, Text, Tone, Words
from gpuyard.units import format_per_second, format_share

_TONES: dict[JobState, Tone] = {
    "running": "accent",
    "succeeded": "good",
    "failed": "bad",
    "lost": "bad",
    "cancelled": "quiet",
    "unknown": "caution",
}
_LONGEST = 400


def status_answer(status: JobStatus) -> Answer:
    """One job, everything that is known of it."""
    facts: list[tuple[str, Words]] = [
        ("job", f"{status.handle} {one_line(status.name, _LONGEST)}"),
        ("state", state_text(status)),
        ("GPUs", gpus_text(status)),
        ("restarts", str(status.restarts)),
    ]
    if status.exit_status is not None:
        facts.append(("exit status", str(status.exit_status)))
    if status.nodes:
        facts.append(("nodes", ", ".join(status.nodes)))
    if status.done is not None:
        facts.append(("done", format_share(status.done)))
    if status.samples_per_second is not None:
        facts.append(("samples/s", format_per_second(status.samples_per_second)))
    if status.loss is not None:
        facts.append(("loss", f"{status.loss:.4g}"))
    facts += [
        (name.replace("_", " "), moment_text(moment))
        for name in ("submitted", "started", "expected_end", "ended", "deadline")
        if (moment := getattr(status, name)) is not None
    ]
    if status.command:
        facts.append(("command", one_line(shlex.join(status.command), _LONGEST)))
    facts += [("log", log) for log in status.logs]
    return Answer([DefinitionList(facts)], status.document(), verb="status")


def jobs_answer(found: Sequence[JobStatus]) -> Answer:
    """Several, for programs."""
    return Answer([], {"jobs": [status.document() for status in found]}, verb="wait")


def ended_sentence(status: JobStatus) -> str:
    """How one ended."""
    how = f" with exit status {status.exit_status}" if status.exit_status else ""
    why = f": {status.reason}" if status.reason else ""
    return f"{status.handle} {_ENDS[status.state]}{how}{why}."


_ENDS: dict[JobState, str] = {
    "succeeded": "succeeded",
    "failed": "failed",
    "cancelled": "was cancelled",
    "lost": "was lost",
}


def state_text(status: JobStatus) -> Text:
    """With why, where there is something to say."""
    why = f": {status.reason}" if status.reason else ""
    return Text(f"{status.state}{why}", _TONES.get(status.state, "plain"))


def one_line(text: str, longest: int) -> str:
    """Of what may be a page, the beginning."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[:longest]}…"


def gpus_text(status: JobStatus) -> str:
    """What it has, or what it wants."""
    if status.gpus is not None:
        return str(status.gpus)
    least, most = status.min_gpus, status.max_gpus
    return f"wants {least}" if least == most else f"wants {least} to {most}"


def moment_text(moment: float) -> str:
    """In the reader's time zone."""
    return f"{datetime.fromtimestamp(moment):%a %Y-%m-%d %H:%M}"
