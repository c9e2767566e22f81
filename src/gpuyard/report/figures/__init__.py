"""Charts of a study, a plan and a comparison of costs: pure functions from a result to an ECharts option."""

from gpuyard.report.figures.break_even import (
    break_even_option,
    hours_break_even_option,
    hours_break_even_rows,
)
from gpuyard.report.figures.cost_curves import (
    cash_curve_option,
    duration_curve_option,
    growth_option,
)
from gpuyard.report.figures.epoch_time import epoch_table, epoch_time_option
from gpuyard.report.figures.frame import Option
from gpuyard.report.figures.marks import Look, Looks, here_platform, looks_of
from gpuyard.report.figures.pareto import pareto_option
from gpuyard.report.figures.points import batches_of, reference_batch
from gpuyard.report.figures.scaling import efficiency_option, throughput_option
from gpuyard.report.figures.sensitivity import (
    input_name,
    input_value,
    saving_histogram_option,
    tornado_option,
)
from gpuyard.report.figures.step_split import step_split_option

__all__ = [
    "Look",
    "Looks",
    "Option",
    "batches_of",
    "break_even_option",
    "cash_curve_option",
    "duration_curve_option",
    "efficiency_option",
    "epoch_table",
    "epoch_time_option",
    "growth_option",
    "here_platform",
    "hours_break_even_option",
    "hours_break_even_rows",
    "input_name",
    "input_value",
    "looks_of",
    "pareto_option",
    "reference_batch",
    "saving_histogram_option",
    "step_split_option",
    "throughput_option",
    "tornado_option",
]
