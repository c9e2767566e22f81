"""The answer of `gpuyard bench collectives --from`: a verdict, the readings, and causes of slow ones."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from gpuyard.measure.tool_output.judgment import Judgment
from gpuyard.measure.tool_output.readings import ToolOutput
from gpuyard.report.answer import Answer, Bullets, Column, Part, Sentence, Table
from gpuyard.specs import Cluster
from gpuyard.units import format_byte_rate, format_share

_OBSERVATIONS = ("unknown", "outlier", "slow-link")  # causes that repeat what was measured


def tool_output_answer(
    output: ToolOutput, cluster: Cluster | None, judgments: Sequence[Judgment]
) -> Answer:
    """Show the verdict first, then every reading, then causes."""
    parts: list[Part] = [_summarize(judgments)]
    parts += _create_tables(output, cluster, judgments)
    for judgment in judgments:
        if judgment.causes:
            parts.append(Sentence(f"{judgment.subject}:", "caution"))
            parts.append(Bullets([f"{c.why}; next: {c.next_step}" for c in judgment.causes]))
    bases = sorted({judgment.basis for judgment in judgments if judgment.basis})
    if bases:
        parts.append(Sentence(f"Expected rates are those of {'; '.join(bases)}."))
    if cluster is not None and cluster.note:
        parts.append(Sentence(cluster.note))
    document = _document(output, cluster, judgments)
    return Answer(parts, document, output.source, "bench collectives", rows="rows")


def _create_tables(
    output: ToolOutput, cluster: Cluster | None, judgments: Sequence[Judgment]
) -> Iterator[Table]:
    """Yield a table for each collective, whose rows are sizes, and one for all links."""
    measured = [judgment for judgment in judgments if judgment.measured is not None]
    source = f"{output.source}{f' on {cluster.name}' if cluster else ''}"

    def get_collective(judgment: Judgment) -> str:
        return "" if judgment.size_bytes is None else judgment.series

    for collective, group in groupby(measured, get_collective):
        rows = list(group)
        first = "size" if collective else "link"
        title = f"{collective}: {source}" if collective else source
        interval = [] if all(row.low is None for row in rows) else [_describe_interval(collective)]
        columns: list[Column | str] = [first, "measured", "expected", *interval, "verdict"]
        cells = [_format_row(row, collective=bool(collective)) for row in rows]
        yield Table(title, columns, [[*c[:3], *c[3 : 3 + len(interval)], c[4]] for c in cells])


def _describe_interval(collective: str) -> Column:
    return Column("90% interval" if collective else "normal range", 1)


def _summarize(judgments: Sequence[Judgment]) -> Sentence:
    bad = [judgment for judgment in judgments if judgment.verdict in ("slow", "wrong")]
    if not bad:
        judged = [judgment for judgment in judgments if judgment.verdict != "not judged"]
        if not judged:
            last = judgments[-1]
            rate = "" if last.measured is None else f" reaches {_describe(last)}"
            reason = f"; {last.reason}" if last.reason else ""
            return Sentence(f"Not judged: {last.subject}{rate}{reason}.", "caution")
        last = judged[-1]
        if last.measured is None:
            return Sentence("Normal: no sign of a fault.", "good")
        verdict = "Normal" if last.verdict == "normal" else "Faster than expected"
        return Sentence(f"{verdict}: {last.subject} reaches {_describe(last)}.", "good")
    worst = max(bad, key=lambda j: (bool(j.causes), j.verdict == "wrong"))
    if worst.verdict == "wrong":
        cause = worst.causes[0].why if worst.causes else "some results have wrong values"
        return Sentence(f"Not valid: {worst.subject}: {cause}.", "bad")
    likely = ""
    if worst.causes:
        first, why = worst.causes[0].name, worst.causes[0].why
        likely = f" {why[0].upper()}{why[1:]}." if first in _OBSERVATIONS else f" Likely: {why}."
    reached = (
        f" reaches {_describe(worst)}" if worst.measured is not None else " is not as it should be"
    )
    return Sentence(f"Slow: {worst.subject}{reached}.{likely}", "caution")


def _describe(judgment: Judgment) -> str:
    rate = format_byte_rate(judgment.measured or 0.0)
    if judgment.expected is None or judgment.verdict == "not judged":
        return rate
    if judgment.low is None or judgment.high is None:
        return f"{rate}; {format_byte_rate(judgment.expected)} expected"
    interval = f"{format_byte_rate(judgment.low)} to {format_byte_rate(judgment.high)}"
    if judgment.is_vague:
        return f"{rate}; published machines of this kind span {interval}"
    if judgment.size_bytes is None:
        return f"{rate}; {interval} expected"
    return (
        f"{rate}, {format_share(judgment.ratio or 0.0)} of the expected "
        f"{format_byte_rate(judgment.expected)}"
    )


def _format_row(judgment: Judgment, *, collective: bool) -> list[str]:
    interval = (
        f"{format_byte_rate(judgment.low)} – {format_byte_rate(judgment.high)}"
        if judgment.low is not None and judgment.high is not None
        else ""
    )
    return [
        judgment.label if collective else judgment.subject,
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
        "rows": [
            {
                "reading": judgment.subject,
                "size_bytes": judgment.size_bytes,
                "busbw_bytes_per_second": judgment.measured,
                "expected_bytes_per_second": judgment.expected,
                "expected_low": judgment.low,
                "expected_high": judgment.high,
                "normal": None
                if judgment.verdict == "not judged"
                else judgment.verdict == "normal",
                "verdict": judgment.verdict,
                "reason": judgment.reason or None,
                "ratio": judgment.ratio,
                "basis": judgment.basis,
                "causes": [cause.model_dump() for cause in judgment.causes],
            }
            for judgment in judgments
        ],
    }
