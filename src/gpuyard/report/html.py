"""Renders an answer as a single HTML file.

The file contains its styles, scripts, and data, and a content security policy forbids everything else. It
opens from disk and never uses the network. The template escapes all text from outside.
"""

import base64
import hashlib
import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from gpuyard.files import write_text
from gpuyard.printable import make_printable
from gpuyard.report.answer import (
    Answer,
    Chart,
    Charts,
    Column,
    Part,
    RendererOnly,
    Section,
    StyledText,
    Text,
    replace_nonfinite,
)
from gpuyard.version import __version__

_NUMBER = re.compile(r"^(?!\d+ × )(?:|–|never|[±+−×-]? ?[$€]?[\d,.]*\d.{0,40})$")


def render_page(answer: Answer) -> str:
    """Render the whole page with everything that it needs."""
    charts = answer.charts()
    echarts, script = _read_asset("vendor/echarts/echarts.min.js"), _read_asset("static/report.js")
    page = (
        _environment()
        .get_template("answer.html.jinja")
        .render(
            answer=answer,
            sections=list(_iter_sections(answer.parts)),
            charts_json=_format_inline_json([_describe_chart(chart) for chart in charts]),
            style=Markup(_read_asset("static/report.css")),  # noqa: S704 - our own file
            echarts=Markup(echarts) if charts else "",  # noqa: S704
            script=Markup(script),  # noqa: S704
            script_hashes=[_hash_script(echarts), _hash_script(script)] if charts else [],
            echarts_version=_read_echarts_version(),
            version=__version__,
        )
    )
    return make_printable(page)


def render_part_list(answer: Answer, level: int) -> str:
    """Render the parts for a page that has ECharts and report.js, which draws the charts of the JSON that follows them."""
    parts = _environment().get_template("parts.html.jinja").module
    content = parts.render_parts(answer.parts, level)  # type: ignore[attr-defined]
    charts = [_describe_chart(chart) for chart in answer.charts()]
    data = f'<script type="application/json" data-charts>{_format_inline_json(charts)}</script>'
    return make_printable(f"{content}{data if charts else ''}")


_FRAGMENT_STYLE = (
    "<style>.gpuyard .caution{color:#b45309}.gpuyard .bad{color:#b91c1c}.gpuyard .good{color:#15803d}"
    ".gpuyard .strong{font-weight:600}.gpuyard .quiet{opacity:.7}.gpuyard svg{max-width:100%}"
    # notebooks align all cells to the right, with a selector that only a doubled class overrides
    ".gpuyard caption,.gpuyard.gpuyard table th,.gpuyard.gpuyard table td{text-align:left}"
    ".gpuyard.gpuyard table .n{text-align:right}</style>"
)


def render_fragment(answer: Answer) -> str:
    """Render the answer for a notebook: without scripts, so its charts are left out."""
    parts = _environment().get_template("parts.html.jinja").module
    content = parts.render_parts(_without_charts(answer.parts), 4)  # type: ignore[attr-defined]
    return make_printable(f'<div class="gpuyard">{_FRAGMENT_STYLE}{content}</div>')


def _without_charts(parts: Sequence[Part]) -> list[Part]:
    kept: list[Part] = []
    for part in parts:
        if isinstance(part, Section):
            kept.append(replace(part, parts=_without_charts(part.parts), anchor=""))
        elif isinstance(part, RendererOnly):
            kept += _without_charts(part.parts) if part.reader == "terminal" else []
        elif not isinstance(part, Chart | Charts):
            kept.append(part)
    return kept


def _iter_sections(parts: Sequence[Part]) -> Iterator[Section]:
    """Yield the sections for the table of contents."""
    for part in parts:
        if isinstance(part, Section) and part.anchor:
            yield part
        elif isinstance(part, RendererOnly) and part.reader == "page":
            yield from _iter_sections(part.parts)


def write_page(answer: Answer, path: Path) -> None:
    """Write the page to a file."""
    write_text(path, render_page(answer))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("gpuyard.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "text": _get_text,
        "tone": lambda styled: styled.tone if isinstance(styled, Text) else "plain",
        "kind": lambda part: type(part).__name__,
    }
    environment.globals |= {
        "column_names": list_column_names,
        "numeric_columns": find_numeric_columns,
        "svg": Markup,
    }
    return environment


def _get_text(styled: StyledText) -> str:
    return styled.text if isinstance(styled, Text) else styled


def list_column_names(table: Any) -> list[str]:
    return [c.name if isinstance(c, Column) else c for c in table.columns]


def find_numeric_columns(table: Any) -> list[bool]:
    """Tell for each column whether it holds only numbers, which are aligned right; "2 × 8 × H100" is a name."""
    columns = zip(*([_get_text(cell) for cell in row] for row in table.rows), strict=True)
    numeric = [any(column) and all(map(_NUMBER.match, column)) for column in columns]
    return numeric or [False] * len(table.columns)


def _read_asset(path: str) -> str:
    return files("gpuyard.report").joinpath(path).read_text(encoding="utf-8")


def _read_echarts_version() -> str:
    return str(tomllib.loads(_read_asset("vendor/echarts/VERSION.toml"))["version"])


def _hash_script(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _describe_chart(chart: Chart) -> dict[str, Any]:
    return {
        "id": chart.id,
        "shown": chart.shown,
        "heights": chart.heights,
        "options": dict(chart.options),
    }


def _format_inline_json(value: Any) -> Markup:
    """Format JSON for a <script> element, so that no text in it can close the element or open a comment."""
    text = json.dumps(
        replace_nonfinite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")
    )
    return Markup(  # noqa: S704
        text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    )
