"""Compare predictions with every published table that ships with gpuyard, or with a table of large-model runs."""

from collections.abc import Sequence
from pathlib import Path

from gpuyard.api.result import Result, Row
from gpuyard.errors import UserMistake


def validate(
    table: str | None = None,
    points: str | Sequence[int] = (),
    *,
    rows: str | Path | None = None,
    memory: str | Path | None = None,
) -> Result[Row]:
    """Return the errors of all tables or of one, and what `points` measured multi-GPU figures are worth.

    With `rows`, judge that CSV table of large-model runs instead; `memory` is a table of measured GPU memory.
    """
    counts = _parse_points(points) if isinstance(points, str) else list(points)
    if rows is not None:
        from gpuyard.predictor.large.validation import judge_table
        from gpuyard.report.answers.large_validation import table_scores_answer

        if counts not in ([], [0], [1]):
            raise UserMistake("--points with --rows must be 0 or 1")
        file = Path(rows)
        scores = judge_table(file, None if memory is None else Path(memory), sum(counts))
        return Result(table_scores_answer(scores, file.name))
    if memory is not None:
        raise UserMistake("--memory judges the memory of large models: add --rows FILE")
    from gpuyard.predictor.validation import report
    from gpuyard.report.answers.validation import validation_answer

    return Result(validation_answer(report(table, counts)))


def _parse_points(text: str) -> list[int]:
    counts = text.split(",")
    if not all(count.strip().isdecimal() and len(count.strip()) == 1 for count in counts):
        raise UserMistake(f"--points must be whole numbers from 0 to 9, e.g. 0,1,2; got {text!r}")
    return [int(count) for count in counts]
