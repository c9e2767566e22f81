"""What `gpuyard deploy sync` and `cost` say."""

from gpuyard.deploy.access.sync import Copied
from gpuyard.deploy.cost import DeploymentCost
from gpuyard.economics.billing import HOURS_PER_MONTH
from gpuyard.report.answer import Answer, Column, Part, Sentence, Table
from gpuyard.units import format_bytes, format_duration, format_usd, format_watts

_SHOWN = 20


def sync_answer(copied: Copied, *, dry_run: bool) -> Answer:
    copy = copied.copy
    where = f"{copy.head.name}:{copy.destination}"
    files = f"{len(copied.sent):,} file{'' if len(copied.sent) == 1 else 's'}"
    amount = f"{files}, {format_bytes(copied.sent_bytes)},"
    parts: list[Part] = []
    if copied.sent:
        largest = sorted(copied.sent, key=lambda one: -one[1])[:_SHOWN]
        title = "Would be copied" if dry_run else "Copied"
        if len(copied.sent) > _SHOWN:
            title += f": the largest {_SHOWN} of {len(copied.sent):,}"
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
