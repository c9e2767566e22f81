"""Charts of a study: one file each, all pure functions from a result to an ECharts option."""

from gpuyard.report.figures.batches import batches_of, reference_batch
from gpuyard.report.figures.break_even import break_even_option
from gpuyard.report.figures.cash_curve import cash_curve_option
from gpuyard.report.figures.duration_curve import duration_curve_option
from gpuyard.report.figures.efficiency import efficiency_option
from gpuyard.report.figures.epoch_time import epoch_time_option
from gpuyard.report.figures.frame import Option
from gpuyard.report.figures.growth import growth_option
from gpuyard.report.figures.hours_break_even import hours_break_even_option, hours_break_even_rows
from gpuyard.report.figures.looks import Look, Looks, here_platform, looks_of
from gpuyard.report.figures.pareto import pareto_option
from gpuyard.report.figures.saving_histogram import saving_histogram_option
from gpuyard.report.figures.step_split import step_split_option
from gpuyard.report.figures.throughput import throughput_option
from gpuyard.report.figures.tornado import input_name, input_value, tornado_option

__all__ = [
    "Look",
    "Looks",
    "Option",
    "batches_of",
    "break_even_option",
    "cash_curve_option",
    "duration_curve_option",
    "efficiency_option",
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
