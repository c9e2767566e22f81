"""Jobs: the list with filters, and a job's page with its state, outlook, curves, and live log."""

import asyncio
import itertools
import json
import pwd
import subprocess
import threading
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, Field
from starlette.types import Receive, Scope, Send

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.jobs.job import FINAL, Handle
from gpuyard.report.answer import Answer, DefinitionList, Sentence
from gpuyard.report.kept import decode_answer
from gpuyard.web.acting import Action, NotPermitted, Outcome, perform, start_stream
from gpuyard.web.auth import Identity, create_identity
from gpuyard.web.job_log import clean_lines, follow_log, read_log, stop_process
from gpuyard.web.page import Computed, render, render_json

router = APIRouter()
_STATES = ("", "queued", "running", "succeeded", "failed", "cancelled", "lost", "unknown")
_MAX_FOLLOWERS = 40
_followers = threading.BoundedSemaphore(_MAX_FOLLOWERS)
_CONTROL_FACTS = ("handle", "uuid", "logs", "canceling", "elapsed_seconds")


class JobsQuery(BaseModel):
    """The parameters of the list."""

    state: Annotated[str, Field(max_length=12)] = ""
    search: Annotated[str, Field(max_length=100, description="part of a name or command")] = ""
    ended: Annotated[int, Field(ge=0, le=1000, description="ended jobs to show")] = 50
    user: Annotated[str, Field(max_length=64, description="another user, for admins")] = ""


def choose_owner(identity: Identity, user: str) -> Identity:
    """Return whose jobs are shown; only admins may see those of others."""
    if not user or user == identity.user:
        return identity
    if not identity.is_admin:
        raise NotPermitted(f"only admins may see the jobs and logs of {user}")
    try:
        return create_identity(pwd.getpwnam(user).pw_uid)
    except (KeyError, ValueError):
        raise UserMistake(f"the account {user!r} was not found") from None


def list_user_jobs(owner: Identity, ended: int) -> dict[str, Any]:
    """Return the document of `gpuyard queue --json`, read as the owner of the jobs."""
    if owner.is_own:
        from gpuyard.api.queue import queue

        return dict(queue(last=ended or None).answer.document)
    return _run_json(owner, ("queue", *(("--last", str(ended)) if ended else ()), "--json"))


def _run_json(owner: Identity, words: tuple[str, ...]) -> dict[str, Any]:
    return _parse_output(perform(owner, Action(words)))


def _parse_output(outcome: Outcome) -> dict[str, Any]:
    """Return the JSON that a command printed; raise its error if it failed."""
    if not outcome.ok:
        raise UserMistake(outcome.errors.removeprefix("gpuyard: ").strip())
    try:
        return dict(json.loads(outcome.output))
    except (ValueError, TypeError) as error:
        raise GpuyardError("the command did not print the JSON that was expected") from error


def _filter(document: dict[str, Any], query: JobsQuery) -> dict[str, Any]:
    text = query.search.lower()
    jobs = [
        job
        for job in document["jobs"]
        if (not query.state or job["state"] == query.state)
        and text in f"{job['handle']} {job['name']} {' '.join(job['command'])}".lower()
    ]
    return {**document, "jobs": list(reversed(jobs))}


def _compute(words: tuple[str, ...], note: str) -> Computed:
    return Computed(words, (note,), "docs/jobs.md")


@router.get("/jobs", include_in_schema=False)
def show_jobs(request: Request, query: Annotated[JobsQuery, Query()]) -> Response:
    owner = choose_owner(request.state.identity, query.user)
    document = _filter(list_user_jobs(owner, query.ended), query)
    return render(
        request,
        "jobs.html.jinja",
        view="jobs",
        title="Jobs",
        owner=owner,
        document=document,
        query=query,
        states=_STATES,
        job_url=lambda handle: job_url(handle, query.user),
        computed=_compute(
            ("queue", "--last", str(query.ended)),
            "The list is read as the owner of the jobs, on every engine that can be used here.",
        ),
    )


def job_url(handle: str, user: str = "") -> str:
    """Return the address of a job's page."""
    return f"/job?handle={quote(handle, safe='')}" + (f"&user={quote(user)}" if user else "")


@router.get("/jobs.json", summary="Jobs of a user on all engines")
def get_jobs(request: Request, query: Annotated[JobsQuery, Query()]) -> Response:
    """Return what `gpuyard queue --json` prints, filtered and newest first."""
    owner = choose_owner(request.state.identity, query.user)
    return render_json(_filter(list_user_jobs(owner, query.ended), query))


HandleQuery = Annotated[str, Query(max_length=300, description="handle like local://17")]
UserQuery = Annotated[str, Query(max_length=64, description="another user, for admins")]


def read_job(owner: Identity, handle: str, identity: Identity) -> Answer:
    """Return everything about a job, read as its owner. For others, only plain facts leave the owner's process."""
    Handle.parse(handle)
    if owner.is_own:
        from gpuyard.api.job_page import describe_job

        return describe_job(handle)
    if owner.uid == identity.uid:
        outcome = perform(owner, Action((handle,), module="gpuyard.web.job_of_owner"))
        return decode_answer(_parse_output(outcome))
    document = _run_json(owner, ("status", handle, "--json"))
    facts = [
        (name.replace("_", " "), str(value))
        for name, value in document.items()
        if value not in (None, [], "") and name not in _CONTROL_FACTS
    ]
    note = f"{owner.user} sees the outlook and the curves of this job on their own page."
    return Answer([DefinitionList(facts), Sentence(note, "quiet")], document, title=handle)


@router.get("/job", include_in_schema=False)
def show_job(request: Request, handle: HandleQuery, user: UserQuery = "") -> Response:
    owner = choose_owner(request.state.identity, user)
    answer = read_job(owner, handle, request.state.identity)
    return render(
        request,
        "job.html.jinja",
        view="jobs",
        title=str(answer.document.get("name") or handle),
        answer=answer,
        job=answer.document,
        owner=owner,
        user=user,
        is_open=answer.document["state"] not in FINAL,
        done=round(100 * (answer.document.get("done") or 0) / 5) * 5,
        computed=Computed(
            ("status", handle),
            (
                "The expected speed is the prediction at the submission, with its 90% interval; the measured one is what "
                "the job reports with gpuyard.step().",
            ),
            "docs/jobs.md",
            further=[("queue", "explain", handle)] if answer.document.get("outlook") else (),
        ),
    )


@router.get("/job.json", summary="Status, outlook, and expected speed of a job")
def get_job(request: Request, handle: HandleQuery, user: UserQuery = "") -> Response:
    """Return what `gpuyard status --json` prints, with the expected speed."""
    identity = request.state.identity
    return render_json(read_job(choose_owner(identity, user), handle, identity).document)


@router.get("/job/log.txt", summary="Log of a job", response_class=Response)
def get_log(
    request: Request,
    handle: HandleQuery,
    user: UserQuery = "",
    search: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """Return the output of all starts of a job, or its lines that contain a text."""
    owner = choose_owner(request.state.identity, user)
    lines = clean_lines(read_log(owner, handle), search.lower())
    first = next(lines, "")  # an error comes before the response begins
    return StreamingResponse(
        itertools.chain((first,), lines), media_type="text/plain; charset=utf-8"
    )


@router.get("/events/log", include_in_schema=False)
async def stream_log(request: Request, handle: HandleQuery, user: UserQuery = "") -> Response:
    """Follow the log of a job: the last part first, then every new line, and `end` when the job has ended."""
    owner = choose_owner(request.state.identity, user)
    Handle.parse(handle)
    if not _followers.acquire(blocking=False):
        raise UserMistake("too many logs are being followed; reload the page later")
    try:
        action = Action(("logs", "--follow", handle))
        process = await asyncio.to_thread(start_stream, owner, action)
    except BaseException:
        _followers.release()
        raise
    return _LogStream(request, process)


class _LogStream(StreamingResponse):
    """The events of a log. Its process ends with the response, also if the page was closed before the first event."""

    def __init__(self, request: Request, process: "subprocess.Popen[bytes]") -> None:
        super().__init__(
            follow_log(request, process),
            media_type="text/event-stream",
            headers={"X-Accel-Buffering": "no"},
        )
        self._process = process

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            _followers.release()
            asyncio.get_running_loop().remove_reader(self._process.stdout)  # type: ignore[arg-type]
            stop_process(self._process)  # not awaited, because this task may be cancelled
