"""Shows how predictions of large models compare with a table of published runs."""

from gpuyard import units
from gpuyard.predictor.large.validation import Scores, TableScores
from gpuyard.report.answer import Answer, Column, Part, Sentence, Table

_COLUMNS = ("source", "rows", "median", Column("mean", 1), "90th", "inside", Column("bias", 2))
_MAX_SKIPPED = 8


def table_scores_answer(scores: TableScores, name: str) -> Answer:
    """Build the answer for one table."""
    lines = [_row(score) for score in scores.sources]
    if scores.overall is not None:
        lines.append(_row(scores.overall))
    parts: list[Part] = [Table(f"Errors of predicted throughput in {name}", list(_COLUMNS), lines)]
    choices = scores.choices
    if choices["groups"]:
        parts.append(
            Sentence(
                f"Choice of layout, {units.format_count(int(choices['groups']), 'group')}: the predicted best was measured "
                f"{choices['median_regret']:.1%} slower than the best one (median), {choices['p90_regret']:.1%} (90th)."
            )
        )
    memory = scores.memory
    if memory is not None and memory["rows"]:
        error = memory["median_abs_error"]
        median = "" if error is None else f"median error {error:.1%}; "
        parts.append(
            Sentence(
                f"Memory, {units.format_count(memory['rows'], 'row')}: {median}the verdict on "
                f"fitting is right for {memory['fits_right']:.1%}, and {memory['said_fits_but_oom']:.1%} were predicted to fit "
                "but ran out of memory."
            )
        )
    reasons = [f"row {s.row}: {s.reason}" for s in scores.skipped]
    reasons += [f"memory row {s['row']}: {s['reason']}" for s in (memory or {}).get("skipped", ())]
    if reasons:
        more = len(reasons) - _MAX_SKIPPED
        rest = f"; and {more} more" if more > 0 else ""
        shown = "; ".join(reasons[:_MAX_SKIPPED])
        parts.append(
            Sentence(
                f"Skipped {units.format_count(len(reasons), 'row')}: {shown}{rest}.", "caution"
            )
        )
    return Answer(parts, scores.as_json(), title=f"Large models: {name}", verb="validate")


def _row(score: Scores) -> list[str]:
    return [
        score.source,
        str(score.rows),
        f"{score.median_abs_error:.1%}",
        f"{score.mean_abs_error:.1%}",
        f"{score.p90_abs_error:.1%}",
        f"{score.inside_interval:.0%}",
        f"{score.bias:+.1%}",
    ]
