"""Measurements in Prometheus' text format, for node_exporter's textfile collector or any scraper.

The last of each configuration counts: a gauge says how things are, and a label that is new for every run (an id,
a date) would make a new time series of each. Without time stamps, which the textfile collector refuses.
See https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from collections.abc import Sequence

from gpuyard.measure.export.runs import ExportedRun

_HELP = {
    "samples_per_second": "Samples trained a second, of all workers together.",
    "low": "Lower end of the 95 % interval of samples a second.",
    "high": "Upper end of the 95 % interval of samples a second.",
    "clock_samples_per_second": "Samples a second by the clock, with evaluations and checkpoints.",
    "step_seconds": "One step.",
    "compute_seconds": "Of a step, computing.",
    "exposed_communication_seconds": "Of a step, exchange of gradients that nothing hides.",
    "input_seconds": "Of a step, waiting for samples.",
    "loss_last": "The loss at the end.",
}
_LABELS = (
    "model", "precision", "strategy", "device", "gpus", "nodes", "workers", "batch_per_worker",
    "remedy", "synthetic_gpu", "place", "host", "gpu_names", "cpu_model",
)  # fmt: skip


def prometheus_text(runs: Sequence[ExportedRun]) -> str:
    """Gauges, all lines of one together; runs are given oldest first."""
    latest: dict[str, ExportedRun] = {}
    for run in runs:
        latest[_labels(run)] = run
    written = []
    for name, told in _HELP.items():
        values = [
            (labels, run.figures[name]) for labels, run in latest.items() if name in run.figures
        ]
        written += _gauge(f"gpuyard_{name}", told, values)
    ends = [(labels, run.ended) for labels, run in latest.items()]
    written += _gauge("gpuyard_measured_timestamp_seconds", "When it was measured.", ends)
    return "".join(line + "\n" for line in written)


def _gauge(name: str, told: str, values: Sequence[tuple[str, float]]) -> list[str]:
    if not values:
        return []
    lines = [f"{name}{{{labels}}} {value!r}" for labels, value in values]
    return [f"# HELP {name} {told}", f"# TYPE {name} gauge", *lines]


def _labels(run: ExportedRun) -> str:
    said = {"kind": run.kind, "workload": run.workload}
    said |= {name: str(run.facts[name]) for name in _LABELS if name in run.facts}
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in said.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
