"""Answers of `gpuyard deploy bench`: the planned runs, and each measured run next to its prediction."""

from collections.abc import Collection, Sequence
from statistics import median
from typing import Any

from gpuyard.catalog import gpus
from gpuyard.deploy.bench.comparison import BenchComparison
from gpuyard.deploy.bench.plan import DeploymentBench
from gpuyard.measure.training.matrix import MatrixResult
from gpuyard.measure.training.records import Measurement
from gpuyard.report.answer import Answer, Chart, Charts, Column, Part, Sentence, Table
from gpuyard.report.figures.deploy_bench import build_efficiency_chart, build_performance_chart
from gpuyard.units import (
    format_bit_rate,
    format_count,
    format_duration,
    format_per_second,
    format_share,
)

_SERIES_NAMES = {
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
        pending = sum(point.key not in stored for point in sweep.points)
        rows.append(
            (
                series,
                sweep.strategy,
                _format_link(place.link_bytes_per_second),
                workers,
                batches,
                str(pending),
            )
        )
    columns = ("layout", Column("strategy", 1), "link", "GPUs", "batch", "runs")
    pending = sum(p.key not in stored for sweep in bench.matrix.sweeps for p in sweep.points)
    share = pending / max(1, bench.matrix.points)
    sweep = bench.matrix.sweeps[0]
    parts: list[Part] = [
        Table(f"{bench.matrix.name}: planned runs of {sweep.workload.name}", columns, rows),
        Sentence(f"{pending} runs, about {format_duration(bench.seconds * share)}."),
        Sentence(_describe_data(bench, sweep.gpu), "quiet"),
    ]
    document = {
        **bench.matrix.describe(stored),
        "series": list(bench.series),
        "expected_seconds": bench.seconds * share,
        "images_folder": bench.images_folder,
    }
    return Answer(parts, document, verb="deploy bench")


def _describe_data(bench: DeploymentBench, gpu: str | None) -> str:
    source = bench.workload.dataset.source if bench.workload.dataset else "synthetic"
    reads_images = source != "synthetic"
    created = ", which gpuyard creates there if they are missing" if bench.images_folder else ""
    if gpu is None:
        return f"Samples: {f'images in {source}{created}' if reads_images else 'synthetic, in memory'}."
    reads = (
        f"read the images in {source}{created}, without decoding them"
        if reads_images
        else "read nothing"
    )
    return f"GPUs are synthetic ({gpu}): they take as long as real GPUs, and {reads}."


def bench_answer(
    bench: DeploymentBench, rows: Sequence[BenchComparison], result: MatrixResult
) -> Answer:
    """Compare measured and predicted throughput in a table, JSON, and charts on a page."""
    columns = (
        "layout", Column("link", 2), "GPUs", "batch", "samples/s", "efficiency",
        Column("predicted", 3), Column("of predicted", 1), Column("predicted efficiency", 4),
        Column("host busy", 5),
    )  # fmt: skip
    cells = [
        (
            _name_layout(row, rows),
            "" if row.nodes == 1 else _format_link(row.link_bytes_per_second),
            str(row.measurement.workers),
            str(row.measurement.batch_per_worker),
            format_per_second(row.measurement.samples_per_second),
            "" if row.efficiency is None else format_share(row.efficiency),
            format_per_second(row.predicted.samples_per_second),
            format_share(row.ratio),
            format_share(row.predicted.scaling_efficiency),
            _format_busy(row),
        )
        for row in rows
    ]
    parts: list[Part] = []
    if rows:
        parts += _describe_origin(bench, rows)
        parts.append(Table(bench.matrix.name, columns, cells))
        parts += _summarize(rows)
        parts.append(_build_charts(rows))
    parts += [
        Sentence(
            f"No valid run of {sweep.point_label(point)}: {reason}. Run it again when the machines are idle.",
            "bad",
        )
        for sweep, point, reason in result.rejected
    ]
    document = {
        "deployment": bench.matrix.name,
        "workload": bench.workload.name,
        "runs": [_describe_run(row) for row in rows],
        "measured": _list_measured(rows),
        "rejected": len(result.rejected),
    }
    return Answer(
        parts,
        document,
        title=f"{bench.matrix.name}: {bench.workload.name}",
        verb="deploy bench",
        rows="runs",
    )


def _describe_origin(bench: DeploymentBench, rows: Sequence[BenchComparison]) -> list[Sentence]:
    """Say when the runs were measured, on which GPUs, and whether these were synthetic."""
    dates = sorted({row.measurement.created_at[:10] for row in rows})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    first = rows[0].measurement
    names = sorted({_name_gpu(row.measurement) for row in rows})
    machines = format_count(max(row.nodes for row in rows), "machine")
    text = f"{bench.workload.name} on {' and '.join(names)}, up to {machines}, measured {when}."
    if first.synthetic is not None:
        text += (
            " The GPUs are synthetic: they wait as long as real ones would compute, "
            "while gradients are really exchanged."
        )
    return [Sentence(text)]


def _name_gpu(run: Measurement) -> str:
    if run.synthetic is not None:
        return f"synthetic {gpus().get(run.synthetic.gpu).name}"
    return next(iter(run.place.gpus or run.provenance.gpus), "CPUs")


def _name_layout(row: BenchComparison, rows: Sequence[BenchComparison]) -> str:
    """Name the series and, if the bench has several, the strategy."""
    name = _SERIES_NAMES[row.series]
    several = len({each.measurement.strategy for each in rows}) > 1
    return f"{name}, {row.measurement.strategy}" if several else name


def _format_busy(row: BenchComparison) -> str:
    busy = row.measurement.host_busy_share
    return "" if busy is None else f"{format_share(busy)}{' !' if row.saturates_host else ''}"


def _describe_saturation(rows: Sequence[BenchComparison]) -> list[Sentence]:
    saturated = [row for row in rows if row.saturates_host]
    if not saturated:
        return []
    lowest = min(row.measurement.host_busy_share or 0.0 for row in saturated)
    ratios = [row.ratio for row in saturated]
    reached = format_share(min(ratios))
    if max(ratios) > min(ratios):
        reached = f"{reached} to {format_share(max(ratios))}"
    return [
        Sentence(
            f"This host's cores were at least {format_share(lowest)} busy in {len(saturated)} of {len(rows)} runs, which "
            f"reached {reached} of their prediction. They show the limit of this host, which all machines of the lab share, "
            "and not that of the links: use a slower --link or fewer machines.",
            "caution",
        )
    ]


def _summarize(rows: Sequence[BenchComparison]) -> list[Sentence]:
    sentences = _describe_saturation(rows)
    others = [row for row in rows if not row.saturates_host]
    if others:
        error = median(abs(row.ratio - 1) for row in others)
        which = "the other runs" if sentences else "the runs"
        sentences.append(
            Sentence(f"Half of {which} are within {format_share(error)} of their prediction.")
        )
    on_one_machine = {
        (row.measurement.strategy, row.measurement.workers, row.measurement.batch_per_worker): row
        for row in rows
        if row.series == "one machine"
    }
    pairs = [
        (row, on_one_machine[key])
        for row in rows
        if row.series == "one GPU of each machine"
        and (
            key := (
                row.measurement.strategy,
                row.measurement.workers,
                row.measurement.batch_per_worker,
            )
        )
        in on_one_machine
    ]
    if pairs:
        spread, together = max(pairs, key=lambda pair: pair[0].measurement.workers)
        gpus, batch = spread.measurement.workers, spread.measurement.batch_per_worker
        link = spread.link_bytes_per_second
        over = "" if link is None else f" over {format_bit_rate(link)}"
        compared = f"the speed of one machine with {gpus} GPUs (batch {batch})"
        if spread.saturates_host or together.saturates_host:
            share = spread.predicted.samples_per_second / together.predicted.samples_per_second
            text = (
                f"{gpus} machines with one GPU each{over} are predicted to reach {format_share(share)} of {compared}. "
                "These runs cannot show it, because this host's cores limited them."
            )
        else:
            share = spread.measurement.samples_per_second / together.measurement.samples_per_second
            text = f"{gpus} machines with one GPU each{over} reach {format_share(share)} of {compared}."
        sentences.append(Sentence(text, "strong"))
    sentences.append(Sentence(_describe_use(rows), "quiet"))
    return sentences


def _describe_use(rows: Sequence[BenchComparison]) -> str:
    if not _list_measured(rows):
        return "No prediction starts from these runs, because no real GPU was measured."
    return (
        "`gpuyard predict`, `plan`, and `study` start from the runs on several GPUs; `gpuyard calibrate` uses the runs "
        "on one machine."
    )


def _build_charts(rows: Sequence[BenchComparison]) -> Charts:
    batches = sorted({row.measurement.batch_per_worker for row in rows})
    shown = str(batches[-1])
    charts = [
        Chart(
            "chart-performance",
            "Dots are measured, dashed lines are predicted.",
            {str(batch): build_performance_chart(rows, batch) for batch in batches},
            shown,
        ),
        Chart(
            "chart-efficiency",
            "Throughput as a share of the same number of single GPUs; dashed lines are predicted.",
            {str(batch): build_efficiency_chart(rows, batch) for batch in batches},
            shown,
        ),
    ]
    return Charts(
        charts, title="Scaling", anchor="scaling", batches=batches, shown_batch=batches[-1]
    )


def _list_measured(rows: Sequence[BenchComparison]) -> list[dict[str, Any]]:
    """Return the runs on real GPUs in the form of a workload's `measured` key."""
    return [
        {
            "gpus": row.measurement.workers,
            "nodes": row.nodes,
            "batch_per_gpu": row.measurement.batch_per_worker,
            "samples_per_second": row.measurement.samples_per_second,
        }
        for row in rows
        if row.measurement.synthetic is None and row.measurement.device == "cuda"
    ]


def _describe_run(row: BenchComparison) -> dict[str, Any]:
    run = row.measurement
    return {
        "series": row.series,
        "link_bytes_per_second": row.link_bytes_per_second,
        "nodes": row.nodes,
        "gpus": run.workers,
        "batch_per_gpu": run.batch_per_worker,
        "samples_per_second": run.samples_per_second,
        "low": run.low,
        "high": run.high,
        "scaling_efficiency": row.efficiency,
        "predicted_samples_per_second": row.predicted.samples_per_second,
        "predicted_low": row.predicted.low,
        "predicted_high": row.predicted.high,
        "predicted_scaling_efficiency": row.predicted.scaling_efficiency,
        "strategy": run.strategy,
        "gpu": _name_gpu(run),
        "synthetic_gpu": run.synthetic.gpu if run.synthetic else None,
        "host_busy_share": run.host_busy_share,
        "saturates_host": row.saturates_host,
        "measured_at": run.created_at,
        "id": run.id,
    }


def _format_link(rate: float | None) -> str:
    return "" if rate is None else format_bit_rate(rate)
