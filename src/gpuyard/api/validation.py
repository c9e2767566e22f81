"""Compare predictions with every published table that ships with gpuyard."""

from collections.abc import Sequence

from gpuyard.report.answer import Answer


def validate(table: str | None = None, points: Sequence[int] = ()) -> Answer:
    """Return the errors of all tables or of one, and what `points` measured multi-GPU figures are worth."""
    from gpuyard.predictor.validation import report
    from gpuyard.report.answers.validation import validation_answer

    return validation_answer(report(table, points))
