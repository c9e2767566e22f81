"""Actions as yourself: a page that shows the command line and asks, and the command itself."""

import asyncio
import re
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from gpuyard.errors import UnknownName, UserMistake
from gpuyard.jobs.job import Handle
from gpuyard.report import formats
from gpuyard.web.acting import Action, perform, why_not
from gpuyard.web.page import format_clock, render
from gpuyard.web.security import parse_form
from gpuyard.web.views.jobs import read_job
from gpuyard.web.views.now import format_ranges, render_now, summarize

router = APIRouter()
Fields = Mapping[str, str]
Facts = Sequence[tuple[str, str]]
_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,99}")
_COUNT = re.compile(r"[0-9]{1,4}(\.\.[0-9]{1,4})?")
_INDICES = re.compile(r"[0-9]{1,4}(,[0-9]{1,4}){0,200}")
_MAX_COMMAND = 8000


@dataclass(frozen=True)
class ActionKind:
    """One kind of action: the button, the question, and the command line from the fields of a form."""

    title: str
    question: str
    build: Callable[[Fields], Action]
    back: str = "/"
    describe: Callable[[Request, Fields], Awaitable[Facts]] | None = None
    """Returns facts about what would be ended."""
    ends: bool = False
    """True if something ends that cannot be continued: the page then proposes to go back."""


def _option(name: str, value: str) -> list[str]:
    """Return an option with its value, written so that no value passes for another option."""
    value = value.strip()
    if not value:
        return []
    if "\0" in value or "\n" in value or len(value) > 300:
        raise UserMistake(f"{name}: expected one short line, got {value[:40]!r}")
    return [f"{name}={value}"] if value.startswith("-") else [name, value]


def _check(pattern: re.Pattern[str], text: str, expected: str) -> str:
    if not pattern.fullmatch(text.strip()):
        raise UserMistake(f"expected {expected}, got {text[:60]!r}")
    return text.strip()


def _split(command: str) -> list[str]:
    if len(command) > _MAX_COMMAND or "\0" in command:
        raise UserMistake(f"a command may have at most {_MAX_COMMAND:,} characters")
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UserMistake(f"the command cannot be split into words: {error}") from None
    if not words:
        raise UserMistake("the command is missing; write it like: python train.py")
    return words


def _choose_gpus(fields: Fields) -> list[str]:
    if fields.get("ids", "").strip():
        return ["--gpu-ids", _check(_INDICES, fields["ids"], "GPUs by index like 3,4")]
    return [_check(_COUNT, fields.get("count", "1"), "a number of GPUs")]


def _build_lease(fields: Fields) -> Action:
    if not fields.get("time", "").strip():
        raise UserMistake("a lease from this page needs a time, like 2h: nothing else would end it")
    words = _split(fields.get("command") or "sleep infinity")
    options = [*_option("--for", fields["time"]), *_option("--project", fields.get("project", ""))]
    return Action(("lease", *_choose_gpus(fields), *options, "--", *words), background=True)


def _build_reserve(fields: Fields) -> Action:
    times = [*_option("--start", fields.get("from", "")), *_option("--for", fields.get("time", ""))]
    if len(times) < 2:
        raise UserMistake("a reservation needs a start, like 'Mon 18:00', and a time, like 12h")
    return Action(("reserve", *_choose_gpus(fields), *times))


def _build_submit(fields: Fields) -> Action:
    words = _split(fields.get("command", ""))
    names = ("name", "time-limit", "deadline", "project", "workload", "cwd")
    options = [word for name in names for word in _option(f"--{name}", fields.get(name, ""))]
    gpus = _check(_COUNT, fields.get("count") or "1", "a number of GPUs or a range like 2..8")
    return Action(("submit", "--gpus", gpus, *options, "--", *words))


def _build_release(fields: Fields) -> Action:
    return Action(("release", _check(_ID, fields.get("lease", ""), "the ID of a lease")))


def _build_cancel_reservation(fields: Fields) -> Action:
    id_ = _check(_ID, fields.get("reservation", ""), "the ID of a reservation")
    return Action(("reserve", "cancel", id_))


def _build_on_job(verb: str) -> Callable[[Fields], Action]:
    return lambda fields: Action((verb, str(Handle.parse(fields.get("job", "")))))


async def _describe_lease(request: Request, fields: Fields) -> Facts:
    now = await _read_now(request)
    for row in now["owners"]:
        if row.lease == fields["lease"].strip():
            return [
                ("user", row.user),
                ("GPUs", f"{format_ranges(row.gpus)} of {row.machine}"),
                ("command", "hidden" if row.command is None else row.command),
                ("since", format_clock(row.since)),
            ]
    return []


async def _describe_reservation(request: Request, fields: Fields) -> Facts:
    now = await _read_now(request)
    for row in now["reservations"]:
        if row["id"] == fields["reservation"].strip():
            times = f"{format_clock(row['from'])} to {format_clock(row['until'])}"
            return [("user", row["user"]), ("GPUs", format_ranges(row["gpus"])), ("time", times)]
    return []


async def _read_now(request: Request) -> dict[str, Any]:
    identity = request.state.identity
    return summarize((await render_now(request.app, identity)).document, identity)


async def _describe_job(request: Request, fields: Fields) -> Facts:
    identity = request.state.identity
    try:
        job = (await asyncio.to_thread(read_job, identity, fields["job"], identity)).document
    except UserMistake:
        return []  # the command itself explains what is wrong
    gpus = ", ".join(map(str, job["gpus"])) if isinstance(job["gpus"], list) else str(job["gpus"])
    facts = [
        ("name", job["name"]),
        ("state", job["state"]),
        ("GPUs", gpus),
        ("command", shlex.join(job["command"])),
        ("elapsed", formats.elapsed(job["elapsed_seconds"])),
    ]
    return [(name, value) for name, value in facts if value]


ACTIONS = {
    "lease": ActionKind("Lease", "Lease these GPUs?", _build_lease),
    "reserve": ActionKind("Reserve", "Reserve these GPUs?", _build_reserve),
    "release": ActionKind(
        "Release",
        "Stop the processes of this lease and give its GPUs back?",
        _build_release,
        describe=_describe_lease,
        ends=True,
    ),
    "cancel-reservation": ActionKind(
        "Cancel reservation",
        "Cancel this reservation?",
        _build_cancel_reservation,
        describe=_describe_reservation,
        ends=True,
    ),
    "submit": ActionKind("Submit", "Submit this job?", _build_submit, "/jobs"),
    "cancel": ActionKind(
        "Cancel job", "Stop this job?", _build_on_job("cancel"), "/jobs", _describe_job, ends=True
    ),
    "retry": ActionKind(
        "Retry", "Submit this job again?", _build_on_job("retry"), "/jobs", _describe_job
    ),
}


def _find_kind(name: str) -> ActionKind:
    if name not in ACTIONS:
        raise UnknownName("action", name, ACTIONS)
    return ACTIONS[name]


@router.get("/act/{name}", include_in_schema=False)
async def confirm(request: Request, name: str) -> Response:
    """Show what would be done, and the command line that does the same."""
    kind = _find_kind(name)
    fields = dict(request.query_params)
    action = kind.build(fields)
    refused = why_not(request.state.identity)
    facts = [] if refused or kind.describe is None else await kind.describe(request, fields)
    return render(
        request,
        "confirm.html.jinja",
        view="",
        title=kind.title,
        kind=kind,
        fields=fields,
        facts=facts,
        line=action.line,
        refused=refused,
    )


@router.post(
    "/act/{name}",
    summary="Act as yourself",
    responses={
        400: {"description": "a field is wrong"},
        403: {"description": "the CSRF token is missing, or the server cannot act as you"},
        409: {"description": "the command failed"},
        415: {"description": "the body is not a form"},
    },
)
async def act(request: Request, name: str) -> Response:
    """Run the action as the user who asks: lease, reserve, release, cancel-reservation, submit, cancel, or retry.

    The body is a form; browsers also send the field `csrf`. With `Accept: application/json`, the answer is JSON.
    """
    kind = _find_kind(name)
    fields = parse_form(request.headers, await request.body())
    action = kind.build({key: value for key, value in fields.items() if key != "csrf"})
    outcome = await asyncio.to_thread(perform, request.state.identity, action)
    for source in request.app.state.sources:
        source.expire()
    status = 200 if outcome.ok else 409
    if request.headers.get("accept", "").startswith("application/json"):
        document = {
            "command": action.line,
            "status": outcome.status,
            "output": outcome.output,
            "errors": outcome.errors,
        }
        return JSONResponse(document, status)
    return render(
        request,
        "outcome.html.jinja",
        view="",
        title=kind.title,
        status=status,
        kind=kind,
        line=action.line,
        outcome=outcome,
    )
