"""An answer as one HTML file: words first, then charts, then every number.

Everything is inlined and a content security policy forbids the rest, so the page opens from a file and
never touches the network. Names that strangers wrote are escaped by the template, every one of them.
"""

import base64
import hashlib
import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from gpuyard import __version__
from gpuyard.files import write_text
from gpuyard.printable import printable
from gpuyard.report.answer import Answer, Chart, Column, Only, Part, Section, Text, Words, finite

_NUMBER = re.compile(r"^(?:|–|never|[±+−×-]? ?[$€]?[\d,.]*\d.{0,40})$")


def render_page(answer: Answer) -> str:
    """The whole page, with all that it needs inside."""
    charts = answer.charts()
    echarts, script = _asset("vendor/echarts/echarts.min.js"), _asset("static/report.js")
    page = (
        _environment()
        .get_template("answer.html.jinja")
        .render(
            answer=answer,
            sections=list(_sections(answer.parts)),
            charts_json=_inline_json([_chart_json(chart) for chart in charts]),
            style=Markup(_asset("static/report.css")),  # noqa: S704 - ours, not a stranger's
            echarts=Markup(echarts) if charts else "",  # noqa: S704
            script=Markup(script),  # noqa: S704
            script_hashes=[_csp_hash(echarts), _csp_hash(script)] if charts else [],
            echarts_version=_echarts_version(),
            version=__version__,
        )
    )
    return printable(page)


def _sections(parts: Sequence[Part]) -> Iterator[Section]:
    """What the contents name."""
    for part in parts:
        if isinstance(part, Section) and part.anchor:
            yield part
        elif isinstance(part, Only) and part.reader == "page":
            yield from _sections(part.parts)


def write_page(answer: Answer, path: Path) -> None:
    """One file that opens from disk and loads nothing."""
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
    environment.filters |= {"text": _text, "tone": _tone, "kind": lambda part: type(part).__name__}
    environment.globals |= {"columns_of": _columns, "numeric": _numeric, "svg": Markup}
    return environment


def _text(words: Words) -> str:
    return words.text if isinstance(words, Text) else words


def _tone(words: Words) -> str:
    return words.tone if isinstance(words, Text) else "plain"


def _columns(table: Any) -> list[str]:
    return [c.name if isinstance(c, Column) else c for c in table.columns]


def _numeric(table: Any) -> list[bool]:
    """Which columns hold numbers: they stand to the right."""
    cells = zip(*([_text(cell) for cell in row] for row in table.rows), strict=True)
    found = [any(column) and all(map(_NUMBER.match, column)) for column in cells]
    return found or [False] * len(table.columns)


def _asset(path: str) -> str:
    return files("gpuyard.report").joinpath(path).read_text(encoding="utf-8")


def _echarts_version() -> str:
    return str(tomllib.loads(_asset("vendor/echarts/VERSION.toml"))["version"])


def _csp_hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _chart_json(chart: Chart) -> dict[str, Any]:
    return {
        "id": chart.id,
        "shown": chart.shown,
        "heights": chart.heights,
        "options": dict(chart.options),
    }


def _inline_json(value: Any) -> Markup:
    """JSON that can stand inside <script>: no name in it can close the element or open a comment."""
    text = json.dumps(finite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(  # noqa: S704
        text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    )
