"""One HTML file that tells a study to people: words first, then charts, then every number.

Everything is inlined and a content security policy forbids the rest, so the page opens from a file
and never touches the network.
"""

import base64
import hashlib
import json
import math
import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from gpuyard.files import write_text
from gpuyard.predict import Constant
from gpuyard.report import filters
from gpuyard.report.charts import (
    Chart,
    cash_charts,
    cost_chart,
    plan_chart,
    workload_charts,
)
from gpuyard.report.figures.epoch_time import epoch_table
from gpuyard.report.figures.marks import here_platform, looks_of
from gpuyard.report.figures.sensitivity import input_name, input_value
from gpuyard.study.result import StudyResult


def render_study(result: StudyResult) -> str:
    """The whole page."""
    looks = looks_of(result)
    workloads = workload_charts(result, looks)
    cost = cost_chart(result)
    charts = [chart for workload in workloads for chart in workload.charts]
    charts += [cost] if cost else []
    cash = cash_charts(result)
    charts += cash
    plan = plan_chart(result.plan)
    charts += [plan] if plan else []
    return standalone(
        "study.html.jinja",
        charts,
        result=result,
        workloads=workloads,
        cost_chart=cost,
        cash_charts=cash,
        plan=result.plan,
        plan_chart=plan,
        looks=looks,
        constants=_constants(result),
    )


def standalone(template: str, charts: list[Chart], **values: Any) -> str:
    """A page with all that it needs inside."""
    echarts, script = _asset("vendor/echarts/echarts.min.js"), _asset("static/report.js")
    return (
        _environment()
        .get_template(template)
        .render(
            **values,
            charts_json=_inline_json([_chart_json(chart) for chart in charts]),
            style=Markup(_asset("static/report.css")),  # noqa: S704 - ours, not the study's
            echarts=Markup(echarts) if charts else "",  # noqa: S704
            script=Markup(script),  # noqa: S704
            script_hashes=[_csp_hash(echarts), _csp_hash(script)],
            echarts_version=_echarts_version(),
        )
    )


def write_report(result: StudyResult, directory: Path) -> Path:
    """Write report.html and study.json into the directory; returns the path of the page."""
    page = directory / "report.html"
    document = json.dumps(_finite(result.as_json()), indent=2, ensure_ascii=False, allow_nan=False)
    write_text(directory / "study.json", document + "\n")
    write_text(page, render_study(result))
    return page


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
        "number": filters.number,
        "percent": filters.percent,
        "gain": filters.gain,
        "seconds": filters.seconds,
        "size": filters.size,
        "usd": filters.usd,
        "constant": filters.constant,
        "date": filters.date,
        "input_name": input_name,
    }
    environment.globals |= {
        "choke_names": filters.CHOKE_NAMES,
        "choke_signs": filters.CHOKE_SIGNS,
        "here_platform": here_platform,
        "epoch_table": epoch_table,
        "input_value": input_value,
    }
    return environment


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
        "options": chart.options,
    }


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return value


def _inline_json(value: Any) -> Markup:
    """JSON that can stand inside <script>: no name in it can close the element or open a comment."""
    text = json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(  # noqa: S704
        text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    )


def _constants(result: StudyResult) -> list[tuple[Constant, list[str]]]:
    """Each constant once, with the platforms whose predictions it entered."""
    used: dict[Constant, dict[str, None]] = {}
    for workload in result.workloads:
        for curve in workload.curves:
            for constant in curve.constants:
                used.setdefault(constant, {}).setdefault(curve.platform)
    return [(constant, list(platforms)) for constant, platforms in used.items()]
