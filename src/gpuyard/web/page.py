"""Render views: templates that escape all text, with the links and the explanation that every view has."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from gpuyard.printable import make_printable
from gpuyard.report import formats
from gpuyard.report.answer import Answer, format_json
from gpuyard.report.html import render_part_list
from gpuyard.version import DOCUMENTATION, __version__

VIEWS = (
    ("now", "/", "Now"),
    ("jobs", "/jobs", "Jobs"),
    ("history", "/history", "History"),
    ("scale", "/scale", "Scale"),
    ("buy", "/buy", "Buy"),
    ("room", "/room", "Room"),
    ("machine", "/machine", "Machine"),
    ("results", "/results", "Results"),
)
"""The name, address, and title of each view, in the order of the navigation."""


@dataclass(frozen=True)
class Computed:
    """The explanation of an answer: the same command line, notes, and the page of the documentation."""

    command: Sequence[str]
    """Words of the command line after `gpuyard`."""
    notes: Sequence[str] = ()
    docs: str = ""
    why: Answer | None = None
    """The explanation that `--why` prints."""
    further: Sequence[Sequence[str]] = ()
    """Words of further command lines, whose answers the view shows, too."""

    @property
    def docs_url(self) -> str:
        """The address of the page of the documentation."""
        return f"{DOCUMENTATION}/{self.docs.removeprefix('docs/').removesuffix('.md')}.html"

    @property
    def line(self) -> str:
        words = (self.command, *self.further)
        return "\n".join(shlex.join(("gpuyard", *command)) for command in words)


def format_options(options: Mapping[str, Any]) -> list[str]:
    """Return the words of a command line for options by their Python name; True is a flag."""
    words: list[str] = []
    for name, value in options.items():
        text = f"{value:g}" if isinstance(value, float) else str(value)
        words += [f"--{name.replace('_', '-')}", *([] if value is True else [text])]
    return words


def render(
    request: Request, template: str, *, view: str, title: str, status: int = 200, **context: Any
) -> HTMLResponse:
    """Render a template as a page."""
    app = request.app
    identity = getattr(request.state, "identity", None)
    text = (
        environment()
        .get_template(template)
        .render(
            title=title,
            view=view,
            views=VIEWS,
            identity=identity,
            csrf=app.state.csrf.create(identity) if identity else "",
            version=__version__,
            machine=app.state.machine,
            json_url=json_url(request),
            is_fragment=is_fragment(request),
            **context,
        )
    )
    return HTMLResponse(make_printable(text), status)


def render_answer(
    request: Request,
    template: str,
    answer: Answer,
    computed: Computed,
    *,
    view: str,
    **context: Any,
) -> HTMLResponse:
    """Render a view whose result is an answer: the whole page, or for htmx only the result."""
    return render(
        request,
        "result.html.jinja" if is_fragment(request) else template,
        view=view,
        title=answer.title or {name: label for name, _, label in VIEWS}[view],
        answer=answer,
        computed=computed,
        **context,
    )


def render_json(document: Any, status: int = 200) -> Response:
    """Render a document exactly as the command's `--json` prints it."""
    return Response(format_json(document), status, media_type="application/json")


def is_fragment(request: Request) -> bool:
    """Return whether htmx asks for the changed part of a page only."""
    headers = request.headers
    needs_page = "true" in (headers.get("hx-boosted"), headers.get("hx-history-restore-request"))
    return headers.get("hx-request") == "true" and not needs_page


def json_url(request: Request, **changes: str) -> str:
    """Return the address of the view's document."""
    path = request.url.path.removesuffix("/") or "/now"
    query = urlencode([*request.query_params.multi_items(), *changes.items()])
    return f"{path}.json" + (f"?{query}" if query else "")


@cache
def environment() -> Environment:
    """Return the templates; everything that they show is escaped."""
    templates = Environment(
        loader=PackageLoader("gpuyard.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {
        "percent": formats.percent,
        "size": formats.size,
        "number": formats.number,
        "elapsed": formats.elapsed,
        "usd": formats.usd,
        "clock": format_clock,
        "grouped": lambda text: f"{int(text):,}" if text.isdigit() and len(text) > 4 else text,
    }
    templates.globals |= {"answer_html": answer_html}
    return templates


def answer_html(answer: Answer, level: int = 2) -> Markup:
    """Render the parts of an answer with its charts; its templates escape all text, too."""
    return Markup(render_part_list(answer, level))  # noqa: S704


def format_clock(timestamp: str | None) -> str:
    """Format a time of today as "14:05", another one with its day."""
    if not timestamp:
        return formats.MISSING
    when, now = datetime.fromisoformat(timestamp).astimezone(), datetime.now().astimezone()
    if when.date() == now.date():
        return when.strftime("%H:%M")
    return when.strftime("%a %H:%M" if abs((when - now).days) < 6 else "%Y-%m-%d")
