"""The answer of `gpuyard watch`: the verdict on a running training, its cost, and its ranks."""

from dataclasses import asdict

from gpuyard.jobs.judged_run import JudgedRun
from gpuyard.jobs.verdict import Verdict
from gpuyard.report import formats
from gpuyard.report.answer import Answer, Column, Part, Sentence, Table
from gpuyard.units import (
    format_per_second,
    format_seconds,
    format_share,
)

_COLUMNS = (
    "rank", "host", Column("GPU", 2), "compute", "exchange", "input", Column("CPU wait", 1),
)  # fmt: skip
_MAX_ROWS = 16  # of ranks; the slowest are shown


def verdict_answer(run: JudgedRun, name: str) -> Answer:
    """Show the verdict first, then its cost, the speed, and the ranks."""
    verdict = run.verdict
    parts: list[Part] = [Sentence(verdict.sentence, "good" if verdict.normal else "bad")]
    parts += [Sentence(remark, "caution") for remark in run.remarks]
    parts.append(Sentence(_describe_speed(run)))
    parts.append(_create_table(verdict))
    document = {**run.document(), "ranks": [asdict(rank) for rank in verdict.ranks]}
    return Answer(parts, document, title=name, verb="watch")


def _describe_speed(run: JudgedRun) -> str:
    words = [f"A step takes {format_seconds(run.verdict.step_seconds)}"]
    if run.expected is not None:
        low, high = run.expected.low_seconds, run.expected.high_seconds
        words[0] += f" (predicted {format_seconds(low)} to {format_seconds(high)})"
    if run.samples_per_second is not None:
        words.append(f"{format_per_second(run.samples_per_second)} samples/s")
    if run.expected_samples_per_second is not None:
        slow, fast = (format_per_second(rate) for rate in run.expected_samples_per_second)
        words[-1] += f" (predicted {slow} to {fast})"
    if run.mfu is not None:
        words.append(f"MFU {format_share(run.mfu)}")
    return f"{', '.join(words)}."


def _create_table(verdict: Verdict) -> Table:
    slowest = sorted(verdict.ranks, key=lambda rank: -(rank.compute + rank.input))[:_MAX_ROWS]
    rows = [
        [
            str(rank.rank), rank.host, "" if rank.gpu is None else str(rank.gpu),
            formats.seconds(rank.compute), formats.seconds(rank.exchange),
            formats.seconds(rank.input), f"{rank.cpu_wait:.0%}",
        ]
        for rank in sorted(slowest, key=lambda rank: rank.rank)
    ]  # fmt: skip
    shown = "" if len(verdict.ranks) <= _MAX_ROWS else f", the slowest of {len(verdict.ranks)}"
    return Table(f"One step of each rank{shown}", list(_COLUMNS), rows)
