"""The charts of a study: each with its caption, and an option for each batch size."""

import re
import unicodedata
from collections.abc import Iterable

from gpuyard.report.answer import ALL_BATCHES, Chart, Charts
from gpuyard.report.figures.break_even import break_even_option
from gpuyard.report.figures.cost_curves import cash_curve_option
from gpuyard.report.figures.epoch_time import epoch_time_option
from gpuyard.report.figures.marks import Looks
from gpuyard.report.figures.points import batches_of, reference_batch
from gpuyard.report.figures.scaling import efficiency_option, throughput_option
from gpuyard.report.figures.sensitivity import tornado_option
from gpuyard.report.figures.step_split import step_split_option
from gpuyard.study.result import CostResult, HorizonResult, WorkloadResult


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


def workload_charts(slug: str, workload: WorkloadResult, looks: Looks) -> Charts:
    """The charts of one workload and the batch sizes to choose from."""
    return Charts(
        list(_charts(slug, workload, looks)),
        title=f"{workload.name}, {workload.precision}",
        anchor=f"charts-{slug}",
        batches=batches_of(workload),
        shown_batch=reference_batch(workload),
    )


def break_even_chart(cost: CostResult) -> Chart:
    """Renting against buying."""
    return Chart(
        "chart-break-even",
        "Where the renting line crosses that of buying, both cost the same; right of it, buying is "
        "cheaper. Purchase price only; running costs are in the chart of payments.",
        {ALL_BATCHES: break_even_option(cost)},
    )


def cash_charts(horizon: HorizonResult) -> Charts:
    """Payments by month, and what decides the comparison."""
    cash = {"owning": horizon.owned_cash_by_month, "renting": horizon.rented_cash_by_month}
    months = len(horizon.rented_cash_by_month) - 1
    curve = cash_curve_option(cash, f"month by month, prices as given on {horizon.price_date}")
    decides = tornado_option(horizon.tornado, horizon.saving_usd, months)
    return Charts(
        [
            Chart(
                "chart-cash",
                "All payments so far. Owning starts with the price of the hardware; where the lines "
                "cross, both cost the same. A drop in the last month is the resale.",
                {ALL_BATCHES: curve},
            ),
            Chart(
                "chart-tornado",
                f"Each input alone is moved by {100 * horizon.swing:.0f} % either way. If a bar "
                "reverses the saving, pin that figure down before deciding.",
                {ALL_BATCHES: decides},
            ),
        ]
    )


def _pale(workload: WorkloadResult) -> str:
    return ", pale where doubtful" if any(p.doubt for p in workload.measured) else ""


def _charts(slug: str, workload: WorkloadResult, looks: Looks) -> Iterable[Chart]:
    batches, shown = batches_of(workload), str(reference_batch(workload))
    if batches:
        yield Chart(
            f"chart-throughput-{slug}",
            f"Dots are measured, with a 95 % confidence interval{_pale(workload)}; dashed lines are predicted, with a "
            "90 % interval; the dotted line is what perfect scaling would give.",
            {str(b): throughput_option(workload, b, looks) for b in batches},
            shown,
        )
        yield Chart(
            f"chart-efficiency-{slug}",
            "Throughput as a share of what as many single GPUs would do together. The further below "
            "100 %, the less an additional GPU is worth.",
            {str(b): efficiency_option(workload, b, looks) for b in batches},
            shown,
        )
        yield Chart(
            f"chart-step-split-{slug}",
            "Shares of one step; its whole time is written at the end of the bar. Predicted bars are "
            "hatched. Communication is what compute could not hide. Straggling is predicted only; in measured steps "
            "it is part of the other shares.",
            {str(b): step_split_option(workload, b) for b in batches},
            shown,
        )
    if workload.epoch_times:
        yield Chart(
            f"chart-epoch-time-{slug}",
            "One pass over the training data. Where a curve is flat, a bigger batch gains nothing.",
            {ALL_BATCHES: epoch_time_option(workload, looks)},
            wide=True,  # the batch axis gains most from width
        )
