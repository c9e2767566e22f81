"""Who holds which GPU, and who waits."""

from collections.abc import Mapping
from typing import Any

from gpuyard.report import formats
from gpuyard.report.answer import Answer, Column, Part, Sentence, Table, Text, Words
from gpuyard.report.answers.share.calendar import calendar_table

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
    from datetime import datetime

    if stamp is None:
        return ""
    when, now = datetime.fromisoformat(stamp).astimezone(), datetime.now().astimezone()
    if when.date() == now.date():
        return when.strftime("%H:%M")
    days = abs((when.date() - now.date()).days)
    return when.strftime("%a %H:%M" if days <= _DAYS else "%Y-%m-%d")
