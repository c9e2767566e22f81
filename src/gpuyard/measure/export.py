"""Measurements for other programs: JSON lines hold everything, CSV one flat row each."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping

from gpuyard.measure.measurement import Measurement

_COLUMNS: Mapping[str, Callable[[Measurement], object]] = {
    "id": lambda m: m.id,
    "created_at": lambda m: m.created_at,
    "kind": lambda m: m.kind,
    "workload": lambda m: m.workload,
    "model": lambda m: m.spec.get("model", ""),
    "precision": lambda m: m.spec.get("precision", ""),
    "strategy": lambda m: m.strategy,
    "device": lambda m: m.device,
    "workers": lambda m: m.workers,
    "batch_per_worker": lambda m: m.batch_per_worker,
    "samples_per_second": lambda m: m.samples_per_second,
    "low": lambda m: m.low,
    "high": lambda m: m.high,
    "step_seconds": lambda m: m.step.step_seconds,
    "compute_seconds": lambda m: m.step.compute_seconds,
    "exposed_communication_seconds": lambda m: m.step.exposed_communication_seconds,
    "input_seconds": lambda m: m.step.input_seconds,
    "all_reduce_bytes": lambda m: m.all_reduce_bytes,
    "all_reduce_seconds": lambda m: m.all_reduce_seconds,
    "loss_first": lambda m: m.loss_first,
    "loss_last": lambda m: m.loss_last,
    "threads_per_worker": lambda m: m.provenance.threads_per_worker,
    "host": lambda m: m.provenance.host,
    "cpu_model": lambda m: m.provenance.cpu_model,
    "gpus": lambda m: "; ".join(m.provenance.gpus),
    "torch": lambda m: m.provenance.torch,
    "gpuyard": lambda m: m.provenance.gpuyard,
    "data_source": lambda m: m.provenance.data_source,
    "key": lambda m: m.key,
}


def to_json_lines(measurements: Iterable[Measurement]) -> str:
    """One JSON object a line; `Measurement.model_validate_json` reads it back."""
    return "".join(m.model_dump_json() + "\n" for m in measurements)


def to_csv(measurements: Iterable[Measurement]) -> str:
    """A header and a row each; what is not there is empty."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(_COLUMNS)
    rows.writerows([read(m) for read in _COLUMNS.values()] for m in measurements)
    return text.getvalue()
