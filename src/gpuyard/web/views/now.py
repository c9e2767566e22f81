"""Now: who has what, what is free, and is anything wrong, live."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse

from gpuyard.printable import make_printable
from gpuyard.report.answer import format_json
from gpuyard.share.clock import iso_timestamp
from gpuyard.web.auth import Identity, may_continue
from gpuyard.web.page import Computed, environment, render
from gpuyard.web.sampling import Sample, Sampler

router = APIRouter()
_MAX_ROWS = 32
"""Machines with more GPUs are shown as a map, with the rows folded."""
_MAX_RENDERINGS = 200
_COMPUTED = Computed(
    ("who", "--watch"),
    (
        "One reading every 2 seconds serves all viewers. Use, memory, temperature, and power come from the GPU's driver.",
        "A lease is idle from the first of its readings without use until its GPUs compute again.",
        "A request's start is expected when the leases before it have used all of their time; it is unknown if one has "
        "no time limit.",
    ),
    "docs/share.md",
)


@dataclass
class OwnerRow:
    """The GPUs of one lease."""

    user: str
    lease: str
    machine: str
    gpus: list[int] = field(default_factory=list)
    utilization: list[float] = field(default_factory=list)
    memory_used_bytes: int = 0
    share: float = 1.0
    since: str | None = None
    until: str | None = None
    idle_since: str | None = None
    command: str | None = None
    project: str | None = None
    may_release: bool = False

    @property
    def mean_utilization(self) -> float | None:
        return sum(self.utilization) / len(self.utilization) if self.utilization else None


async def take_samples(
    sources: Sequence[Sampler], *, newest: bool = False
) -> list[tuple[Sampler, Sample]]:
    """Return the latest sample of every source."""
    samples = await asyncio.gather(*(source.current(newest=newest) for source in sources))
    return list(zip(sources, samples, strict=True))


def hide_commands(share: Mapping[str, Any], identity: Identity) -> dict[str, Any]:
    """Remove other users' commands, which can contain secrets, as the share's service does."""

    def hide(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        return [
            {**row, "command": row.get("command") if row["user"] == identity.user else None}
            for row in rows
        ]

    gpus = [{**gpu, "leases": hide(gpu["leases"])} for gpu in share["gpus"]]
    return {**share, "gpus": gpus, "queue": hide(share["queue"])}


def describe_samples(
    samples: Sequence[tuple[Sampler, Sample]], identity: Identity
) -> dict[str, Any]:
    """Return the document of the view: that of `gpuyard who --json` for every machine, with its age."""
    rows = []
    for source, sample in samples:
        document = sample.document or {"machines": {source.name: None}}
        hides = not (document.get("commands_visible") or identity.is_admin)
        for name, share in document["machines"].items():
            rows.append(
                {
                    "name": name,
                    "source": source.name,
                    "taken": iso_timestamp(sample.taken),
                    "age_seconds": round(sample.age_seconds, 1),
                    "error": sample.error or None,
                    "usd_per_gpu_hour": document.get("usd_per_gpu_hour"),
                    "can_release": document.get("can_release", False),
                    "share": hide_commands(share, identity) if share and hides else share,
                }
            )
    return {"sources": rows}


def summarize(document: Mapping[str, Any], identity: Identity) -> dict[str, Any]:
    """Arrange the documents for the page: totals, a row per lease, a cell per GPU, and everything that is wrong."""
    machines, owners, queue, jobs, reserved, withheld = [], [], [], [], [], []
    kept = 0
    problems: list[str] = []
    for source in document["sources"]:
        share = source["share"]
        if source["error"]:
            problems.append(f"{source['name']}: {source['error']}")
        if share is None:
            continue
        troubled = {violation["gpu"] for violation in share["violations"]}
        cells = [_describe_cell(gpu, troubled) for gpu in share["gpus"]]
        kept += _mark_kept(cells, sum(row["gpus"] for row in share.get("withheld", [])))
        machines.append({**source, "cells": cells, "guard": share["guard"]})
        owners += _group_by_lease(source, identity)
        queue += [{**row, "machine": source["name"]} for row in share["queue"]]
        jobs += share.get("jobs", [])
        reserved += share.get("reservations", [])
        withheld += share.get("withheld", [])
        where = f"{source['name']}: " if len(document["sources"]) > 1 else ""
        sentences = [violation["sentence"] for violation in share["violations"]]
        sentences += share.get("problems", [])
        sentences += [share["conflict"]] if share.get("conflict") else []
        problems += [f"{where}{sentence}" for sentence in sentences]
    states = [cell["state"] for machine in machines for cell in machine["cells"]]
    return {
        "machines": machines,
        "owners": sorted(owners, key=lambda row: (row.idle_since is None, row.user, row.gpus)),
        "queue": queue,
        "jobs": jobs,
        "reservations": reserved,
        "withheld": withheld,
        "problems": problems,
        "max_rows": _MAX_ROWS,
        "has_own": any(source["source"] == os.uname().nodename for source in document["sources"]),
        "total": len(states),
        "free": states.count("free") + states.count("kept") - kept,
        "kept": kept,
        "kept_for": ", ".join(dict.fromkeys(row["user"] for row in withheld)),
        "used": sum(state not in ("free", "kept", "drained") for state in states),
        "idle": sum(len(row.gpus) for row in owners if row.idle_since),
        "waiting": len(queue) + len(jobs),
    }


def _mark_kept(cells: Sequence[dict[str, Any]], withheld: int) -> int:
    """Return how many free GPUs are kept for a request or job. Only if all are, it is known which."""
    free = [cell for cell in cells if cell["state"] == "free"]
    if withheld >= len(free):
        for cell in free:
            cell["state"] = "kept"
    return min(withheld, len(free))


def _describe_cell(gpu: Mapping[str, Any], troubled: set[int | None]) -> dict[str, Any]:
    users = list(dict.fromkeys(lease["user"] for lease in gpu["leases"]))
    state = "free"
    if gpu["leases"]:
        idle = all(lease.get("idle_since") for lease in gpu["leases"])
        state = "idle" if idle else "leased"
    elif gpu.get("drained"):
        state = "drained"
    elif gpu.get("busy"):
        state = "problem"
    if gpu["index"] in troubled:
        state = "problem"
    readable = gpu["utilization"] is not None or gpu["memory_used_bytes"] is not None
    health = "memory errors" if gpu.get("memory_errors") else "ok" if readable else "unknown"
    return {
        **gpu,
        "memory_errors": gpu.get("memory_errors"),
        "state": state,
        "users": users,
        "health": health,
        "bar": round(100 * (gpu["utilization"] or 0) / 5) * 5,
        "idle_since": next(
            (lease["idle_since"] for lease in gpu["leases"] if lease.get("idle_since")), None
        ),
    }


def _group_by_lease(source: Mapping[str, Any], identity: Identity) -> list[OwnerRow]:
    rows: dict[str, OwnerRow] = {}
    share = source["share"]
    for gpu in share["gpus"]:
        for lease in gpu["leases"]:
            row = rows.get(lease["id"])
            if row is None:
                row = rows[lease["id"]] = OwnerRow(
                    lease["user"],
                    lease["id"],
                    source["name"],
                    share=lease["share"],
                    since=lease["since"],
                    until=lease["until"],
                    idle_since=lease.get("idle_since"),
                    command=lease["command"],
                    project=lease.get("project"),
                    may_release=source["can_release"]
                    and (identity.is_admin or lease["user"] == identity.user),
                )
            row.gpus.append(gpu["index"])
            if gpu["utilization"] is not None:
                row.utilization.append(gpu["utilization"])
            row.memory_used_bytes += gpu["memory_used_bytes"] or 0
    return list(rows.values())


def format_ranges(indices: Sequence[int]) -> str:
    """Format [0, 1, 2, 5] as "0–2, 5"."""
    ranges: list[tuple[int, int]] = []
    for index in sorted(indices):
        if ranges and index == ranges[-1][1] + 1:
            ranges[-1] = ranges[-1][0], index
        else:
            ranges.append((index, index))
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in ranges)


def render_live(document: Mapping[str, Any], identity: Identity) -> str:
    """Render the part of the page that changes."""
    template = environment().get_template("now_live.html.jinja")
    return make_printable(
        template.render(
            now=summarize(document, identity), identity=identity, format_ranges=format_ranges
        )
    )


@dataclass
class Rendering:
    """One reading as one user may see it; all of the user's requests share it."""

    serials: tuple[int, ...]
    document: dict[str, Any]
    identity: Identity

    @cached_property
    def live(self) -> str:
        """The part of the page that changes."""
        return render_live(self.document, self.identity)

    @cached_property
    def event(self) -> str:
        """The live part as a server-sent event."""
        return _format_event("now", self.live)

    @cached_property
    def json(self) -> str:
        """The document as text."""
        return format_json(self.document)


async def render_now(app: Any, identity: Identity, *, newest: bool = False) -> Rendering:
    """Return the rendering of the latest reading."""
    samples = await take_samples(app.state.sources, newest=newest)
    serials = tuple(sample.serial for _, sample in samples)
    kept: dict[tuple[int, bool], Rendering] = app.state.renderings
    key = (identity.uid, identity.is_admin)
    if key not in kept or kept[key].serials != serials:
        if len(kept) > _MAX_RENDERINGS:
            kept.clear()
        kept[key] = Rendering(serials, describe_samples(samples, identity), identity)
    return kept[key]


@router.get("/", include_in_schema=False)
async def show_now(request: Request) -> Response:
    rendering = await render_now(request.app, request.state.identity)
    return render(
        request,
        "now.html.jinja",
        view="now",
        title="Now",
        live=rendering.live,
        can_lease=any(source["can_release"] for source in rendering.document["sources"]),
        computed=_COMPUTED,
    )


@router.get("/now.json", summary="GPUs, leases, queue, and violations of every machine")
async def get_now(request: Request) -> Response:
    """Return what `gpuyard who --json` prints for every machine, with the age of its data."""
    rendering = await render_now(request.app, request.state.identity)
    return Response(rendering.json, media_type="application/json")


@router.get("/events/now", include_in_schema=False)
async def stream_now(request: Request) -> Response:
    headers = {"X-Accel-Buffering": "no"}
    return StreamingResponse(_stream(request), media_type="text/event-stream", headers=headers)


async def _stream(request: Request) -> AsyncIterator[str]:
    """Yield the live part as a server-sent event whenever a source has a new sample."""
    app, identity = request.app, request.state.identity
    sent: tuple[int, ...] = ()
    while may_continue(request) and not await request.is_disconnected():
        rendering = await render_now(app, identity, newest=True)
        if rendering.serials != sent:
            yield rendering.event
            sent = rendering.serials
        due = min(source.remaining_seconds for source in app.state.sources)
        await asyncio.sleep(max(0.1, due))


def _format_event(name: str, text: str) -> str:
    data = "\n".join(f"data: {line}" for line in text.splitlines() if line.strip())
    return f"event: {name}\n{data}\n\n"
