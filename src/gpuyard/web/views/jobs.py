"""Jobs: the list with filters, and a job's page with its state, outlook, curves, and live log."""

import asyncio
import contextlib
import json
import os
import pwd
import re
import signal
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, Field

from gpuyard.errors import UserMistake
from gpuyard.jobs.job import Handle
from gpuyard.printable import make_printable
from gpuyard.report.answer import Answer, DefinitionList, Sentence
from gpuyard.web.acting import Action, NotPermitted, perform, start_stream
from gpuyard.web.auth import Identity, create_identity, may_continue
from gpuyard.web.page import Computed, render, render_json

router = APIRouter()
_STATES = ("", "queued", "running", "succeeded", "failed", "cancelled", "lost", "unknown")
_MAX_FOLLOWERS = 40
_followers = threading.BoundedSemaphore(_MAX_FOLLOWERS)
_TERMINAL_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
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
    outcome = perform(owner, Action(words))
    if not outcome.ok:
        raise UserMistake(outcome.errors.removeprefix("gpuyard: ").strip())
    return dict(json.loads(outcome.output))


def _filter(document: dict[str, Any], query: JobsQuery) -> dict[str, Any]:
    wanted = query.search.lower()
    jobs = [
        job
        for job in document["jobs"]
        if (not query.state or job["state"] == query.state)
        and wanted in f"{job['handle']} {job['name']} {' '.join(job['command'])}".lower()
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


def read_job(owner: Identity, handle: str) -> Answer:
    """Return everything about a job, read as its owner."""
    Handle.parse(handle)
    if owner.is_own:
        from gpuyard.api.job_page import describe_job

        return describe_job(handle)
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
    answer = read_job(owner, handle)
    return render(
        request,
        "job.html.jinja",
        view="jobs",
        title=str(answer.document.get("name") or handle),
        answer=answer,
        job=answer.document,
        owner=owner,
        user=user,
        done=round(100 * (answer.document.get("done") or 0) / 5) * 5,
        computed=_compute(
            ("status", handle),
            "The expected speed is the prediction at the submission, with its 90% interval; the measured one is what the "
            "job reports with gpuyard.step().",
        ),
    )


@router.get("/job.json", summary="Status, outlook, and expected speed of a job")
def get_job(request: Request, handle: HandleQuery, user: UserQuery = "") -> Response:
    """Return what `gpuyard status --json` prints, with the expected speed."""
    return render_json(read_job(choose_owner(request.state.identity, user), handle).document)


@router.get("/job/log.txt", summary="Log of a job", response_class=Response)
def get_log(
    request: Request,
    handle: HandleQuery,
    user: UserQuery = "",
    search: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """Return the output of all starts of a job, or its lines that contain a text."""
    owner = choose_owner(request.state.identity, user)
    text = "".join(_read_log(owner, handle))
    if search:
        wanted = search.lower()
        text = "".join(line for line in text.splitlines(keepends=True) if wanted in line.lower())
    return Response(clean_log(text), media_type="text/plain; charset=utf-8")


def clean_log(text: str) -> str:
    """Remove what only a terminal understands."""
    plain = _TERMINAL_CODES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return make_printable(plain)


def _read_log(owner: Identity, handle: str) -> Iterator[str]:
    parsed = Handle.parse(handle)
    if owner.is_own:
        from gpuyard.jobs.engines.base import load_engine

        yield from load_engine(parsed.engine).logs(parsed, False)
        return
    outcome = perform(owner, Action(("logs", str(parsed))))
    if not outcome.ok:
        raise UserMistake(outcome.errors.removeprefix("gpuyard: ").strip())
    yield outcome.output


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
    return StreamingResponse(
        _follow(request, process),
        media_type="text/event-stream",
        headers={"X-Accel-Buffering": "no"},
    )


async def _follow(request: Request, process: "subprocess.Popen[bytes]") -> AsyncIterator[str]:
    assert process.stdout is not None  # noqa: S101 - for the type checker
    loop = asyncio.get_running_loop()
    descriptor = process.stdout.fileno()
    queue: asyncio.Queue[bytes] = asyncio.Queue()
    os.set_blocking(descriptor, False)

    def read() -> None:
        with contextlib.suppress(BlockingIOError):
            chunk = os.read(descriptor, 65_536)
            queue.put_nowait(chunk)
            if not chunk:
                loop.remove_reader(descriptor)

    loop.add_reader(descriptor, read)
    try:
        while may_continue(request):
            try:
                chunk = await asyncio.wait_for(queue.get(), 5.0)
            except TimeoutError:
                if await request.is_disconnected():
                    return
                yield ": still there\n\n"
                continue
            if not chunk:
                yield "event: end\ndata: end\n\n"
                return
            text = clean_log(chunk.decode(errors="replace"))
            yield f"event: log\ndata: {json.dumps(text)}\n\n"
    finally:
        loop.remove_reader(descriptor)
        _followers.release()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()
        await asyncio.to_thread(process.wait)
