"""Charts of a study: one file each, all pure functions from a result to an ECharts option."""

from gpuyard.report.figures.batches import batches_of, reference_batch
from gpuyard.report.figures.break_even import break_even_option
from gpuyard.report.figures.efficiency import efficiency_option
from gpuyard.report.figures.epoch_time import epoch_time_option
from gpuyard.report.figures.frame import Option
from gpuyard.report.figures.looks import Look, Looks, here_platform, looks_of
from gpuyard.report.figures.pareto import pareto_option
from gpuyard.report.figures.step_split import step_split_option
from gpuyard.report.figures.throughput import throughput_option

__all__ = [
    "Look",
    "Looks",
    "Option",
    "batches_of",
    "break_even_option",
    "efficiency_option",
    "epoch_time_option",
    "here_platform",
    "looks_of",
    "pareto_option",
    "reference_batch",
    "step_split_option",
    "throughput_option",
]
