"""What all benches do with a plan: show it, or run it, keep its record and show that."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from gpuyard.cli.output import progress_bar, show, shown_if_not_stored

if TYPE_CHECKING:
    from gpuyard.measure.bench import AnyPlan
    from gpuyard.measure.kind import AnyRecord
    from gpuyard.measure.progress import Tell
    from gpuyard.measure.store import ResultsStore
    from gpuyard.measure.training.matrix import Matrix, MatrixResult
    from gpuyard.measure.training.sweep import SweepEvent


def results_store() -> "ResultsStore":
    """This user's own."""
    from gpuyard import files
    from gpuyard.measure.store import ResultsStore

    return ResultsStore(files.results_file())


def run_bench(
    plan: "AnyPlan",
    run: "Callable[[AnyPlan, Tell], AnyRecord]",
    *,
    dry_run: bool,
    json_output: bool,
) -> "AnyRecord | None":
    """The record, which is kept and shown; None where only the plan is asked for."""
    from gpuyard.measure.bench import measure
    from gpuyard.report.answers.results import plan_answer, record_answer

    if dry_run:
        show(plan_answer(plan), json_output=json_output)
        return None
    with shown_if_not_stored(json_output=json_output), progress_bar() as tell:
        record = measure(plan, run, results_store(), tell)
    show(record_answer(record), json_output=json_output)
    return record


def run_with_bar(matrix: "Matrix", store: "ResultsStore", *, fresh: bool) -> "MatrixResult":
    """Measure what the store lacks, and say of each point how fast it was."""
    from dataclasses import replace

    from gpuyard.measure.training.matrix import run_matrix
    from gpuyard.units import format_per_second

    with progress_bar() as tell:

        def listen(event: "SweepEvent") -> None:
            m, line = event.measurement, ""
            if event.state == "finished" and m is not None:
                line = f"{event.progress.what}: {format_per_second(m.samples_per_second)} samples/s"
            elif event.state == "rejected" and m is not None:
                line = f"{event.progress.what}: rejected: {m.doubt}"
            tell(replace(event.progress, line=line))

        return run_matrix(matrix, store, on_event=listen, fresh=fresh)
