"""Which charts a report has: each with its place on the page and its options by batch size."""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from gpuyard.planner import PlanResult
from gpuyard.report.figures.break_even import break_even_option
from gpuyard.report.figures.cost_curves import cash_curve_option
from gpuyard.report.figures.epoch_time import epoch_time_option
from gpuyard.report.figures.frame import Option
from gpuyard.report.figures.marks import Looks
from gpuyard.report.figures.pareto import pareto_option
from gpuyard.report.figures.points import batches_of, reference_batch
from gpuyard.report.figures.scaling import efficiency_option, throughput_option
from gpuyard.report.figures.sensitivity import tornado_option
from gpuyard.report.figures.step_split import step_split_option
from gpuyard.study.result import StudyResult, WorkloadResult

ALL_BATCHES = "all"
_HEIGHT = 340  # of the chart without its legend, in CSS pixels
_BAR_HEIGHT = 36


@dataclass(frozen=True)
class Chart:
    """One chart: an option for each batch size, or one for all."""

    id: str
    caption: str
    shown: str  # the key of the option that is drawn first
    options: dict[str, Option]

    @property
    def wide(self) -> bool:
        """The batch axis gains most from width."""
        return self.id.startswith("chart-epoch-time")

    @property
    def tall(self) -> bool:
        """Takes the height of two charts above each other."""
        return self.heights[self.shown] > 1.5 * _HEIGHT

    @property
    def heights(self) -> dict[str, int]:
        """Pixels for each option; bars on a y axis need room for each."""
        return {key: _height(option) for key, option in self.options.items()}


@dataclass(frozen=True)
class WorkloadCharts:
    """The charts of one workload and the batch sizes to choose from."""

    slug: str
    workload: WorkloadResult
    batches: tuple[int, ...]
    shown_batch: int | None
    charts: tuple[Chart, ...]


def slugs(names: Iterable[str]) -> list[str]:
    """A unique ASCII id for each name."""
    taken: dict[str, None] = {}
    for position, name in enumerate(names, 1):
        ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
        slug = re.sub(r"[^a-z0-9]+", "-", ascii_name).strip("-")[:60] or f"workload-{position}"
        while slug in taken:
            slug += f"-{position}"
        taken[slug] = None
    return list(taken)


def workload_charts(result: StudyResult, looks: Looks) -> list[WorkloadCharts]:
    """Every workload's charts, in the order of the study."""
    names = slugs(workload.name for workload in result.workloads)
    return [
        WorkloadCharts(
            slug,
            workload,
            batches_of(workload),
            reference_batch(workload),
            tuple(_charts(slug, workload, looks)),
        )
        for slug, workload in zip(names, result.workloads, strict=True)
    ]


def cost_chart(result: StudyResult) -> Chart | None:
    """Renting against buying, where prices were given."""
    if result.cost is None:
        return None
    return Chart(
        "chart-break-even",
        "Where the renting line crosses a buying line, both cost the same; right of it, buying is "
        "cheaper. Purchase price only; running costs are in the chart of payments.",
        ALL_BATCHES,
        {ALL_BATCHES: break_even_option(result.cost)},
    )


def plan_chart(plan: PlanResult | None) -> Chart | None:
    """Cost against time, where a plan was made."""
    if plan is None or not plan.front:
        return None
    return Chart(
        "chart-plan",
        "Left is faster, down is cheaper. Whatever lies above the blue line is beaten by a point on it; "
        "what lies below it is ruled out. Predicted, at the prices and dates in the table.",
        ALL_BATCHES,
        {ALL_BATCHES: pareto_option(plan)},
    )


def cash_charts(result: StudyResult) -> list[Chart]:
    """Payments by month, and what decides the comparison, where prices were given."""
    if result.cost is None or result.cost.horizon is None:
        return []
    horizon = result.cost.horizon
    cash = {"owning": horizon.owned_cash_by_month, "renting": horizon.rented_cash_by_month}
    curve = cash_curve_option(cash, f"month by month, prices as given on {horizon.price_date}")
    return [
        Chart(
            "chart-cash",
            "All payments so far. Owning starts with the price of the hardware; where the lines cross, "
            "both cost the same. A drop in the last month is the resale.",
            ALL_BATCHES,
            {ALL_BATCHES: curve},
        ),
        Chart(
            "chart-tornado",
            f"Each input alone is moved by {100 * horizon.swing:.0f} % either way. If a bar reverses the "
            "saving, pin that figure down before deciding.",
            ALL_BATCHES,
            {
                ALL_BATCHES: tornado_option(
                    horizon.tornado, horizon.saving_usd, len(horizon.rented_cash_by_month) - 1
                )
            },
        ),
    ]


def _charts(slug: str, workload: WorkloadResult, looks: Looks) -> Iterable[Chart]:
    batches, shown = batches_of(workload), str(reference_batch(workload))
    if batches:
        yield Chart(
            f"chart-throughput-{slug}",
            "Dots are measured, with a 95 % confidence interval; dashed lines are predicted, with a "
            "90 % interval; the dotted line is what perfect scaling would give.",
            shown,
            {str(b): throughput_option(workload, b, looks) for b in batches},
        )
        yield Chart(
            f"chart-efficiency-{slug}",
            "Throughput as a share of what as many single GPUs would do together. The further below "
            "100 %, the less an additional GPU is worth.",
            shown,
            {str(b): efficiency_option(workload, b, looks) for b in batches},
        )
        yield Chart(
            f"chart-step-split-{slug}",
            "Shares of one step; its whole time is written at the end of the bar. Communication is "
            "what compute could not hide. Straggling is predicted only; in measured steps "
            "it is part of the other shares.",
            shown,
            {str(b): step_split_option(workload, b) for b in batches},
        )
    if workload.epoch_times:
        yield Chart(
            f"chart-epoch-time-{slug}",
            "One pass over the training data. Where a curve is flat, a bigger batch gains nothing.",
            ALL_BATCHES,
            {ALL_BATCHES: epoch_time_option(workload, looks)},
        )


def _height(option: Option) -> int:
    if option["yAxis"]["type"] != "category":
        return _HEIGHT
    return 120 + _BAR_HEIGHT * max(3, len(option["yAxis"]["data"]))
