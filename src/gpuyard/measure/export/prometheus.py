"""Formats measurements as Prometheus gauges, for node_exporter's textfile collector or any scraper.

Only the latest measurement of each configuration is written: a gauge holds a current value, and a label that is unique to
each run (an id, a date) would create a new time series every time. Lines carry no timestamps because the textfile
collector rejects them. See https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from collections.abc import Sequence

from gpuyard.measure.export.runs import ExportedRun

_HELP = {
    "samples_per_second": "Samples trained per second by all workers together.",
    "low": "Lower end of the 95% confidence interval of samples per second.",
    "high": "Upper end of the 95% confidence interval of samples per second.",
    "clock_samples_per_second": "Samples per second of wall-clock time, including evaluations and checkpoints.",
    "step_seconds": "Duration of one training step.",
    "compute_seconds": "Compute time per step.",
    "exposed_communication_seconds": "Gradient exchange time per step that no computation hides.",
    "input_seconds": "Time per step spent waiting for samples.",
    "loss_last": "Loss at the end of the run.",
}
_LABELS = (
    "model", "precision", "strategy", "device", "gpus", "nodes", "workers", "batch_per_worker",
    "remedy", "synthetic_gpu", "place", "host", "gpu_names", "cpu_model",
)  # fmt: skip


def format_prometheus(runs: Sequence[ExportedRun]) -> str:
    """Format runs, oldest first, as gauges with all samples of a gauge together."""
    latest: dict[str, ExportedRun] = {}
    for run in runs:
        latest[_format_labels(run)] = run
    lines = []
    for name, description in _HELP.items():
        samples = [
            (labels, run.metrics[name]) for labels, run in latest.items() if name in run.metrics
        ]
        lines += _format_gauge(f"gpuyard_{name}", description, samples)
    timestamps = [(labels, run.ended) for labels, run in latest.items()]
    lines += _format_gauge(
        "gpuyard_measured_timestamp_seconds", "Time of the measurement.", timestamps
    )
    return "".join(line + "\n" for line in lines)


def _format_gauge(name: str, description: str, samples: Sequence[tuple[str, float]]) -> list[str]:
    if not samples:
        return []
    lines = [f"{name}{{{labels}}} {value!r}" for labels, value in samples]
    return [f"# HELP {name} {description}", f"# TYPE {name} gauge", *lines]


def _format_labels(run: ExportedRun) -> str:
    labels = {"kind": run.kind, "workload": run.workload}
    labels |= {name: str(run.parameters[name]) for name in _LABELS if name in run.parameters}
    return ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items())


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
