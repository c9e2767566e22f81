"""What `gpuyard deploy bench` says: the runs that it would make, and each beside its prediction."""

from collections.abc import Collection, Sequence
from statistics import median
from typing import Any

from gpuyard.deploy.bench.compared import Compared
from gpuyard.deploy.bench.plan import DeploymentBench
from gpuyard.measure.training.matrix import MatrixResult
from gpuyard.report.answer import Answer, Chart, Charts, Column, Part, Sentence, Table
from gpuyard.report.figures.deploy_bench import efficiency_option, performance_option
from gpuyard.units import format_bit_rate, format_duration, format_per_second, format_share

_SHORT = {
    "one GPU of each machine": "1 GPU each",
    "one machine": "one machine",
    "all GPUs of each machine": "all GPUs",
}


def bench_plan_answer(bench: DeploymentBench, stored: Collection[str]) -> Answer:
    rows = []
    for sweep, series in zip(bench.matrix.sweeps, bench.series, strict=True):
        place = sweep.place.record(1)
        workers = ", ".join(str(count) for count in sorted({p.workers for p in sweep.points}))
        batches = ", ".join(str(b) for b in sorted({p.batch_per_worker for p in sweep.points}))
        left = sum(point.key not in stored for point in sweep.points)
        rows.append((series, _link(place.link_bytes_per_second), workers, batches, str(left)))
    columns = ("GPUs of", "link", "how many", "batch", "runs")
    left = sum(p.key not in stored for sweep in bench.matrix.sweeps for p in sweep.points)
    share = left / max(1, bench.matrix.points)
    sweep = bench.matrix.sweeps[0]
    parts: list[Part] = [
        Table(f"{bench.matrix.name}: {sweep.workload.name}, would be measured", columns, rows),
        Sentence(f"{left} runs, about {format_duration(bench.seconds * share)}."),
        Sentence(_data_words(bench, sweep.gpu), "quiet"),
    ]
    document = {
        **bench.matrix.describe(stored),
        "series": list(bench.series),
        "expected_seconds": bench.seconds * share,
        "makes": bench.makes,
    }
    return Answer(parts, document, verb="deploy bench")


def _data_words(bench: DeploymentBench, gpu: str | None) -> str:
    source = bench.workload.dataset.source if bench.workload.dataset else "synthetic"
    read = source != "synthetic"
    made = ", which are made there if they are missing" if bench.makes else ""
    if gpu is None:
        return f"Samples: {f'images in {source}{made}' if read else 'made in memory'}."
    reads = f"read the images in {source}{made}, without decoding them" if read else "read nothing"
    return f"GPUs are synthetic ({gpu}): they take as long as real ones, and {reads}."


def bench_answer(bench: DeploymentBench, rows: Sequence[Compared], result: MatrixResult) -> Answer:
    """Measured and predicted, as a table, JSON, and charts on a page."""
    columns = (
        "GPUs of", Column("link", 2), "GPUs", "batch", "samples/s", "efficiency",
        Column("predicted", 3), Column("of predicted", 1), Column("predicted efficiency", 4),
    )  # fmt: skip
    cells = [
        (
            _SHORT[one.series],
            "" if one.nodes == 1 else _link(one.link_bytes_per_second),
            str(one.measurement.workers),
            str(one.measurement.batch_per_worker),
            format_per_second(one.measurement.samples_per_second),
            "" if one.efficiency is None else format_share(one.efficiency),
            format_per_second(one.predicted.samples_per_second),
            format_share(one.ratio),
            format_share(one.predicted.scaling_efficiency),
        )
        for one in rows
    ]
    parts: list[Part] = [Table(bench.matrix.name, columns, cells), *_words(rows)]
    if rows:
        parts.append(_charts(rows))
    parts += [
        Sentence(
            f"No credible run of {sweep.point_label(point)}: {why}; run it again when the machines are quiet.",
            "bad",
        )
        for sweep, point, why in result.rejected
    ]
    document = {
        "deployment": bench.matrix.name,
        "workload": bench.workload.name,
        "runs": [_document(one) for one in rows],
        "measured": _measured(rows),
        "rejected": len(result.rejected),
    }
    return Answer(
        parts, document, title=f"{bench.matrix.name}: {bench.workload.name}", verb="deploy bench"
    )


def _words(rows: Sequence[Compared]) -> list[Sentence]:
    if not rows:
        return []
    off = median(abs(one.ratio - 1) for one in rows)
    said = [Sentence(f"Half of the runs are within {format_share(off)} of their prediction.")]
    together = {(o.measurement.workers, o.measurement.batch_per_worker): o for o in rows if o.series == "one machine"}  # fmt: skip
    pairs = [
        (one, together[key])
        for one in rows
        if one.series == "one GPU of each machine"
        and (key := (one.measurement.workers, one.measurement.batch_per_worker)) in together
    ]
    if pairs:
        apart, joined = max(pairs, key=lambda pair: pair[0].measurement.workers)
        gpus, batch = apart.measurement.workers, apart.measurement.batch_per_worker
        link = apart.link_bytes_per_second
        over = "" if link is None else f" over {format_bit_rate(link)}"
        share = apart.measurement.samples_per_second / joined.measurement.samples_per_second
        said.append(
            Sentence(
                f"{gpus} machines with one GPU each{over} train at {format_share(share)} of the speed of one with "
                f"{gpus} GPUs (batch {batch}).",
                "strong",
            )
        )
    said.append(Sentence(_learnt(rows), "quiet"))
    return said


def _learnt(rows: Sequence[Compared]) -> str:
    if not _measured(rows):
        return "No prediction starts from these runs, because no real GPU was measured."
    return (
        "`gpuyard predict`, `plan` and `study` start from those of several GPUs, `gpuyard calibrate` takes those of one "
        "machine."
    )


def _charts(rows: Sequence[Compared]) -> Charts:
    batches = sorted({one.measurement.batch_per_worker for one in rows})
    shown = str(batches[-1])
    charts = [
        Chart(
            "chart-performance",
            "Dots are measured, dashed lines are predicted.",
            {str(batch): performance_option(rows, batch) for batch in batches},
            shown,
        ),
        Chart(
            "chart-efficiency",
            "Throughput as a share of what as many single GPUs would do; dashed lines are predicted.",
            {str(batch): efficiency_option(rows, batch) for batch in batches},
            shown,
        ),
    ]
    return Charts(
        charts, title="Scaling", anchor="scaling", batches=batches, shown_batch=batches[-1]
    )


def _measured(rows: Sequence[Compared]) -> list[dict[str, Any]]:
    """As a workload's `measured` takes them; what was emulated is no figure of a GPU."""
    return [
        {
            "gpus": one.measurement.workers,
            "nodes": one.nodes,
            "batch_per_gpu": one.measurement.batch_per_worker,
            "samples_per_second": one.measurement.samples_per_second,
        }
        for one in rows
        if one.measurement.synthetic is None and one.measurement.device == "cuda"
    ]


def _document(one: Compared) -> dict[str, Any]:
    run = one.measurement
    return {
        "series": one.series,
        "link_bytes_per_second": one.link_bytes_per_second,
        "nodes": one.nodes,
        "gpus": run.workers,
        "batch_per_gpu": run.batch_per_worker,
        "samples_per_second": run.samples_per_second,
        "low": run.low,
        "high": run.high,
        "scaling_efficiency": one.efficiency,
        "predicted_samples_per_second": one.predicted.samples_per_second,
        "predicted_low": one.predicted.low,
        "predicted_high": one.predicted.high,
        "predicted_scaling_efficiency": one.predicted.scaling_efficiency,
        "synthetic_gpu": run.synthetic.gpu if run.synthetic else None,
        "id": run.id,
    }


def _link(rate: float | None) -> str:
    return "" if rate is None else format_bit_rate(rate)
