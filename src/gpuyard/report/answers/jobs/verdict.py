"""The answer of `gpuyard watch`: the verdict on a running training, its ranks, and its drift."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from gpuyard.jobs.verdict import Drift, Expectation, Verdict
from gpuyard.report import formats
from gpuyard.report.answer import Answer, Column, Part, Sentence, Table
from gpuyard.reporting.ranks import RankWindow
from gpuyard.units import format_per_second, format_rough_seconds, format_seconds

_COLUMNS = (
    "rank", "host", Column("GPU", 2), "compute", "exchange", "input", Column("CPU wait", 1),
)  # fmt: skip
_MAX_ROWS = 16  # of ranks; the slowest are shown


def verdict_answer(
    verdict: Verdict,
    name: str,
    windows: Sequence[RankWindow],
    expected: Expectation | None = None,
    ideal_seconds: float | None = None,
) -> Answer:
    """Show the verdict first; `ideal_seconds` is a step at the GPUs' peak, for the MFU."""
    mfu = None if ideal_seconds is None else ideal_seconds / verdict.step_seconds
    rate = next(
        (w.samples / w.steps / verdict.step_seconds for w in reversed(windows) if w.samples), None
    )
    parts: list[Part] = [Sentence(verdict.sentence, "good" if verdict.normal else "bad")]
    if verdict.drift is not None:
        parts.append(Sentence(describe_drift(verdict.drift), "caution"))
    parts.append(Sentence(_describe_speed(verdict, rate, mfu, expected)))
    parts.append(_create_table(verdict))
    return Answer(parts, _create_document(verdict, rate, mfu, expected), title=name, verb="watch")


def describe_drift(drift: Drift) -> str:
    """Return e.g. "It was steady for 3 h, and is 12% slower since 14:05."."""
    since = f"{datetime.fromtimestamp(drift.since):%H:%M}"
    before = format_rough_seconds(drift.before_seconds)
    return f"It was steady for {before}, and is {drift.slowdown:.0%} slower since {since}."


def _describe_speed(
    verdict: Verdict, rate: float | None, mfu: float | None, expected: Expectation | None
) -> str:
    words = [f"A step takes {format_seconds(verdict.step_seconds)}"]
    if expected is not None:
        low, high = format_seconds(expected.low_seconds), format_seconds(expected.high_seconds)
        words[0] += f" (predicted {low} to {high})"
    if rate is not None:
        words.append(f"{format_per_second(rate)} samples/s")
    if mfu is not None:
        words.append(f"MFU {mfu:.0%}")
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


def _create_document(
    verdict: Verdict, rate: float | None, mfu: float | None, expected: Expectation | None
) -> dict[str, Any]:
    return {
        "normal": verdict.normal,
        "sentence": verdict.sentence,
        "step_seconds": verdict.step_seconds,
        "samples_per_second": rate,
        "mfu": mfu,
        "share_of_expected": verdict.share_of_expected,
        "expected_low_seconds": expected and expected.low_seconds,
        "expected_high_seconds": expected and expected.high_seconds,
        "causes": [asdict(cause) for cause in verdict.causes],
        "drift": verdict.drift and asdict(verdict.drift),
        "ranks": [asdict(rank) for rank in verdict.ranks],
    }
