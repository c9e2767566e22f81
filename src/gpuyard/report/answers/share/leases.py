"""Answers of `who`, `reserve list`, and `notebook list`."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from gpuyard.report import formats
from gpuyard.report.answer import Answer, Column, Part, Sentence, StyledText, Table, Text

_MAX_COMMAND_CHARACTERS = 24
_WEEKDAY_DAYS = 6  # within which a weekday is unambiguous
_MAX_TIME_BY_DAY = timedelta(31)  # a longer reservation has one row
_MAX_JOBS = 10  # waiting jobs in a table; --json has all


def who_answer(document: Mapping[str, Any]) -> Answer:
    """Build a table with a row for each lease on each GPU and for each free GPU."""
    rows: list[list[StyledText]] = []
    names = {gpu["name"] for gpu in document["gpus"]}
    for gpu in document["gpus"]:
        which = [str(gpu["index"]), *([gpu["name"]] if len(names) > 1 else [])]
        readings = _format_readings(gpu)
        rows.extend([*which, *_format_lease(lease), *readings] for lease in gpu["leases"])
        if not gpu["leases"]:
            state = Text("drained", "bad") if gpu.get("drained") else Text("free", "good")
            rows.append([*which, state, *[""] * 6, *readings])
    columns: list[Column | str] = [
        "GPU",
        *([Column("name", 4)] if len(names) > 1 else []),
        "user",
        Column("command", 1),
        "lease",
        Column("elapsed", 4),
        Column("since", 8),
        Column("until", 5),
        Column("share", 6),
        Column("memory", 3),
        Column("utilization", 2),
        Column("°C", 7),
        Column("W", 7),
    ]
    title = f"{len(document['gpus'])} × {names.pop()}" if len(names) == 1 else ""
    parts: list[Part] = [Table(title, columns, rows)]
    if any(gpu["processes"] for gpu in document["gpus"]):
        parts.append(_process_table(document["gpus"]))
    if document["queue"]:
        waiting = [
            [
                str(request["position"]),
                request["user"],
                _format_requested(request),
                _format_command(request["command"]),
                formats.elapsed(request["elapsed_seconds"]),
                _format_time(request["since"]),
            ]
            for request in document["queue"]
        ]
        heads = ("queue", "user", "GPUs", Column("command", 1), "elapsed", Column("since", 2))
        parts.append(Table("Waiting", heads, waiting))
    if document.get("jobs"):
        parts.append(_jobs_table(document["jobs"]))
    parts.extend(_describe_withheld(withheld) for withheld in document.get("withheld", ()))
    if document.get("reservations"):
        parts.append(calendar_table(document["reservations"]))
    drained = [str(gpu["index"]) for gpu in document["gpus"] if gpu.get("drained")]
    if drained:
        parts.append(
            Sentence(
                f"GPU {', '.join(drained)}: drained, no new leases; running ones continue.", "bad"
            )
        )
    if document.get("conflict"):
        parts.append(Sentence(f"{document['conflict']}.", "bad"))
    parts.extend(Sentence(violation["sentence"], "bad") for violation in document["violations"])
    parts.extend(Sentence(f"{problem}.", "bad") for problem in document.get("problems", ()))
    parts.append(Sentence(guard_sentence(document["guard"])))
    return Answer(parts, document, verb="who", rows="gpus")


def _jobs_table(jobs: Sequence[Mapping[str, Any]]) -> Table:
    """Build a table of waiting jobs; of many, the rest is counted."""
    rows: list[list[StyledText]] = [
        [
            job["job"],
            job["user"],
            str(job["min_gpus"])
            if job["min_gpus"] == job["max_gpus"]
            else f"{job['min_gpus']}–{job['max_gpus']}",
            _format_time(job["since"]),
        ]
        for job in jobs[:_MAX_JOBS]
    ]
    if len(jobs) > _MAX_JOBS:
        rows.append([f"and {len(jobs) - _MAX_JOBS} more", "", "", ""])
    return Table("Waiting jobs", ("job", "user", "GPUs", "since"), rows)


def _describe_withheld(withheld: Mapping[str, Any]) -> Sentence:
    """Say for whom idle GPUs are kept, why, and until when."""
    count = "1 idle GPU is" if withheld["gpus"] == 1 else f"{withheld['gpus']} idle GPUs are"
    expected = "when it will start is unknown"
    if withheld["expected"] is not None:
        expected = f"it is expected to start at {_format_time(withheld['expected'])}"
        if withheld["assumed"]:
            expected += " if the assumed lengths of jobs are right"
    return Sentence(
        f"{count} withheld for {withheld['for']} of {withheld['user']}, because "
        f"{withheld['reason']}; {expected}.",
        "caution",
    )


def guard_sentence(guard: str) -> str:
    """Describe the protection against use of a GPU without a lease."""
    return {
        "cgroups": "Guard: cgroups. The kernel lets the processes of a lease open only its GPUs.",
        "slurm": "Guard: Slurm, according to its cgroup.conf.",
        "audit": "Guard: audit. Every process can open every GPU; `gpuyard audit` finds misuse.",
    }[guard]


def _process_table(gpus: Sequence[Mapping[str, Any]]) -> Table:
    """List the processes that compute on each GPU."""
    return Table(
        "Processes",
        ("GPU", "PID", "user", "program", "memory", Column("elapsed", 1)),
        [
            [
                str(gpu["index"]),
                str(process["pid"]),
                process["user"],
                process["program"],
                formats.size(process["memory_bytes"]),
                formats.elapsed(process["elapsed_seconds"]),
            ]
            for gpu in gpus
            for process in gpu["processes"]
        ],
    )


def _format_command(command: str | None) -> StyledText:
    """Shorten a command; the service hides those of other users."""
    if command is None:
        return Text("hidden", "quiet")
    if len(command) > _MAX_COMMAND_CHARACTERS:
        return f"{command[:_MAX_COMMAND_CHARACTERS]}…"
    return command


def _format_lease(lease: Mapping[str, Any]) -> list[StyledText]:
    return [
        lease["user"],
        _format_command(lease["command"]),
        lease["id"],
        formats.elapsed(lease["elapsed_seconds"]),
        _format_time(lease["since"]),
        _format_time(lease["until"]),
        "" if lease["share"] == 1 else f"{lease['share']:.0%}",
    ]


def _format_readings(gpu: Mapping[str, Any]) -> list[StyledText]:
    used, total, share = gpu["memory_used_bytes"], gpu["memory_bytes"], gpu["utilization"]
    of_total = "" if total is None else f" of {formats.size(total)}"
    return [
        "N/A" if used is None else f"{formats.size(used)}{of_total}",
        "N/A" if share is None else formats.percent(share),
        *(
            "N/A" if gpu[key] is None else f"{gpu[key]:.0f}"
            for key in ("temperature_c", "power_watts")
        ),
    ]


def _format_requested(request: Mapping[str, Any]) -> str:
    which = f" ({', '.join(map(str, request['gpus']))})" if request["gpus"] else ""
    return f"{request['count']}{which}"


def _format_time(timestamp: str | None) -> str:
    """Format a time in the reader's zone, as short as it is clear today; --json has all of it."""
    if timestamp is None:
        return ""
    when, now = datetime.fromisoformat(timestamp).astimezone(), datetime.now().astimezone()
    if when.date() == now.date():
        return when.strftime("%H:%M")
    days = abs((when.date() - now.date()).days)
    return when.strftime("%a %H:%M" if days <= _WEEKDAY_DAYS else "%Y-%m-%d")


def calendar_answer(reservations: Sequence[Mapping[str, Any]]) -> Answer:
    """Build the answer of `reserve list`."""
    document = {"reservations": list(reservations)}
    if not reservations:
        return Answer(
            [Sentence("No GPU is reserved.")], document, verb="reserve", rows="reservations"
        )
    return Answer([calendar_table(reservations)], document, verb="reserve", rows="reservations")


def calendar_table(reservations: Sequence[Mapping[str, Any]]) -> Table:
    """Build a table by day, then GPU, in the reader's time zone."""
    rows = sorted(
        (day.date(), reservation["gpus"], times, reservation)
        for number, reservation in enumerate(reservations)
        for day, times in _split_days(reservation, number)
    )
    return Table(
        "Reserved",
        ("day", "time", "GPUs", "user", Column("reservation", 1)),
        [
            [
                f"{day:%a %Y-%m-%d}",
                times[1],
                ", ".join(map(str, gpus)),
                reservation["user"],
                reservation["id"],
            ]
            for day, gpus, times, reservation in rows
        ],
    )


def _split_days(
    reservation: Mapping[str, Any], number: int
) -> Iterator[tuple[datetime, tuple[int, str]]]:
    """Yield each day with its part of the time; the number makes equal rows sortable."""
    start, end = (
        datetime.fromisoformat(reservation[key]).astimezone() for key in ("from", "until")
    )
    day = start.replace(hour=0, minute=0, second=0, microsecond=0)
    if not start < end <= start + _MAX_TIME_BY_DAY:
        yield day, (number, f"{start:%H:%M}–{end:%Y-%m-%d %H:%M}")
        return
    while day < end:
        next_day = (day.replace(tzinfo=None) + timedelta(1)).astimezone()
        first = "00:00" if start <= day else f"{start:%H:%M}"
        last = "24:00" if end >= next_day else f"{end:%H:%M}"
        yield day, (number, f"{first}–{last}")
        day = next_day


def notebooks_answer(document: Mapping[str, Any]) -> Answer:
    """Build a table of notebooks, and a sentence for each that says how to reach it."""
    notebooks = document["notebooks"]
    if not notebooks:
        return Answer(
            [Sentence("You have no running notebooks.")],
            document,
            verb="notebook",
            rows="notebooks",
        )
    rows = [[n["id"], ", ".join(map(str, n["gpus"])), n["directory"]] for n in notebooks]
    parts: list[Part] = [Table("", ("notebook", "GPU", Column("directory", 1)), rows)]
    parts += [Sentence(f"{n['id']}: {_format_way(n)}") for n in notebooks]
    return Answer(parts, document, verb="notebook", rows="notebooks")


def _format_way(notebook: Mapping[str, Any]) -> str:
    if notebook["url"] is None:
        stop = f"gpuyard notebook stop {notebook['id']}"
        return (
            f"unreachable, because its gpuyard process was killed; give its GPUs back with `{stop}`"
        )
    return f"{notebook['tunnel']}, then {notebook['url']}"
