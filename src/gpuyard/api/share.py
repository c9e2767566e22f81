"""The shared GPUs of this machine: who holds which, who used how many GPU-hours, and who broke the rules."""

import contextlib
import math
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gpuyard.errors import UserMistake
from gpuyard.units import parse_seconds

if TYPE_CHECKING:
    from gpuyard.api.result import Result, Row
    from gpuyard.share.client import Client
    from gpuyard.share.usage import Period


def who() -> "Result[Row]":
    """List the GPUs of this machine with their leases, and who waits; each row is a GPU."""
    from gpuyard.api.result import Result, wrap
    from gpuyard.report.answers.share.leases import who_answer
    from gpuyard.share.client import open_reader

    client = open_reader()
    document = read_share(client)
    client.close()
    return Result(who_answer(document), wrap(document["gpus"]))


def read_share(client: "Client") -> dict[str, Any]:
    """Return the document of `gpuyard who --json`: GPUs with leases and readings, the queue, and violations."""
    from gpuyard.share.cgroup import Cgroups
    from gpuyard.share.clock import Clock
    from gpuyard.share.config import share_directory
    from gpuyard.share.misuse import find_busy_gpus
    from gpuyard.share.ownership import find_conflict
    from gpuyard.share.views import describe_problems, read_gpus, who_document
    from gpuyard.share.violations import find_violations

    clock = Clock()
    readings = read_gpus(client)
    if client.config.scheduler == "slurm":
        from gpuyard.share.slurm.jobs import describe_jobs

        document = describe_jobs(client.config, readings)
        return {**document, "problems": describe_problems(document)}
    state = client.state()
    violations = find_violations(
        state.held, readings, clock.boot(), client.config.rules.idle_grace_seconds
    )
    isolated = Cgroups(share_directory()).lease_ids()
    document = who_document(client.config, state, clock, readings, violations, isolated=isolated)
    busy = find_busy_gpus(client.config, state.held, readings)
    for gpu in document["gpus"]:
        gpu["busy"] = busy.get(gpu["index"])
    if conflict := find_conflict(client.config):
        from gpuyard.share.slurm.jobs import describe_jobs

        others = describe_jobs(client.config, readings)
        for gpu, other in zip(document["gpus"], others["gpus"], strict=True):
            gpu["leases"] += other["leases"]
    return {**document, "problems": describe_problems(document), "conflict": conflict}


def usage(since: str | None = None, until: str | None = None) -> "Result[Row]":
    """Sum GPU-hours, utilization, and cloud cost by user, group, and project.

    `since` and `until` are days like "2026-11-19", which begin at midnight, or times ago like "30 days".
    """
    from gpuyard.api.result import Result, wrap
    from gpuyard.report.answers.share.use import usage_answer
    from gpuyard.share.client import open_reader
    from gpuyard.share.clock import Clock
    from gpuyard.share.usage import cloud_price, usage_document

    clock = Clock()
    period = parse_period(since, until, clock.wall())
    client = open_reader()
    leases = client.history(max(0.0, period.begin))
    document = usage_document(leases, clock, cloud_price(client.config), period)
    gpus = len(client.config.gpus)
    client.close()
    return Result(usage_answer({**document, "gpus": gpus}), wrap(document["leases"]))


def audit(
    *, warn: bool = False, stop_after: str | None = None, enforce: bool = False
) -> "Result[Row]":
    """Find processes that use GPUs without a lease, and idle leases; each row is a violation.

    With `warn`, their users are warned on their terminals; violations older than `stop_after` are stopped. `enforce` does
    what the rules of the server say. All three are for its admin.
    """
    from gpuyard.api.result import Result, wrap
    from gpuyard.report.answers.share.use import audit_answer
    from gpuyard.share.client import open_reader, owned_directory
    from gpuyard.share.clock import Clock
    from gpuyard.share.config import NOTHING, STOP, share_directory
    from gpuyard.share.views import read_gpus
    from gpuyard.share.violations import find_violations, stop_violations, warn_users

    directory = owned_directory() if warn or stop_after or enforce else share_directory()
    client = open_reader()
    rules = client.config.rules
    grace = parse_seconds(stop_after) if stop_after else None
    if enforce:
        warn = warn or rules.on_violation != NOTHING
        if grace is None and rules.on_violation == STOP:
            grace = rules.stop_after_seconds
    clock = Clock()
    readings = read_gpus(client)
    violations = find_violations(
        client.state().held, readings, clock.boot(), rules.idle_grace_seconds
    )
    warned = warn_users(violations) if warn else []
    stopped = [] if grace is None else stop_violations(client, directory, violations, grace, clock)
    readable = bool(readings) or any(gpu.fake for gpu in client.config.gpus)
    answer = audit_answer(violations, warned, stopped, readable=readable, guard=client.config.guard)
    client.close()
    return Result(answer, wrap(answer.document["violations"]))


def parse_period(since: str | None, until: str | None, now: float) -> "Period":
    """Return the part of the history between two days or times ago; it is open on the sides that are not given."""
    from gpuyard.share.usage import Period

    period = Period(
        _parse_past(since, now) if since else -math.inf,
        _parse_past(until, now) if until else math.inf,
    )
    if period.begin >= period.end:
        raise UserMistake(f"the period ends ({until}) before it begins ({since})")
    return period


def _parse_past(text: str, now: float) -> float:
    """Return seconds since 1970 for a day or a time ago."""
    with contextlib.suppress(ValueError):
        return datetime.fromisoformat(text.strip()).timestamp()
    return now - parse_seconds(text)
