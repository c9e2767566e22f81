"""`gpuyard queue`: list jobs, explain them, and show or set the policy."""

import math
import time
from typing import Annotated

import typer

from gpuyard.cli.jobs.queue_view import show_queue
from gpuyard.cli.output import JsonOption, show
from gpuyard.errors import NoResponse, UserMistake

_MIN_KEEP_SECONDS = 86400.0
_MIN_PERIOD_SECONDS = 10.0  # all users share Slurm's controller


def queue(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[explain HANDLE | policy [NAME] | rebalance]",
            help="Explain a job, show or set the policy, or resize running Slurm jobs.",
        ),
    ] = None,
    *,
    all_: Annotated[bool, typer.Option("--all", help="Also show jobs that have ended.")] = False,
    last: Annotated[
        int | None,
        typer.Option("--last", metavar="N", min=1, help="Also show the N jobs that ended last."),
    ] = None,
    everyone: Annotated[
        bool, typer.Option("--everyone", help="Show the open jobs of all users of this machine.")
    ] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete the records of jobs that ended long ago.")
    ] = False,
    keep: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Time for which ended jobs are kept from now on, like 30d, or `forever` (default: 90 days).",
        ),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Time between resizes of running jobs, with a policy (default: as the policy defines). "
            "With rebalance: time between repetitions, until no job is left.",
        ),
    ] = None,
    explore: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="With explore-then-focus: GPU time that each trial gets first (default: 1h).",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="With rebalance or --prune: only show what it would do."),
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Show your waiting and running jobs on all available engines.

    `gpuyard queue explain HANDLE` shows why a job waits, when it will start, and how likely it is to meet its deadline.
    `gpuyard queue policy [NAME]` shows or sets the policy by which jobs share GPUs. `gpuyard queue rebalance` grows and
    shrinks running Slurm jobs by this policy; on this machine, that happens automatically.

    Example: gpuyard queue explain local://17
    """
    words = what or []
    has_policy_option = every is not None or explore is not None
    has_list_option = all_ or last is not None or everyone
    if (prune or keep is not None) and not (words or has_list_option or has_policy_option):
        _prune(keep, prune=prune, dry_run=dry_run, json_output=json_output)
    elif prune or keep is not None:
        raise UserMistake("--prune and --keep can be combined only with --dry-run and --json")
    elif words == ["rebalance"] and not has_list_option and explore is None:
        _rebalance(every, dry_run=dry_run, json_output=json_output)
    elif dry_run:
        raise UserMistake("--dry-run is only for gpuyard queue rebalance and gpuyard queue --prune")
    elif not words and not has_policy_option:
        show_queue(all_=all_, last=last, everyone=everyone, json_output=json_output)
    elif (
        words[:1] == ["explain"]
        and len(words) == 2
        and not has_list_option
        and not has_policy_option
    ):
        _explain(words[1], json_output=json_output)
    elif words[:1] == ["policy"] and len(words) <= 2 and not has_list_option:
        _policy(words[1] if len(words) == 2 else None, every, explore, json_output=json_output)
    else:
        raise UserMistake(
            "expected gpuyard queue, gpuyard queue --all, gpuyard queue explain HANDLE, "
            "gpuyard queue policy min-time, or gpuyard queue rebalance"
        )


def _prune(keep: str | None, *, prune: bool, dry_run: bool, json_output: bool) -> None:
    from gpuyard.jobs.engines.base import check_engines, load_engine
    from gpuyard.jobs.engines.local.engine import LocalEngine
    from gpuyard.report.answers.jobs.queue import prune_answer
    from gpuyard.units import parse_seconds

    local = LocalEngine()
    seconds = local.keep_seconds()
    if keep is not None:
        seconds = math.inf if keep == "forever" else parse_seconds(keep)
        if seconds < _MIN_KEEP_SECONDS:
            raise UserMistake("--keep must be 1 day or more, or forever")
        if not dry_run:
            local.set_keep_seconds(seconds)
    pruned = 0
    if prune:
        names = [name for name, availability in check_engines() if availability.ok]
        before = time.time() - seconds
        pruned = sum(load_engine(name).prune(before, dry_run=dry_run) for name in names)
    show(prune_answer(pruned if prune else None, seconds, dry_run=dry_run), json_output=json_output)


def _explain(text: str, *, json_output: bool) -> None:
    from gpuyard.jobs.engines.base import load_engine
    from gpuyard.jobs.job import Handle
    from gpuyard.report.answers.jobs.queue import explain_answer

    handle = Handle.parse(text)
    engine = load_engine(handle.engine)
    explanation = engine.explain(handle)
    show(explain_answer(engine.status(handle), explanation), json_output=json_output)


def _rebalance(every: str | None, *, dry_run: bool, json_output: bool) -> None:
    from gpuyard.jobs.engines.local.engine import LocalEngine
    from gpuyard.jobs.engines.slurm.rebalancing import rebalance
    from gpuyard.report.answers.jobs.queue import rebalance_answer
    from gpuyard.report.terminal import print_line
    from gpuyard.units import parse_seconds

    seconds = None if every is None else parse_seconds(every)
    if seconds is not None and json_output:
        raise UserMistake("--every cannot be combined with --json")
    if seconds is not None and seconds < _MIN_PERIOD_SECONDS:
        raise UserMistake(f"--every must be {_MIN_PERIOD_SECONDS:.0f}s or more with rebalance")
    while True:
        try:
            result = rebalance(LocalEngine().policy(), dry_run=dry_run)
        except NoResponse as silent:
            if seconds is None:
                raise
            print_line(f"gpuyard: {silent}")
            time.sleep(seconds)
            continue
        if seconds is None or result.resizes or not result.open_jobs:
            show(rebalance_answer(result, dry_run=dry_run), json_output=json_output)
        if seconds is None or not result.open_jobs:
            return
        time.sleep(seconds)


def _policy(name: str | None, every: str | None, explore: str | None, *, json_output: bool) -> None:
    from gpuyard.jobs.engines.local.engine import LocalEngine
    from gpuyard.report.answers.jobs.queue import policy_answer
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
    show(policy_answer(local.policy()), json_output=json_output)
