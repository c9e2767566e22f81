"""Who holds which GPU and who waits, what is reserved, and a user's notebooks."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from gpuyard.report import formats
from gpuyard.report.answer import Answer, Column, Part, Sentence, Table, Text, Words

_LONGEST_COMMAND = 24
_DAYS = 6  # within which a weekday says it all


def who_answer(document: Mapping[str, Any]) -> Answer:
    """A row for each lease on each GPU, and one for each that is free."""
    rows: list[list[Words]] = []
    for gpu in document["gpus"]:
        rows.extend([str(gpu["index"]), *_holder(lease), *_reading(gpu)] for lease in gpu["leases"])
        if not gpu["leases"]:
            state = Text("drained", "bad") if gpu.get("drained") else Text("free", "good")
            rows.append([str(gpu["index"]), state, *[""] * 5, *_reading(gpu)])
    columns = (
        "GPU",
        "user",
        Column("command", 1),
        "lease",
        Column("since", 4),
        Column("until", 3),
        Column("share", 6),
        Column("memory", 5),
        Column("utilisation", 2),
        Column("°C", 7),
        Column("W", 7),
    )
    parts: list[Part] = [Table("", columns, rows)]
    if document["queue"]:
        waiting = [
            [str(one["position"]), one["user"], _wanted(one), one["command"], _time(one["since"])]
            for one in document["queue"]
        ]
        names = ("queue", "user", "GPUs", Column("command", 1), Column("since", 2))
        parts.append(Table("Waiting", names, waiting))
    if document.get("reservations"):
        parts.append(calendar_table(document["reservations"]))
    drained = [str(gpu["index"]) for gpu in document["gpus"] if gpu.get("drained")]
    if drained:
        parts.append(
            Sentence(
                f"GPU {', '.join(drained)}: drained, no new leases; running ones go on.", "bad"
            )
        )
    parts.extend(Sentence(one["sentence"], "bad") for one in document["violations"])
    parts.append(Sentence(guard_sentence(document["guard"])))
    return Answer(parts, document, verb="who")


def guard_sentence(guard: str) -> str:
    """Which of the two is active: the kernel, or whoever looks."""
    return {
        "cgroups": "Guard: cgroups. The kernel lets the processes of a lease open only its GPUs.",
        "slurm": "Guard: Slurm, as its cgroup.conf says.",
        "audit": "Guard: audit. No device is closed; `gpuyard audit` finds who uses another's GPU.",
    }[guard]


def _holder(lease: Mapping[str, Any]) -> list[Words]:
    command = lease["command"]
    return [
        lease["user"],
        command if len(command) <= _LONGEST_COMMAND else f"{command[:_LONGEST_COMMAND]}…",
        lease["id"],
        _time(lease["since"]),
        _time(lease["until"]),
        "" if lease["share"] == 1 else f"{lease['share']:.0%}",
    ]


def _reading(gpu: Mapping[str, Any]) -> list[Words]:
    used, share = gpu["memory_used_bytes"], gpu["utilisation"]
    return [
        "N/A" if used is None else formats.size(used),
        "N/A" if share is None else formats.percent(share),
        *(
            "N/A" if gpu[key] is None else f"{gpu[key]:.0f}"
            for key in ("temperature_c", "power_watts")
        ),
    ]


def _wanted(one: Mapping[str, Any]) -> str:
    which = f" ({', '.join(map(str, one['gpus']))})" if one["gpus"] else ""
    return f"{one['count']}{which}"


def _time(stamp: str | None) -> str:
    """In the reader's time zone, as short as it can be said today; --json has all of it."""
    if stamp is None:
        return ""
    when, now = datetime.fromisoformat(stamp).astimezone(), datetime.now().astimezone()
    if when.date() == now.date():
        return when.strftime("%H:%M")
    days = abs((when.date() - now.date()).days)
    return when.strftime("%a %H:%M" if days <= _DAYS else "%Y-%m-%d")


def calendar_answer(reservations: Sequence[Mapping[str, Any]]) -> Answer:
    """What `reserve list` says."""
    document = {"reservations": list(reservations)}
    if not reservations:
        return Answer([Sentence("Nothing is reserved.")], document, verb="reserve")
    return Answer([calendar_table(reservations)], document, verb="reserve")


def calendar_table(reservations: Sequence[Mapping[str, Any]]) -> Table:
    """By day, then GPU, in the reader's time zone."""
    rows = sorted(
        (day.date(), one["gpus"], times, one)
        for number, one in enumerate(reservations)
        for day, times in _days(one, number)
    )
    return Table(
        "Reserved",
        ("day", "time", "GPUs", "user", Column("reservation", 1)),
        [
            [f"{day:%a %Y-%m-%d}", times[1], ", ".join(map(str, gpus)), one["user"], one["id"]]
            for day, gpus, times, one in rows
        ],
    )


def _days(one: Mapping[str, Any], number: int) -> Iterator[tuple[datetime, tuple[int, str]]]:
    """Each day with its part of the time; the number keeps equal rows apart."""
    start, end = (datetime.fromisoformat(one[key]).astimezone() for key in ("from", "until"))
    day = start.replace(hour=0, minute=0, second=0, microsecond=0)
    while day < end:
        following = (day.replace(tzinfo=None) + timedelta(1)).astimezone()
        first = "00:00" if start <= day else f"{start:%H:%M}"
        last = "24:00" if end >= following else f"{end:%H:%M}"
        yield day, (number, f"{first}–{last}")
        day = following


def notebooks_answer(document: Mapping[str, Any]) -> Answer:
    """A row for each, and how to reach it."""
    found = document["notebooks"]
    if not found:
        return Answer([Sentence("You have no notebook that runs.")], document, verb="notebook")
    rows = [[one["id"], ", ".join(map(str, one["gpus"])), one["directory"]] for one in found]
    parts: list[Part] = [Table("", ("notebook", "GPU", Column("directory", 1)), rows)]
    parts += [Sentence(f"{one['id']}: {one['tunnel']}, then {one['url']}") for one in found]
    return Answer(parts, document, verb="notebook")
