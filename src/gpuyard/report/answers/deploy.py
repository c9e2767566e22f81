"""What `gpuyard deploy` says: what would change, what has, whether it works, what is there, what was copied to it and
what it costs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpuyard.deploy.access.sync import Copied
from gpuyard.deploy.ansible.run import PlayRecap
from gpuyard.deploy.cost import DeploymentCost
from gpuyard.deploy.deployment import DeploymentPlan, Opened
from gpuyard.deploy.state import Host
from gpuyard.deploy.terraform.run import Changes
from gpuyard.deploy.verify import Verification
from gpuyard.economics.billing import HOURS_PER_MONTH
from gpuyard.report.answer import Answer, Column, Part, Sentence, Table, Text
from gpuyard.units import format_bytes, format_duration, format_usd, format_watts

_FILES_SHOWN = 20


def plan_answer(planned: DeploymentPlan) -> Answer:
    rows = planned.machines()
    table = Table(
        planned.deployment.name,
        ("machine", Column("address", drop=1), "roles"),
        [(name, address or "not made yet", roles) for name, address, roles in rows],
    )
    parts: list[Part] = [
        table,
        Sentence(f"Machines and networks: {planned.changes}."),
        Sentence(_cost(planned.usd_per_hour)),
        *_ends(planned.ttl_seconds),
        *(Sentence(note, "quiet") for note in planned.notes),
    ]
    document = {
        "deployment": planned.deployment.name,
        "target": planned.deployment.target.kind,
        "machines": [
            {"name": name, "address": address or None, "roles": roles.split(", ") if roles else []}
            for name, address, roles in rows
        ],
        "changes": _changes(planned.changes),
        "usd_per_hour": planned.usd_per_hour,
        "ttl_seconds": planned.ttl_seconds,
        "notes": list(planned.notes),
    }
    return Answer(parts, document, verb="deploy plan")


def _cost(usd_per_hour: float | None) -> str:
    if usd_per_hour is None:
        return "What it costs an hour is unknown: the price list has no such machine there."
    return f"It costs {format_usd(usd_per_hour)} an hour."


def _ends(ttl_seconds: float | None) -> list[Sentence]:
    if ttl_seconds is None:
        return []
    return [Sentence(f"It is removed by itself {format_duration(ttl_seconds)} after `up`.")]


def up_answer(opened: Opened, changes: Changes, outcome: PlayRecap, file: Path) -> Answer:
    rows = [
        (host.name, host.address, str(outcome.changed.get(host.name, 0)))
        for host in opened.state.hosts()
    ]
    table = Table(
        opened.deployment.name,
        ("machine", Column("address", drop=1), "tasks that changed it"),
        rows,
    )
    made = f"{changes.added} made, {changes.changed} changed, {changes.removed} removed"
    parts: list[Part] = [
        table,
        Sentence(
            f"It is up. Machines and networks: {made}."
            if changes.any or outcome.changes
            else "It is up, and nothing had to be changed.",
            "good",
        ),
        *(Sentence(f"{note}.", "caution") for note in outcome.notes),
        Sentence(f"See whether it works: gpuyard deploy verify {file}"),
    ]
    document = {
        "deployment": opened.deployment.name,
        "changes": _changes(changes),
        "changed_tasks": dict(outcome.changed),
        "notes": list(outcome.notes),
        "hosts": [_host(host) for host in opened.state.hosts()],
    }
    return Answer(parts, document, verb="deploy up")


def verify_answer(verdict: Verification) -> Answer:
    rows = [
        (
            Text("ok", "good") if check.ok else Text("FAILED", "bad"),
            check.name,
            check.host,
            check.found,
        )
        for check in verdict.checks
    ]
    wrong = sum(not check.ok for check in verdict.checks)
    words = (
        f"All {len(rows)} checks passed." if not wrong else f"{wrong} of {len(rows)} checks failed."
    )
    parts: list[Part] = [
        Table("Checks", ("", "check", "machine", "found"), rows),
        Sentence(words, "bad" if wrong else "good"),
    ]
    document = {"ok": verdict.ok, "checks": [check.document() for check in verdict.checks]}
    return Answer(parts, document, verb="deploy verify")


def status_answer(known: Sequence[tuple[str, Sequence[Host]]], ends: Mapping[str, float]) -> Answer:
    """`ends`: when each that is rented is removed, in seconds since 1970."""
    rows = [(name, host.name, host.address, host.user) for name, hosts in known for host in hosts]
    parts: list[Part] = []
    if rows:
        columns = ("deployment", "machine", "address", Column("user", drop=1))
        parts.append(Table("Deployments", columns, rows))
    parts.extend(
        Sentence(f"{name} has no machine yet, or its `up` was cut off.", "caution")
        for name, hosts in known
        if not hosts
    )
    parts.extend(
        Sentence(f"{name} is removed at {_moment(when)}, unless another `up` moves that.")
        for name, when in ends.items()
    )
    if not known:
        parts.append(Sentence("There is no deployment."))
    document = {
        "deployments": [
            {
                "name": name,
                "hosts": [_host(host) for host in hosts],
                "ends": _moment(ends[name]) if name in ends else None,
            }
            for name, hosts in known
        ]
    }
    return Answer(parts, document, verb="deploy status")


def down_answer(opened: Opened, left: Sequence[str]) -> Answer:
    parts: list[Part] = []
    if opened.target.module() is None:
        words = "is forgotten; its machines are yours and stay as they are"
        parts.append(Sentence(f"{opened.deployment.name} {words}: {', '.join(left)}."))
    elif left:
        parts.append(Sentence(f"This remains, and may cost money: {', '.join(left)}", "bad"))
    else:
        parts.append(Sentence(f"{opened.deployment.name} is removed. Nothing remains.", "good"))
    document = {"deployment": opened.deployment.name, "remains": list(left)}
    return Answer(parts, document, verb="deploy down")


def sync_answer(copied: Copied, *, dry_run: bool) -> Answer:
    copy = copied.copy
    where = f"{copy.head.name}:{copy.destination}"
    files = f"{len(copied.sent):,} file{'' if len(copied.sent) == 1 else 's'}"
    amount = f"{files}, {format_bytes(copied.sent_bytes)},"
    parts: list[Part] = []
    if copied.sent:
        largest = sorted(copied.sent, key=lambda one: -one[1])[:_FILES_SHOWN]
        title = "Would be copied" if dry_run else "Copied"
        if len(copied.sent) > _FILES_SHOWN:
            title += f": the largest {_FILES_SHOWN} of {len(copied.sent):,}"
        columns = ("file", Column("size"))
        parts.append(Table(title, columns, [(name, format_bytes(size)) for name, size in largest]))
    if not copied.sent and not copied.deleted:
        words = f"{where} has all of {copy.folder} already."
    else:
        verb = (
            "would be copied"
            if dry_run
            else "were copied"
            if len(copied.sent) != 1
            else "was copied"
        )
        words = f"{amount} {verb} to {where} by {copied.by}."
    parts.append(Sentence(words, "good"))
    if copied.deleted:
        gone = f"{len(copied.deleted):,} that {copy.folder} does not have"
        parts.append(
            Sentence(f"{'Would be deleted' if dry_run else 'Deleted'}: {gone}.", "caution")
        )
    document = {
        "from": str(copy.folder),
        "to": copy.destination,
        "host": copy.head.name,
        "by": copied.by,
        "dry_run": dry_run,
        "copied": [{"file": name, "bytes": size} for name, size in copied.sent],
        "copied_bytes": copied.sent_bytes,
        "deleted": list(copied.deleted),
    }
    return Answer(parts, document, verb="deploy sync")


def cost_answer(cost: DeploymentCost) -> Answer:
    hour = cost.usd_per_hour
    spans = [("an hour", 1.0), ("a day", 24.0), ("a month", float(HOURS_PER_MONTH))]
    if cost.ttl_seconds is not None:
        spans.append(
            (f"from `up` to its end, {format_duration(cost.ttl_seconds)}", cost.ttl_seconds / 3600)
        )
    if cost.left_seconds is not None:
        spans.append(
            (f"from now to its end, {format_duration(cost.left_seconds)}", cost.left_seconds / 3600)
        )
    rows = [(name, format_usd(hour * hours)) for name, hours in spans]
    parts: list[Part] = [Table(cost.name, ("", Column("cost")), rows), *_budget(cost)]
    power = cost.electricity
    if power is not None:
        drawn = f"{format_watts(power.watts)} while training ({power.basis})"
        parts.append(Sentence(f"Its machines are yours; together they draw about {drawn}."))
        parts.append(
            Sentence(power.tariff.sentence)
            if power.tariff is not None
            else Sentence("Electricity is not counted: give --tariff or --country.", "caution")
        )
    elif cost.target == "lab":
        parts.append(Sentence("Its machines are on this host, and cost nothing more."))
    document = {
        "deployment": cost.name,
        "target": cost.target,
        "usd_per_hour": hour,
        "usd_per_day": hour * 24,
        "usd_per_month": hour * HOURS_PER_MONTH,
        "ttl_seconds": cost.ttl_seconds,
        "usd_until_ttl": None if cost.ttl_seconds is None else hour * cost.ttl_seconds / 3600,
        "left_seconds": cost.left_seconds,
        "usd_left": None if cost.left_seconds is None else hour * cost.left_seconds / 3600,
        "max_usd_per_hour": cost.max_usd_per_hour,
        "in_budget": cost.in_budget,
        "watts": None if power is None else power.watts,
        "usd_per_kwh": None if power is None or power.tariff is None else power.tariff.usd_per_kwh,
    }
    return Answer(parts, document, verb="deploy cost")


def _budget(cost: DeploymentCost) -> list[Sentence]:
    most, rent = cost.max_usd_per_hour, cost.rent_usd_per_hour
    if most is None:
        return []
    if rent > most:
        over = f"{format_usd(rent - most)} an hour more than max_usd_per_hour, {format_usd(most)}"
        return [Sentence(f"That is {over}: `up` refuses it.", "bad")]
    return [
        Sentence(
            f"max_usd_per_hour is {format_usd(most)}: {format_usd(most - rent)} are left.", "good"
        )
    ]


def _moment(when: float) -> str:
    return datetime.fromtimestamp(when, UTC).isoformat(timespec="seconds")


def _changes(changes: Changes) -> dict[str, int]:
    return asdict(changes)


def _host(host: Host) -> dict[str, Any]:
    return {"name": host.name, "address": host.address, "user": host.user, "port": host.port}
