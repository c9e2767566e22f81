"""Fetch the results of a run: the files in its folder that it created or changed."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpuyard.deploy import StatusCallback
from gpuyard.deploy.access.fetch import FetchPlan, list_source, run_fetch
from gpuyard.deploy.access.listing import Entry, read_entry
from gpuyard.deploy.run.plan import RunPlan


@dataclass(frozen=True)
class FetchedResults:
    """Files that were fetched, and files that changed both here and there, of which this machine's stay."""

    fetched: tuple[tuple[str, int], ...] = ()
    kept: tuple[str, ...] = ()


def list_folder(plan: RunPlan) -> Mapping[str, Entry]:
    """List the run's folder on the head."""
    return list_source(plan.loaded, _plan_fetch(plan))


def fetch_results(
    plan: RunPlan, before: Mapping[str, Entry], report: StatusCallback
) -> FetchedResults:
    """Copy everything that differs from the listing before the run to the folder on this machine.

    Files that an earlier run left there are not results of this one, so they are not fetched.
    """
    after = list_folder(plan)
    changed = [path for path, entry in after.items() if _differ(entry, before.get(path))]
    kept = [path for path in changed if _is_changed_here(plan, path, before.get(path))]
    only = frozenset(changed).difference(kept)
    if not only:
        return FetchedResults(kept=tuple(kept))
    result = run_fetch(plan.loaded, replace(_plan_fetch(plan), only=only), report)
    return FetchedResults(result.copied, (*kept, *result.kept))


def _plan_fetch(plan: RunPlan) -> FetchPlan:
    copy = plan.copy
    return FetchPlan(copy.destination, copy.folder, copy.head, copy.excluded_patterns)


def _differ(entry: Entry, other: Entry | None) -> bool:
    return other is None or entry.identity != other.identity


def _is_changed_here(plan: RunPlan, path: str, sent: Entry | None) -> bool:
    """Return whether a file or link of this machine differs from what was sent."""
    here = read_entry(plan.copy.folder / path)
    return here is not None and here.kind != "d" and _differ(here, sent)
