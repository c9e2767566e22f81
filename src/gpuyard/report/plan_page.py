"""A plan as one HTML file: the choice and its reasons, the chart of cost against time, every number."""

from pathlib import Path

from gpuyard import __version__
from gpuyard.files import write_text
from gpuyard.planner import PlanResult
from gpuyard.report.chart_set import plan_chart
from gpuyard.report.page import standalone


def render_plan(plan: PlanResult) -> str:
    """The whole page."""
    chart = plan_chart(plan)
    charts = [chart] if chart else []
    return standalone("plan.html.jinja", charts, plan=plan, plan_chart=chart, version=__version__)


def write_plan(plan: PlanResult, path: Path) -> None:
    """One file that opens from disk and loads nothing."""
    write_text(path, render_plan(plan))
