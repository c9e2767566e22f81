"""Answers of the `gpuyard deploy` commands: plan, up, verify, status, down, sync, fetch, and cost."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpuyard.deploy.access.fetch import FetchResult
from gpuyard.deploy.access.sync import CopyResult
from gpuyard.deploy.ansible.run import PlayRecap
from gpuyard.deploy.cost import DeploymentCost
from gpuyard.deploy.deployment import DeploymentPlan, LoadedDeployment
from gpuyard.deploy.state import Host
from gpuyard.deploy.terraform.run import Changes
from gpuyard.deploy.verify import CheckResult, Verification
from gpuyard.economics.billing import HOURS_PER_MONTH
from gpuyard.report.answer import Answer, Column, Part, Sentence, Table, Text
from gpuyard.units import format_bytes, format_duration, format_usd, format_watts

_MAX_FILES = 20


def plan_answer(planned: DeploymentPlan) -> Answer:
    rows, changed = planned.machines(), planned.changed_machines()
    table = Table(
        planned.deployment.name,
        ("machine", Column("address", drop=1), "roles"),
        [(name, address or "not created yet", roles) for name, address, roles in rows],
    )
    parts: list[Part] = [
        table,
        Sentence(f"Machines and networks: {planned.changes}."),
        *_describe_changed_machines(changed),
        Sentence(_describe_price(planned.usd_per_hour)),
        *_describe_ttl(planned),
        *(
            Sentence(f"{name} is unreachable: {reason}. `up` would fail there.", "bad")
            for name, reason in planned.unreachable.items()
        ),
        *(Sentence(note, "quiet") for note in planned.notes),
    ]
    document = {
        "deployment": planned.deployment.name,
        "target": planned.deployment.target.kind,
        "machines": [
            {"name": name, "address": address or None, "roles": roles.split(", ") if roles else []}
            for name, address, roles in rows
        ],
        "changes": _count_changes(planned.changes),
        **changed,
        "usd_per_hour": planned.usd_per_hour,
        "ttl_seconds": planned.ttl_seconds,
        "unreachable": dict(planned.unreachable),
        "notes": list(planned.notes),
    }
    return Answer(parts, document, verb="deploy plan", rows="machines")


def _describe_changed_machines(changed: Mapping[str, Sequence[str]]) -> list[Sentence]:
    return [
        Sentence(f"Would be {verb}{consequence}: {', '.join(changed[verb])}.", "caution")
        for verb, consequence in (
            ("repaired", ", with their disks"),
            ("replaced", ", and their disks deleted"),
            ("removed", ", and their disks deleted"),
        )
        if changed[verb]
    ]


def _count_changes(changes: Changes) -> dict[str, int]:
    return {"added": changes.added, "changed": changes.changed, "removed": changes.removed}


def _describe_price(usd_per_hour: float | None) -> str:
    if usd_per_hour is None:
        return "The hourly price is unknown: the price list has no such machine in that region."
    return f"It costs {format_usd(usd_per_hour)} per hour."


def _describe_ttl(planned: DeploymentPlan) -> list[Sentence]:
    if planned.ttl_seconds is None:
        return []
    sentence = f"gpuyard removes it automatically {format_duration(planned.ttl_seconds)} after `up`"
    if planned.ttl_is_default:
        shared = planned.deployment.shared
        sentence += f", once no job runs and {shared} is copied to this machine"
    return [Sentence(f"{sentence}.")]


def up_answer(loaded: LoadedDeployment, changes: Changes, recap: PlayRecap, file: Path) -> Answer:
    rows = [
        (host.name, host.address, str(recap.changed.get(host.name, 0)))
        for host in loaded.state.hosts()
    ]
    table = Table(
        loaded.deployment.name, ("machine", Column("address", drop=1), "changed tasks"), rows
    )
    counts = f"{changes.added} created, {changes.changed} changed, {changes.removed} removed"
    parts: list[Part] = [
        table,
        Sentence(
            f"The deployment is up. Machines and networks: {counts}."
            if changes.any or recap.changes
            else "The deployment is up; nothing had to be changed.",
            "good",
        ),
        *(Sentence(f"{note}.", "caution") for note in recap.notes),
        Sentence(f"Check that it works: gpuyard deploy verify {file}"),
    ]
    document = {
        "deployment": loaded.deployment.name,
        "changes": _count_changes(changes),
        "changed_tasks": dict(recap.changed),
        "notes": list(recap.notes),
        "hosts": [_describe_host(host) for host in loaded.state.hosts()],
    }
    return Answer(parts, document, verb="deploy up", rows="hosts")


def verify_answer(verdict: Verification) -> Answer:
    rows = [
        (
            _describe_result(check),
            check.name,
            check.host,
            check.detail,
        )
        for check in verdict.checks
    ]
    failed = sum(check.ok is False for check in verdict.checks)
    untried = sum(check.ok is None for check in verdict.checks)
    passed = len(rows) - failed - untried
    parts: list[Part] = [Table("Checks", ("", "check", "machine", "result"), rows)]
    if failed:
        parts.append(Sentence(f"{failed} of {len(rows)} checks failed.", "bad"))
    else:
        summary = f"All {passed}" if not untried else f"{passed} of {len(rows)}"
        parts.append(Sentence(f"{summary} checks passed.", "good"))
    if untried:
        parts.append(Sentence(f"{untried} of {len(rows)} checks were not tried.", "caution"))
    document = {"ok": verdict.ok, "checks": [check.document() for check in verdict.checks]}
    return Answer(parts, document, verb="deploy verify", rows="checks")


def _describe_result(check: CheckResult) -> Text:
    if check.ok is None:
        return Text("not tried", "caution")
    return Text("ok", "good") if check.ok else Text("FAILED", "bad")


def status_answer(
    deployments: Sequence[tuple[str, Sequence[Host]]],
    removals: Mapping[str, tuple[float, str | None]],
) -> Answer:
    """List the deployments. Rented ones have a removal time, in seconds since 1970, and a reason if it has passed."""
    rows = [
        (name, host.name, host.address, host.user) for name, hosts in deployments for host in hosts
    ]
    parts: list[Part] = []
    if rows:
        columns = ("deployment", "machine", "address", Column("user", drop=1))
        parts.append(Table("Deployments", columns, rows))
    parts.extend(
        Sentence(f"{name} has no machine yet, or its `up` was interrupted.", "caution")
        for name, hosts in deployments
        if not hosts
    )
    parts.extend(
        Sentence(f"gpuyard removes {name} at {_format_time(time)}; run `up` again to extend it.")
        if delay is None
        else Sentence(f"{name} expired at {_format_time(time)} and still exists: {delay}.", "bad")
        for name, (time, delay) in removals.items()
    )
    if not deployments:
        parts.append(Sentence("There is no deployment."))
    document = {
        "deployments": [
            {
                "name": name,
                "hosts": [_describe_host(host) for host in hosts],
                "removed_at": _format_time(removals[name][0]) if name in removals else None,
                "kept_because": removals[name][1] if name in removals else None,
            }
            for name, hosts in deployments
        ]
    }
    return Answer(
        parts, document, verb="deploy status", rows="deployments", columns=_STATUS_COLUMNS
    )


_STATUS_COLUMNS = ("name", "hosts", "removed_at", "kept_because")


def down_answer(loaded: LoadedDeployment, remaining: Sequence[str]) -> Answer:
    name = loaded.deployment.name
    parts: list[Part] = []
    if loaded.target.module() is None:
        machines = ", ".join(remaining)
        parts.append(
            Sentence(f"gpuyard no longer manages {name}. Its machines are unchanged: {machines}.")
        )
    elif remaining:
        parts.append(Sentence(f"These remain and may cost money: {', '.join(remaining)}", "bad"))
    else:
        parts.append(Sentence(f"{name} is removed. Nothing remains.", "good"))
    document = {"deployment": name, "remains": list(remaining)}
    return Answer(parts, document, verb="deploy down")


def sync_answer(copied: CopyResult, *, dry_run: bool) -> Answer:
    copy = copied.plan
    destination = f"{copy.head.name}:{copy.destination}"
    parts: list[Part] = []
    if not copied.sent and not copied.deleted:
        summary = f"{destination} is already up to date with {copy.folder}."
        parts.append(Sentence(summary, "good"))
    else:
        owner = f", for {copy.owner}" if copy.owner else ""
        where = f"to {destination} with {copied.method}{owner}"
        parts += _describe_copies(copied.sent, where, dry_run=dry_run)
    if copied.deleted:
        verb = "Would delete" if dry_run else "Deleted"
        count = _count_files(copied.deleted)
        parts.append(Sentence(f"{verb} {count} that {copy.folder} does not have.", "caution"))
    document = {
        "from": str(copy.folder),
        "to": copy.destination,
        "host": copy.head.name,
        "owner": copy.owner,
        "by": copied.method,
        "dry_run": dry_run,
        **_copies_document(copied.sent),
        "deleted": list(copied.deleted),
    }
    return Answer(parts, document, verb="deploy sync")


def fetch_answer(fetched: FetchResult, *, dry_run: bool) -> Answer:
    plan = fetched.plan
    source = f"{plan.head.name}:{plan.source}"
    parts: list[Part] = []
    if fetched.copied:
        where = f"from {source} to {plan.destination}"
        parts += _describe_copies(fetched.copied, where, dry_run=dry_run)
    else:
        parts.append(Sentence(f"{plan.destination} is already up to date with {source}.", "good"))
    if fetched.kept:
        names = ", ".join(fetched.kept[:_MAX_FILES])
        count = _count_files(fetched.kept)
        parts.append(Sentence(f"Kept {count} that changed here later: {names}.", "caution"))
    document = {
        "from": plan.source,
        "to": str(plan.destination),
        "host": plan.head.name,
        "dry_run": dry_run,
        **_copies_document(fetched.copied),
        "kept": list(fetched.kept),
    }
    return Answer(parts, document, verb="deploy fetch")


def _describe_copies(
    copies: Sequence[tuple[str, int]], where: str, *, dry_run: bool
) -> Sequence[Part]:
    """Return a table with the largest copies, and a sentence with their number and total size."""
    largest = sorted(copies, key=lambda file: -file[1])[:_MAX_FILES]
    title = "Would be copied" if dry_run else "Copied"
    if len(copies) > _MAX_FILES:
        title += f": the largest {_MAX_FILES} of {len(copies):,}"
    rows = [(name, format_bytes(size)) for name, size in largest]
    amount = f"{_count_files(copies)} ({format_bytes(sum(size for _, size in copies))})"
    summary = f"{'Would copy' if dry_run else 'Copied'} {amount} {where}."
    tables = [Table(title, ("file", Column("size")), rows)] if rows else []
    return [*tables, Sentence(summary, "good")]


def _copies_document(copies: Sequence[tuple[str, int]]) -> dict[str, Any]:
    return {
        "copied": [{"file": name, "bytes": size} for name, size in copies],
        "copied_bytes": sum(size for _, size in copies),
    }


def _count_files(names: Sequence[object]) -> str:
    return f"{len(names):,} file{'' if len(names) == 1 else 's'}"


def cost_answer(cost: DeploymentCost) -> Answer:
    hour = cost.usd_per_hour
    periods = [("per hour", 1.0), ("per day", 24.0), ("per month", float(HOURS_PER_MONTH))]
    if cost.ttl_seconds is not None:
        ttl = format_duration(cost.ttl_seconds)
        periods.append((f"from `up` to removal, {ttl}", cost.ttl_seconds / 3600))
    if cost.remaining_seconds is not None:
        remaining = format_duration(cost.remaining_seconds)
        periods.append((f"from now to removal, {remaining}", cost.remaining_seconds / 3600))
    rows = [(name, format_usd(hour * hours)) for name, hours in periods]
    parts: list[Part] = [Table(cost.name, ("", Column("cost")), rows), *_describe_budget(cost)]
    power = cost.electricity
    if power is not None:
        draw = f"{format_watts(power.watts)} while training ({power.basis})"
        parts.append(Sentence(f"You own its machines; together they draw about {draw}."))
        parts.append(
            Sentence(power.tariff.sentence)
            if power.tariff is not None
            else Sentence("Electricity is not counted: give --tariff or --country.", "caution")
        )
    elif cost.target == "lab":
        parts.append(Sentence("Its machines are on this host and cost nothing extra."))
    document = {
        "deployment": cost.name,
        "target": cost.target,
        "usd_per_hour": hour,
        "usd_per_day": hour * 24,
        "usd_per_month": hour * HOURS_PER_MONTH,
        "ttl_seconds": cost.ttl_seconds,
        "usd_until_ttl": None if cost.ttl_seconds is None else hour * cost.ttl_seconds / 3600,
        "left_seconds": cost.remaining_seconds,
        "usd_left": None
        if cost.remaining_seconds is None
        else hour * cost.remaining_seconds / 3600,
        "max_usd_per_hour": cost.max_usd_per_hour,
        "in_budget": cost.in_budget,
        "watts": None if power is None else power.watts,
        "usd_per_kwh": None if power is None or power.tariff is None else power.tariff.usd_per_kwh,
    }
    return Answer(parts, document, verb="deploy cost")


def _describe_budget(cost: DeploymentCost) -> list[Sentence]:
    limit, rent = cost.max_usd_per_hour, cost.rent_usd_per_hour
    if limit is None:
        return []
    if rent > limit:
        excess = (
            f"{format_usd(rent - limit)} per hour more than max_usd_per_hour, {format_usd(limit)}"
        )
        return [Sentence(f"That is {excess}: `up` refuses it.", "bad")]
    remaining = format_usd(limit - rent)
    return [Sentence(f"max_usd_per_hour is {format_usd(limit)}: {remaining} remain.", "good")]


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _describe_host(host: Host) -> dict[str, Any]:
    return {"name": host.name, "address": host.address, "user": host.user, "port": host.port}
