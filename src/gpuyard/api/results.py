"""The stored measurements: `gy.results.list()` and `gy.results.show(id)`."""

import builtins
from typing import Any

from gpuyard.api.result import Result, Row, wrap
from gpuyard.errors import UserMistake
from gpuyard.files import results_file
from gpuyard.measure.registry import get_result_kind
from gpuyard.measure.store import ResultsStore
from gpuyard.report.answers.results import record_answer, records_answer


def list(kind: str = "train", *, workload: str | None = None) -> Result[Row]:
    """List the measurements of a kind, oldest first."""
    result_kind = get_result_kind(kind)
    if workload is not None and not result_kind.has_workload:
        raise UserMistake(f"results of kind {kind!r} have no workload; leave out --workload")
    records: builtins.list[Any] = ResultsStore(results_file()).records(result_kind.record, workload)
    answer = records_answer(result_kind, records)
    return Result(answer, wrap(answer.document))


def show(measurement_id: str) -> Result[Row]:
    """Show one measurement with its provenance; the first characters of its id suffice."""
    return Result(record_answer(ResultsStore(results_file()).get(measurement_id)))
