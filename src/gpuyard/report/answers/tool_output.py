"""The answer of `gpuyard bench collectives --from`: a verdict, the readings, and causes of slow ones."""

from collections.abc import Sequence

from gpuyard.measure.tool_output.judge import Judgment
from gpuyard.measure.tool_output.readings import ToolOutput
from gpuyard.report.answer import Answer, Bullets, Column, Part, Sentence, Table
from gpuyard.specs import Cluster
from gpuyard.table import Tone
from gpuyard.units import format_byte_rate, format_share

_TONES: dict[str, Tone] = {"slow": "caution", "wrong": "bad", "normal": "good"}


def tool_output_answer(
    output: ToolOutput, cluster: Cluster | None, judgments: Sequence[Judgment]
) -> Answer:
    """Show the verdict first, then every reading, then causes."""
    parts: list[Part] = [_summarize(judgments, named=cluster is not None)]
    measured = [judgment for judgment in judgments if judgment.measured is not None]
    if measured:
        on = f" on {cluster.name}" if cluster else ""
        columns = ("reading", "measured", "expected", Column("90% interval", 1), "verdict")
        parts.append(Table(f"{output.source}{on}", columns, [_format_row(j) for j in measured]))
    for judgment in judgments:
        if judgment.causes:
            parts.append(Sentence(f"{judgment.subject}:", "caution"))
            parts.append(Bullets([f"{c.why}; next: {c.next_step}" for c in judgment.causes]))
    bases = sorted({judgment.basis for judgment in judgments if judgment.basis})
    if bases:
        parts.append(Sentence(f"Expected rates are those of {'; '.join(bases)}."))
    if cluster is not None and cluster.note:
        parts.append(Sentence(cluster.note))
    return Answer(parts, _document(output, cluster, judgments), output.source, "bench collectives")


def _summarize(judgments: Sequence[Judgment], *, named: bool) -> Sentence:
    bad = [judgment for judgment in judgments if judgment.verdict in ("slow", "wrong")]
    if not bad:
        judged = [judgment for judgment in judgments if judgment.verdict != "not judged"]
        if not judged:
            last = judgments[-1]
            rate = "" if last.measured is None else f" reaches {_describe(last)}"
            hint = "" if named else " Name the machine with --on, e.g. --on 8xh100."
            return Sentence(f"Not judged: {last.subject}{rate}.{hint}", "caution")
        last = judged[-1]
        if last.measured is None:
            return Sentence("Normal: no sign of a fault.", "good")
        verdict = "Normal" if last.verdict == "normal" else "Faster than expected"
        return Sentence(f"{verdict}: {last.subject} reaches {_describe(last)}.", "good")
    worst = max(bad, key=lambda j: (bool(j.causes), j.verdict == "wrong"))
    if worst.verdict == "wrong":
        cause = worst.causes[0].why if worst.causes else "some results have wrong values"
        return Sentence(f"Not valid: {worst.subject}: {cause}.", "bad")
    likely = f" Likely: {worst.causes[0].why}." if worst.causes else ""
    reached = (
        f" reaches {_describe(worst)}" if worst.measured is not None else " is not as it should be"
    )
    return Sentence(f"Slow: {worst.subject}{reached}.{likely}", "caution")


def _describe(judgment: Judgment) -> str:
    rate = format_byte_rate(judgment.measured or 0.0)
    if judgment.expected is None:
        return rate
    if judgment.low is None or judgment.high is None:
        return f"{rate}; {format_byte_rate(judgment.expected)} expected"
    return (
        f"{rate}, {format_share(judgment.ratio or 0.0)} of the expected "
        f"{format_byte_rate(judgment.expected)}"
    )


def _format_row(judgment: Judgment) -> list[str]:
    interval = (
        f"{format_byte_rate(judgment.low)} – {format_byte_rate(judgment.high)}"
        if judgment.low is not None and judgment.high is not None
        else ""
    )
    return [
        judgment.subject,
        format_byte_rate(judgment.measured or 0.0),
        format_byte_rate(judgment.expected) if judgment.expected else "",
        interval,
        judgment.verdict,
    ]


def _document(
    output: ToolOutput, cluster: Cluster | None, judgments: Sequence[Judgment]
) -> dict[str, object]:
    verdicts = {judgment.verdict for judgment in judgments}
    order = ("wrong", "slow", "fast", "normal", "not judged")
    return {
        "file": output.source,
        "machine": cluster.name if cluster else None,
        "verdict": next(verdict for verdict in order if verdict in verdicts),
        "readings": [
            {
                "reading": judgment.subject,
                "verdict": judgment.verdict,
                "bytes_per_second": judgment.measured,
                "expected_bytes_per_second": judgment.expected,
                "low_bytes_per_second": judgment.low,
                "high_bytes_per_second": judgment.high,
                "ratio": judgment.ratio,
                "basis": judgment.basis,
                "causes": [cause.model_dump() for cause in judgment.causes],
            }
            for judgment in judgments
        ],
    }
