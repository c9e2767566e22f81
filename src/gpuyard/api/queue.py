"""The queue of jobs on all engines: list them, explain one, and show or set how they share GPUs."""

import math
import time
from collections.abc import Iterator

from gpuyard.api.result import Result, Row, wrap
from gpuyard.errors import GpuyardError, NoResponse, UserMistake
from gpuyard.report.answer import Answer

_MIN_KEEP_SECONDS = 86400.0
_MIN_PERIOD_SECONDS = 10.0  # all users share Slurm's controller
_FOREVER = "forever"


def queue(*, all_: bool = False, last: int | None = None, everyone: bool = False) -> Result[Row]:
    """List the open jobs of all engines that can be used here, and the ended ones that you request.

    With `everyone`, list the open jobs of all users on this machine instead.
    """
    if everyone:
        if all_ or last is not None:
            raise UserMistake("--everyone shows only open jobs, so use it without --all and --last")
        return _list_everyone()
    from gpuyard.jobs.engines.base import Availability, check_engines, load_engine, select_newest
    from gpuyard.jobs.job import JobStatus
    from gpuyard.report.answers.jobs.queue import queue_answer

    if all_ and last is not None:
        raise UserMistake("use either --all or --last")
    ended = None if all_ else last or 0
    jobs: list[JobStatus] = []
    engines: list[tuple[str, Availability]] = []
    silent: list[str] = []
    for name, availability in check_engines():
        if availability.ok or availability.down:
            try:
                jobs += load_engine(name).list(ended)
            except GpuyardError as error:
                silent.append(name)
                engines.append((name, Availability(False, str(error))))
                continue
        engines.append((name, availability))
    newest = select_newest(jobs, ended)
    return _list_jobs(queue_answer(newest, engines, silent, includes_ended=ended != 0))


def _list_everyone() -> Result[Row]:
    from gpuyard.report.answers.jobs.queue import everyone_answer
    from gpuyard.share.client import open_reader
    from gpuyard.share.clock import Clock
    from gpuyard.share.views import open_jobs_document

    client = open_reader()
    client.config.check_scheduler("squeue")
    document = open_jobs_document(client.state(), Clock())
    client.close()
    return _list_jobs(everyone_answer(document))


def _list_jobs(answer: Answer) -> Result[Row]:
    return Result(answer, wrap(answer.document["jobs"]))


def status(handle: str) -> Result[Row]:
    """Show everything that is known about a job, named by its handle or its number."""
    from gpuyard.jobs.engines.base import load_engine
    from gpuyard.jobs.find_job import find_handle
    from gpuyard.jobs.job_wait import get_status
    from gpuyard.report.answers.jobs.status import status_answer

    parsed = find_handle(handle)
    return Result(status_answer(get_status(load_engine(parsed.engine), parsed)))


def explain(handle: str) -> Result[Row]:
    """Explain why a job waits, when it will start, and how likely it is to meet its deadline."""
    from gpuyard.jobs.engines.base import load_engine
    from gpuyard.jobs.find_job import find_handle
    from gpuyard.report.answers.jobs.queue import explain_answer

    parsed = find_handle(handle)
    engine = load_engine(parsed.engine)
    explanation = engine.explain(parsed)
    return Result(explain_answer(engine.status(parsed), explanation))


def policy(
    name: str | None = None, *, every: str | None = None, explore: str | None = None
) -> Result[Row]:
    """Show the policy by which jobs share GPUs, or set it."""
    from gpuyard.jobs.engines.local.engine import LocalEngine
    from gpuyard.jobs.engines.slurm.availability import check_availability
    from gpuyard.report.answers.jobs.queue import policy_answer
    from gpuyard.share.config import is_set_up, share_directory
    from gpuyard.units import parse_seconds

    local = LocalEngine()
    if name is not None:
        seconds = [None if text is None else parse_seconds(text) for text in (every, explore)]
        local.set_policy(name, *seconds)
    elif every is not None or explore is not None:
        option = "--every" if every is not None else "--explore"
        raise UserMistake(
            f"{option} needs a policy, like: gpuyard queue policy explore-then-focus {option} 5min"
        )
    slurm = check_availability()
    return Result(
        policy_answer(
            local.policy(),
            local.own_policy(),
            is_shared=is_set_up(share_directory()),
            has_slurm=slurm.ok or slurm.down,
        )
    )


def keep(period: str, *, dry_run: bool = False) -> Result[Row]:
    """Set for how long ended jobs are kept from now on: a time like "30d", or "forever"."""
    from gpuyard.jobs.engines.local.engine import LocalEngine
    from gpuyard.report.answers.jobs.queue import prune_answer
    from gpuyard.units import parse_seconds

    seconds = math.inf if period == _FOREVER else parse_seconds(period)
    if seconds < _MIN_KEEP_SECONDS:
        raise UserMistake(f"ended jobs must be kept for 1 day or more, or {_FOREVER}")
    if not dry_run:
        LocalEngine().set_keep_seconds(seconds)
    return Result(prune_answer(None, seconds, dry_run=dry_run))


def prune(*, dry_run: bool = False) -> Result[Row]:
    """Delete the records of jobs that ended longer ago than they are kept."""
    from gpuyard.jobs.engines.base import check_engines, load_engine
    from gpuyard.jobs.engines.local.engine import LocalEngine
    from gpuyard.report.answers.jobs.queue import prune_answer

    seconds = LocalEngine().keep_seconds()
    before = time.time() - seconds
    names = [name for name, availability in check_engines() if availability.ok]
    pruned = sum(load_engine(name).prune(before, dry_run=dry_run) for name in names)
    return Result(prune_answer(pruned, seconds, dry_run=dry_run))


def rebalance(*, dry_run: bool = False) -> Result[Row]:
    """Grow and shrink your running Slurm jobs by the policy of this machine."""
    from gpuyard.jobs.engines.local.engine import LocalEngine
    from gpuyard.jobs.engines.slurm.rebalancing import rebalance as resize_jobs
    from gpuyard.report.answers.jobs.queue import rebalance_answer

    resized = resize_jobs(LocalEngine().policy(), dry_run=dry_run)
    return Result(rebalance_answer(resized, dry_run=dry_run))


def rebalance_repeatedly(
    every: str, *, dry_run: bool = False
) -> Iterator[Result[Row] | NoResponse]:
    """Rebalance until no job is left; yield what each resize did, and the error if Slurm does not respond."""
    from gpuyard.units import parse_seconds

    seconds = parse_seconds(every)
    if seconds < _MIN_PERIOD_SECONDS:
        raise UserMistake(f"--every must be {_MIN_PERIOD_SECONDS:.0f}s or more with rebalance")
    while True:
        try:
            result = rebalance(dry_run=dry_run)
        except NoResponse as silent:
            yield silent
        else:
            if result.resizes or not result.open_jobs:
                yield result
            if not result.open_jobs:
                return
        time.sleep(seconds)
