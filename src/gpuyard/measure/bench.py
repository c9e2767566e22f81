"""The kit that every bench is made of: plan → run → record → store → list, show, export.

A bench is a folder here. It has a plan, which is a value; a function that runs a plan and gives a record; and a
`ResultKind`, which says how its records are listed, shown and exported. `registry.py` names the kinds.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from gpuyard.measure.credible import ForeignLoad, foreign_doubt
from gpuyard.measure.kind import AnyRecord
from gpuyard.measure.machine_lock import only_one_measures
from gpuyard.measure.progress import Tell
from gpuyard.measure.store import ResultsStore
from gpuyard.table import Table


class BenchPlan(Protocol):
    """What would be measured, checked as far as it can be before a process starts."""

    @property
    def used_cores(self) -> Sequence[int]:
        """Of this machine; others that use them disturb the bench."""
        ...

    def describe(self) -> dict[str, Any]:
        """For `--dry-run` and programs."""
        ...

    def listing(self) -> Table:
        """For `--dry-run` and people."""
        ...


AnyPlan = TypeVar("AnyPlan", bound=BenchPlan)


def measure(
    plan: AnyPlan, run: Callable[[AnyPlan, Tell], AnyRecord], store: ResultsStore, tell: Tell
) -> AnyRecord:
    """Run a plan, judge whether it was disturbed, and keep its record."""
    foreign = ForeignLoad(plan.used_cores)
    with only_one_measures():
        foreign.begin()
        record = run(plan, tell)
        doubt = foreign_doubt(foreign.share())
    if doubt is not None:
        record = record.model_copy(update={"doubt": doubt})
    if record.is_new:
        store.add(record)
    return record
