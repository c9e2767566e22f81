"""History: GPU-hours, utilization, waiting time, and cost by user, group, and project; and what more GPUs would have done."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, BeforeValidator, Field

from gpuyard.api.share import usage
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.printable import format_csv
from gpuyard.report.answer import ALL_BATCHES, Answer, Chart, Charts, Part, Section, Sentence
from gpuyard.report.figures.usage import build_usage_chart
from gpuyard.web.auth import Identity
from gpuyard.web.page import Computed, render, render_json
from gpuyard.web.sources import has_own_share
from gpuyard.web.work_limit import heavy

router = APIRouter()
_RANGES = ("1 day", "7 days", "30 days", "90 days", "1 year", "")
_Day = Annotated[date | None, BeforeValidator(lambda text: text or None)]
"""A day; an empty field of a form is none."""
_COLUMNS = ("id", "user", "group", "project", "gpus", "share", "start", "end", "ended", "elapsed_seconds", "waiting_seconds", "gpu_hours", "utilization")  # fmt: skip


class HistoryQuery(BaseModel):
    """The parameters of the view."""

    since: Annotated[str, Field(max_length=20, description="range like '30 days'; empty: all")] = (
        "30 days"
    )
    begin: Annotated[_Day, Field(description="first day of the range, instead of since")] = None
    end: Annotated[_Day, Field(description="last day of the range")] = None
    by: Annotated[str, Field(pattern="^(user|group|project)$")] = "user"
    more: Annotated[
        int, Field(ge=0, le=64, description="GPUs to add in the simulator; 0: none")
    ] = 0


def sum_usage(query: HistoryQuery, identity: Identity) -> tuple[Answer, Computed]:
    """Return the usage as `gpuyard usage` gives it, with a chart, and the simulator's answer for more GPUs."""
    since = f"{query.begin}" if query.begin else query.since or None
    until = f"{query.end + timedelta(1)}" if query.end else None
    answer = usage(since, until).answer
    document = _hide_commands(answer.document, identity)
    parts: list[Part] = list(answer.parts)
    options = [
        *(["--since", since] if since else []),
        *(["--until", until] if until else []),
    ]
    further: list[Sequence[str]] = []
    notes = [
        "A lease counts from its start to its end; utilization is the mean of readings while it was held."
    ]
    if document["leases"]:
        chart = build_usage_chart(document[f"by_{query.by}"], query.by)
        parts.insert(1, Charts([Chart("chart-usage", "", {ALL_BATCHES: chart})]))
    if query.more and document["leases"]:
        simulated = _add_gpus(query.more, since, until)
        parts.append(Section(f"With {query.more} more GPUs", simulated.parts))
        document = {**document, "what_if": simulated.document}
        change = f"add {query.more} gpus"
        further = [("simulate", "--format", "leases", *options, "--what-if", change)]
        notes.append("The simulator runs the finished leases of this range again.")
    computed = Computed(["usage", *options], notes, "docs/share.md", further=further)
    return replace(answer, parts=parts, document=document), computed


def _add_gpus(count: int, since: str | None, until: str | None) -> Answer:
    from gpuyard.api.simulate import simulate

    change = f"add {count} gpus"
    try:
        result = heavy.run(
            ("what-if", count, since, until),
            lambda: simulate(format="leases", what_if=[change], since=since, until=until),
        )
    except GpuyardError as error:
        text = str(error)
        return Answer([Sentence(f"{text[:1].upper()}{text[1:]}.", "caution")], {"error": text})
    return Answer(result.answer.parts, result.answer.document)


def _hide_commands(document: dict[str, Any], identity: Identity) -> dict[str, Any]:
    """Remove other users' commands, which can contain secrets."""
    if identity.is_admin:
        return document
    leases = [
        {**row, "command": row["command"] if row["user"] == identity.user else None}
        for row in document["leases"]
    ]
    return {**document, "leases": leases}


@router.get("/history", include_in_schema=False)
def show_history(request: Request, query: Annotated[HistoryQuery, Query()]) -> Response:
    try:
        answer, computed = sum_usage(query, request.state.identity)
    except GpuyardError as error:
        if isinstance(error, UserMistake) or has_own_share():
            raise
        return render(request, "no_share.html.jinja", view="history", title="History")
    return render(
        request,
        "history.html.jinja",
        view="history",
        title="History",
        answer=answer,
        computed=computed,
        csv_url=f"/history.csv?{request.url.query}",
        query=query,
        ranges=_RANGES,
        is_empty=not answer.document["leases"],
    )


@router.get("/history.json", summary="GPU-hours, utilization, waiting, and cost")
def get_history(request: Request, query: Annotated[HistoryQuery, Query()]) -> Response:
    """Return what `gpuyard usage --json` prints; with `more`, also the simulator's answer."""
    return render_json(sum_usage(query, request.state.identity)[0].document)


@router.get("/history.csv", summary="Every lease of the range", response_class=Response)
def get_csv(request: Request, query: Annotated[HistoryQuery, Query()]) -> Response:
    """Return one line per lease."""
    rows = sum_usage(query, request.state.identity)[0].document["leases"]
    cells = [[_format_cell(row[name]) for name in _COLUMNS] for row in rows]
    headers = {"Content-Disposition": 'attachment; filename="leases.csv"'}
    return Response(format_csv(_COLUMNS, cells), media_type="text/csv", headers=headers)


def _format_cell(value: Any) -> Any:
    return ";".join(map(str, value)) if isinstance(value, list) else value
