"""Runs the plan of any bench: prints it, or measures, stores, and prints the record."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from gpuyard.cli.output import progress_bar, show, show_if_not_stored

if TYPE_CHECKING:
    from gpuyard.measure.bench import AnyPlan
    from gpuyard.measure.kind import AnyRecord
    from gpuyard.measure.progress import ProgressCallback
    from gpuyard.measure.store import ResultsStore


def results_store() -> "ResultsStore":
    """Return this user's results store."""
    from gpuyard import files
    from gpuyard.measure.store import ResultsStore

    return ResultsStore(files.results_file())


def run_bench(
    plan: "AnyPlan",
    run: "Callable[[AnyPlan, ProgressCallback], AnyRecord]",
    *,
    dry_run: bool,
    json_output: bool,
    timed: bool = True,
) -> "AnyRecord | None":
    """Run a plan, store and print its record, and return it; a dry run prints the plan and returns None."""
    from gpuyard.measure.bench import measure
    from gpuyard.report.answers.results import plan_answer, record_answer

    if dry_run:
        show(plan_answer(plan), json_output=json_output)
        return None
    with show_if_not_stored(json_output=json_output), progress_bar() as on_progress:
        record = measure(plan, run, results_store(), on_progress, timed=timed)
    show(record_answer(record), json_output=json_output)
    return record
