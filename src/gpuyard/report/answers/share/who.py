"""Who holds which GPU, and who waits."""

from collections.abc import Mapping
from typing import Any

from gpuyard.report.answer import Answer, Column, Part, Sentence, Table, Text, Words


def who_answer(document: Mapping[str, Any]) -> Answer:
    """A row for each lease on each GPU, and one for each that is free."""
    rows: list[list[Words]] = []
    for gpu in document["gpus"]:
        rows.extend(
            [
                str(gpu["index"]),
                lease["user"],
                lease["command"],
                lease["id"],
                _time(lease["since"]),
                _time(lease["until"]),
                "" if lease["share"] == 1 else f"{lease['share']:.0%}",
            ]
            for lease in gpu["leases"]
        )
        if not gpu["leases"]:
            rows.append([str(gpu["index"]), Text("free", "good"), "", "", "", "", ""])
    columns = (
        "GPU",
        "user",
        Column("command", 1),
        "lease",
        Column("since", 3),
        Column("until", 2),
        Column("share", 4),
    )
    parts: list[Part] = [Table("", columns, rows)]
    if document["queue"]:
        waiting = [
            [str(one["position"]), one["user"], _wanted(one), one["command"], _time(one["since"])]
            for one in document["queue"]
        ]
        names = ("queue", "user", "GPUs", Column("command", 1), Column("since", 2))
        parts.append(Table("Waiting", names, waiting))
    parts.extend(Sentence(one["sentence"], "bad") for one in document["violations"])
    return Answer(parts, document, verb="who")


def _wanted(one: Mapping[str, Any]) -> str:
    which = f" ({', '.join(map(str, one['gpus']))})" if one["gpus"] else ""
    return f"{one['count']}{which}"


def _time(stamp: str | None) -> str:
    """In the reader's time zone."""
    from datetime import datetime

    if stamp is None:
        return ""
    return datetime.fromisoformat(stamp).astimezone().strftime("%Y-%m-%d %H:%M")
