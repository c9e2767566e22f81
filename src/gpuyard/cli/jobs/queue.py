"""`gpuyard queue`: all jobs, and the policy by which they share GPUs."""

from typing import Annotated

import typer

from gpuyard.cli.output import JsonOption, show
from gpuyard.errors import UserMistake


def queue(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[policy [NAME]]", help="The policy of the local queue, or a new one."
        ),
    ] = None,
    *,
    all_: Annotated[bool, typer.Option("--all", help="Also those that have ended.")] = False,
    json_output: JsonOption = False,
) -> None:
    """Show your jobs that wait or run, of every engine that can be asked; or show and set the local queue's policy.

    Example: gpuyard queue --all
    """
    words = what or []
    if not words:
        _list(all_=all_, json_output=json_output)
    elif words[0] == "policy" and len(words) <= 2 and not all_:
        _policy(words[1] if len(words) == 2 else None, json_output=json_output)
    else:
        raise UserMistake(
            "write it like: gpuyard queue, gpuyard queue --all, or gpuyard queue policy min-time"
        )


def _list(*, all_: bool, json_output: bool) -> None:
    from gpuyard.errors import GpuyardError
    from gpuyard.jobs.engines.base import Availability, available_engines
    from gpuyard.report.answers.jobs.queue import queue_answer

    jobs, engines = [], []
    for engine, availability in available_engines():
        found = availability
        if availability.ok:
            try:
                jobs += [job for job in engine.list() if all_ or not job.final]
            except GpuyardError as error:
                found = Availability(False, str(error))
        engines.append((engine.name, found))
    show(queue_answer(jobs, engines, all_=all_), json_output=json_output)


def _policy(name: str | None, *, json_output: bool) -> None:
    from gpuyard.jobs.engines.local.engine import LocalEngine
    from gpuyard.report.answers.jobs.queue import policy_answer

    local = LocalEngine()
    if name is not None:
        local.set_policy(name)
    show(policy_answer(local.policy()), json_output=json_output)
