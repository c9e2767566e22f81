"""Measurements for other programs: JSON lines hold everything, CSV one flat row each."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping

from pydantic import BaseModel

from gpuyard.measure.collectives.records import CollectiveResult, CollectivesBench
from gpuyard.measure.links.records import ComparedLink, LinkBench
from gpuyard.measure.training.measurement import Measurement

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
    "remedy": lambda m: m.remedy.label,
    "synthetic_gpu": lambda m: m.synthetic.gpu if m.synthetic else "",
    "place": lambda m: m.place.kind,
    "link_bytes_per_second": lambda m: m.place.link_bytes_per_second,
    "dilation": lambda m: m.place.dilation,
    "doubt": lambda m: m.doubt or "",
}

_LINK_COLUMNS: Mapping[str, Callable[[LinkBench, ComparedLink], object]] = {
    "id": lambda b, _: b.id,
    "created_at": lambda b, _: b.created_at,
    "kind": lambda b, _: b.kind,
    "link": lambda _, c: c.measured.kind,
    "source": lambda _, c: c.measured.source,
    "target": lambda _, c: c.measured.target,
    "direction": lambda _, c: c.measured.direction,
    "peer": lambda _, c: c.measured.peer,
    "cores": lambda _, c: c.measured.cores,
    "bytes": lambda _, c: c.measured.bytes,
    "repeats": lambda _, c: len(c.measured.seconds),
    "bytes_per_second": lambda _, c: c.measured.bytes_per_second,
    "spread": lambda _, c: c.measured.spread,
    "expected_bytes_per_second": lambda _, c: c.expected_bytes_per_second,
    "ratio": lambda _, c: c.ratio,
    "verdict": lambda _, c: c.verdict,
    "host": lambda b, _: b.host.host,
    "cpu_model": lambda b, _: b.host.cpu_model,
    "gpus": lambda b, _: "; ".join(b.host.gpus),
    "torch": lambda b, _: b.host.torch,
    "gpuyard": lambda b, _: b.host.gpuyard,
    "key": lambda b, _: b.key,
}

_COLLECTIVE_COLUMNS: Mapping[str, Callable[[CollectivesBench, CollectiveResult], object]] = {
    "id": lambda b, _: b.id,
    "created_at": lambda b, _: b.created_at,
    "kind": lambda b, _: b.kind,
    "place": lambda b, _: b.place.kind,
    "ranks": lambda b, _: b.ranks,
    "backend": lambda b, _: b.backend,
    "device": lambda b, _: b.device,
    "link_bytes_per_second": lambda b, _: b.link_bytes_per_second,
    "dilation": lambda b, _: b.place.dilation,
    "operation": lambda _, r: r.operation,
    "algorithm": lambda _, r: r.algorithm,
    "bytes": lambda _, r: r.bytes,
    "repeats": lambda _, r: len(r.repeats),
    "seconds": lambda _, r: r.seconds,
    "spread": lambda _, r: r.spread,
    "algorithm_bytes_per_second": lambda _, r: r.algorithm_bytes_per_second,
    "bus_bytes_per_second": lambda _, r: r.bus_bytes_per_second,
    "expected_seconds": lambda _, r: r.expected_seconds,
    "ratio": lambda _, r: r.ratio,
    "correct": lambda _, r: r.correct,
    "verdict": lambda _, r: r.verdict,
    "host": lambda b, _: b.host.host,
    "cpu_model": lambda b, _: b.host.cpu_model,
    "torch": lambda b, _: b.host.torch,
    "gpuyard": lambda b, _: b.host.gpuyard,
    "key": lambda b, _: b.key,
}


def to_json_lines(measurements: Iterable[BaseModel]) -> str:
    """One JSON object a line; `model_validate_json` of its class reads it back."""
    return "".join(m.model_dump_json() + "\n" for m in measurements)


def to_csv(measurements: Iterable[Measurement]) -> str:
    """A header and a row each; what is not there is empty."""
    return _csv(_COLUMNS, ([read(m) for read in _COLUMNS.values()] for m in measurements))


def links_to_csv(benches: Iterable[LinkBench]) -> str:
    """A header and a row for each link of each bench."""
    rows = (
        [read(bench, link) for read in _LINK_COLUMNS.values()]
        for bench in benches
        for link in bench.links
    )
    return _csv(_LINK_COLUMNS, rows)


def collectives_to_csv(benches: Iterable[CollectivesBench]) -> str:
    """A header and a row for each operation and size of each bench."""
    rows = (
        [read(bench, result) for read in _COLLECTIVE_COLUMNS.values()]
        for bench in benches
        for result in bench.results
    )
    return _csv(_COLLECTIVE_COLUMNS, rows)


def _csv(columns: Iterable[str], rows: Iterable[list[object]]) -> str:
    text = io.StringIO()
    written = csv.writer(text, lineterminator="\n")
    written.writerow(columns)
    written.writerows(rows)
    return text.getvalue()
