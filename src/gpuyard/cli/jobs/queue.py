"""`gpuyard queue`: all jobs, and the policy by which they share GPUs."""

import time
from typing import Annotated

import typer

from gpuyard.cli.output import JsonOption, show
from gpuyard.errors import NoAnswer, UserMistake

_OFTEN_SECONDS = 10.0  # Slurm's controller is everybody's


def queue(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[explain HANDLE | policy [NAME] | rebalance]",
            help="Why a job waits; the queue's policy, or a new one; or resize jobs that run on Slurm.",
        ),
    ] = None,
    *,
    all_: Annotated[bool, typer.Option("--all", help="Also show jobs that have ended.")] = False,
    every: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="With a policy: how often running jobs may be resized (default: as the policy has it). "
            "With rebalance: again and again, until no job is left.",
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
        bool, typer.Option("--dry-run", help="With rebalance: only say what it would do.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Show your jobs that wait or run, of every engine that can be asked.

    `gpuyard queue explain HANDLE` says why a job waits, when it will start and how likely it meets its deadline;
    `gpuyard queue policy [NAME]` shows or sets by which policy jobs share GPUs; `gpuyard queue rebalance` grows and
    shrinks jobs that run on Slurm by it. On this machine that happens by itself.

    Example: gpuyard queue explain local://17
    """
    words = what or []
    tuned = every is not None or explore is not None
    if words == ["rebalance"] and not all_ and explore is None:
        _rebalance(every, dry_run=dry_run, json_output=json_output)
    elif dry_run:
        raise UserMistake("--dry-run goes with: gpuyard queue rebalance")
    elif not words and not tuned:
        _list(all_=all_, json_output=json_output)
    elif words[:1] == ["explain"] and len(words) == 2 and not all_ and not tuned:
        _explain(words[1], json_output=json_output)
    elif words[:1] == ["policy"] and len(words) <= 2 and not all_:
        _policy(words[1] if len(words) == 2 else None, every, explore, json_output=json_output)
    else:
        raise UserMistake(
            "write it like: gpuyard queue, gpuyard queue --all, gpuyard queue explain HANDLE, "
            "gpuyard queue policy min-time, or gpuyard queue rebalance"
        )


def _list(*, all_: bool, json_output: bool) -> None:
    from gpuyard.errors import GpuyardError
    from gpuyard.jobs.engines.base import Availability, available_engines
    from gpuyard.report.answers.jobs.queue import queue_answer

    jobs, engines = [], []
    for engine, availability in available_engines():
        found = availability
        if availability.ok or availability.down:
            try:
                jobs += [job for job in engine.list() if all_ or not job.final]
            except GpuyardError as error:
                found = Availability(False, str(error))
        engines.append((engine.name, found))
    show(queue_answer(jobs, engines, all_=all_), json_output=json_output)


def _explain(handle: str, *, json_output: bool) -> None:
    from gpuyard.jobs.engines.base import engine
    from gpuyard.jobs.job import Handle
    from gpuyard.report.answers.jobs.queue import explain_answer

    named = Handle.parse(handle)
    found = engine(named.engine)
    explanation = found.explain(named)
    show(explain_answer(found.status(named), explanation), json_output=json_output)


def _rebalance(every: str | None, *, dry_run: bool, json_output: bool) -> None:
    from gpuyard.jobs.engines.local.engine import LocalEngine
    from gpuyard.jobs.engines.slurm.rebalancing import rebalance
    from gpuyard.report.answers.jobs.queue import rebalance_answer
    from gpuyard.report.terminal import say
    from gpuyard.units import parse_seconds

    seconds = None if every is None else parse_seconds(every)
    if seconds is not None and (seconds < _OFTEN_SECONDS or json_output):
        raise UserMistake(
            f"--every takes {_OFTEN_SECONDS:.0f}s or more with rebalance, and prints no JSON"
        )
    while True:
        try:
            found = rebalance(LocalEngine().policy(), dry_run=dry_run)
        except NoAnswer as silent:
            if seconds is None:
                raise
            say(f"gpuyard: {silent}")
            time.sleep(seconds)
            continue
        if seconds is None or found.resizes or not found.open_jobs:
            show(rebalance_answer(found, dry_run=dry_run), json_output=json_output)
        if seconds is None or not found.open_jobs:
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
            f"{option} goes with a policy, like: gpuyard queue policy explore-then-focus {option} 5min"
        )
    show(policy_answer(local.policy()), json_output=json_output)
