"""The steps that every bench has: plan → run → record → store → list, show, export.

A bench is a folder here. It has a plan, which is a value; a function that runs a plan and returns a record; and a
`ResultKind`, which defines how its records are listed, shown, and exported. `registry.py` lists the kinds.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from gpuyard.measure.kind import AnyRecord
from gpuyard.measure.machine_lock import hold_measurement_lock
from gpuyard.measure.progress import ProgressCallback
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.validity import OtherLoad, find_load_doubt
from gpuyard.table import Table


class BenchPlan(Protocol):
    """The planned measurements, checked as far as possible before a process starts."""

    @property
    def used_cores(self) -> Sequence[int]:
        """The cores of this machine that other programs must not use during the bench."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return the plan as JSON, for `--dry-run --json`."""
        ...

    def build_table(self) -> Table:
        """Build the table that `--dry-run` prints."""
        ...


AnyPlan = TypeVar("AnyPlan", bound=BenchPlan)


def measure(
    plan: AnyPlan,
    run: Callable[[AnyPlan, ProgressCallback], AnyRecord],
    store: ResultsStore,
    on_progress: ProgressCallback,
    *,
    timed: bool = True,
) -> AnyRecord:
    """Run a plan and store its record.

    A `timed` plan holds the measurement lock, and its record is marked as doubtful if other programs disturbed it.
    """
    if timed:
        other_load = OtherLoad(plan.used_cores)
        with hold_measurement_lock():
            other_load.begin()
            record = run(plan, on_progress)
            doubt = find_load_doubt(other_load.share())
        if doubt is not None:
            record = record.model_copy(update={"doubt": doubt})
    else:
        record = run(plan, on_progress)
    if record.is_new:
        store.add(record)
    return record
