"""Ranks GPUs for a workload, and lists published figures for its model."""

from collections.abc import Sequence
from typing import Any

from gpuyard.catalog.hardware import find_end_of_life, find_ends_of_life
from gpuyard.catalog.published_rows import PublishedFigure
from gpuyard.planner.gpu_ranking import SORTS, RankedGpu
from gpuyard.predictor.compute import resolve_compute_precision
from gpuyard.report.answer import (
    ALL_BATCHES,
    Answer,
    Chart,
    Charts,
    Column,
    Part,
    Sentence,
    StyledText,
    Table,
    Text,
)
from gpuyard.report.figures.gpu_ranking import build_ranking_chart
from gpuyard.specs import Workload
from gpuyard.table import ALWAYS

_MAX_PUBLISHED = 40
_MAX_NAMED = 6
_TITLES = {
    "speed": "fastest first",
    "speed-per-dollar": "most speed per dollar first",
    "speed-per-rent": "most samples per dollar of rent first",
    "speed-per-watt": "most speed per watt first",
    "memory": "most memory first",
}

_SORTED_BY = {
    "speed-per-dollar": "samples/s per $1,000",
    "speed-per-rent": "samples per rented $",
    "speed-per-watt": "samples/s per W",
    "memory": "GB",
}


def gpu_ranking_answer(
    workload: Workload,
    ranked: Sequence[RankedGpu],
    without: Sequence[str],
    published: Sequence[PublishedFigure],
    *,
    sort: str,
) -> Answer:
    """Show a table, charts for a page, and the published rows; `without` are GPUs that cannot be ranked."""
    precisions = sorted({gpu.precision for gpu in ranked})
    precision = workload.precision or " or ".join(precisions) or "fp32"
    job = f"{workload.name}, {precision}, batch {workload.batch_per_gpu} per GPU"
    parts: list[Part] = [
        Charts(_build_charts(ranked, precision)),
        _build_table(ranked, f"One GPU with {job}: {_TITLES[sort]}", _SORTED_BY.get(sort)),
        *_list_notes(ranked),
    ]
    if caveat := _describe_evidence(ranked):
        parts.insert(0, Sentence(caveat, "caution"))
    if workload.precision is None:
        parts.append(
            Sentence(
                "Precision: PyTorch's default, which is tf32 for convolutions and RNNs on NVIDIA GPUs that support it, "
                "and fp32 otherwise. Change it with --precision.",
                "quiet",
            )
        )
    slow = [
        gpu.gpu.id
        for gpu in ranked
        if resolve_compute_precision(gpu.precision, gpu.gpu) != gpu.precision
    ]
    if slow:
        parts.append(
            Sentence(
                f"GPUs that compute {precision} no faster than fp32, so that it saves only memory: {', '.join(slow)}.",
                "quiet",
            )
        )
    if without:
        parts.append(
            Sentence(
                f"Left out, because the catalog has no {precision} rate for them and no substitute: "
                f"{', '.join(without)}.",
                "quiet",
            )
        )
    if published:
        parts.append(_build_published_table(published, workload.model_name))
    document = {
        "workload": workload.name,
        "model": workload.model_name,
        "precision": workload.precision or (precisions[0] if len(precisions) == 1 else None),
        "batch_per_gpu": workload.batch_per_gpu,
        "sort": sort,
        "gpus": [_describe_gpu(gpu) for gpu in ranked],
        "left_out": list(without),
        "published": [figure.model_dump(mode="json") for figure in published],
    }
    return Answer(
        parts,
        document,
        title=f"GPUs for {workload.name} in {precision}",
        verb="catalog gpus",
        rows="gpus",
    )


def _build_table(ranked: Sequence[RankedGpu], title: str, sorted_by: str | None) -> Table:
    """Build the table; the column that it is sorted by is never dropped."""
    columns = (
        Column("GPU"),
        Column("samples/s"),
        Column("90% interval", 3),
        Column("basis", ALWAYS),
        Column("precision", 10),
        Column("GB", 6),
        Column("price $", 5),
        Column("samples/s per $1,000", 1),
        Column("rent $/h", 4),
        Column("samples per rented $", 2),
        Column("samples/s per W", 7),
        Column("cheapest instance", 9),
        Column("CUDA", 8),
    )
    with_kept_column = [Column(c.name, ALWAYS) if c.name == sorted_by else c for c in columns]
    return Table(title, with_kept_column, [_format_row(gpu) for gpu in ranked])


def _format_row(ranked: RankedGpu) -> list[StyledText]:
    end = find_end_of_life(ranked.gpu)
    rate, rented_samples = ranked.samples_per_second, ranked.samples_per_rented_usd
    return [
        ranked.gpu.id if ranked.fits else Text(f"{ranked.gpu.id} (does not fit)", "bad"),
        _format_rate(rate),
        f"{_format_rate(ranked.low)} – {_format_rate(ranked.high)}",
        ranked.basis,
        ranked.precision,
        f"{ranked.gpu.memory_gb:g}",
        "" if ranked.usd is None else f"{ranked.usd:,.0f}",
        _format_figure(ranked.per_thousand_usd),
        "" if ranked.usd_per_hour is None else f"{ranked.usd_per_hour:.2f}",
        "" if rented_samples is None else f"{rented_samples:,.0f}",
        _format_figure(ranked.per_watt),
        ranked.rented.id if ranked.rented else "",
        Text(end.cuda_range, "caution") if end else "",
    ]


def _format_rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2f}"


def _format_figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _describe_evidence(ranked: Sequence[RankedGpu]) -> str:
    """Name the GPUs, best first, that are ranked although nothing is published for them."""
    unknown = [gpu.gpu.id for gpu in ranked if gpu.caveat]
    if not unknown:
        return ""
    names = ", ".join(unknown[:_MAX_NAMED]) + (", …" if len(unknown) > _MAX_NAMED else "")
    return (
        f"No training speed of {len(unknown)} of these GPUs is published in the tables of gpuyard ({names}): their "
        "intervals are wide, and their order is a guess where intervals overlap."
    )


def _list_notes(ranked: Sequence[RankedGpu]) -> list[Part]:
    notes: list[Part] = [
        Sentence(
            "Measured speeds are your own. Published speeds rest on figures for this model and GPU, converted to this "
            "batch size; others are predicted from figures for other models and GPUs. GPU prices are launch or street prices without a machine. Rents "
            "are per GPU of the cheapest on-demand instance of any size.",
            "quiet",
        )
    ]
    rent_dates = sorted({str(gpu.rented.date) for gpu in ranked if gpu.rented})
    price_dates = sorted({str(gpu.bought.date) for gpu in ranked if gpu.bought})
    if rent_dates:
        notes.append(Sentence(f"Rents date from {rent_dates[0]} to {rent_dates[-1]}.", "quiet"))
    if price_dates:
        notes.append(
            Sentence(f"GPU prices date from {price_dates[0]} to {price_dates[-1]}.", "quiet")
        )
    ends = find_ends_of_life(gpu.gpu for gpu in ranked)
    return notes + [Sentence(end.sentence, "caution") for end in ends]


def _build_charts(ranked: Sequence[RankedGpu], precision: str) -> list[Chart]:
    captions = {
        "speed": "Samples per second of one GPU.",
        "speed-per-dollar": "Samples per second for each $1,000 of the GPU's price, without a machine.",
        "speed-per-rent": "Samples per dollar of rent, at the cheapest on-demand instance.",
        "speed-per-watt": "Samples per second for each watt of board power.",
    }
    return [
        Chart(f"chart-{sort}", f"{caption} Trained in {precision}.", {ALL_BATCHES: option})
        for sort, caption in captions.items()
        if (option := build_ranking_chart(ranked, sort, SORTS[sort])) is not None
    ]


def _build_published_table(figures: Sequence[PublishedFigure], model: str) -> Table:
    rows = [
        [
            figure.gpu or "",
            figure.table,
            figure.series,
            figure.precision,
            str(figure.gpus),
            f"{figure.batch_per_gpu:g}",
            f"{figure.samples_per_second:,.0f}",
            _format_figure(figure.per_gpu),
        ]
        for figure in figures[:_MAX_PUBLISHED]
    ]
    columns = (
        "GPU",
        Column("table", 2),
        Column("series", 4),
        Column("precision", 1),
        "GPUs",
        Column("batch/GPU", 3),
        "samples/s",
        "per GPU",
    )
    more = len(figures) - len(rows)
    note = f"And {more:,} more: gpuyard catalog published --model {model}" if more > 0 else ""
    return Table(f"Published: {model}", columns, rows, note=note, folded=True)


def _describe_gpu(ranked: RankedGpu) -> dict[str, Any]:
    end = find_end_of_life(ranked.gpu)
    return {
        "gpu": ranked.gpu.id,
        "samples_per_second": ranked.samples_per_second,
        "low": ranked.low,
        "high": ranked.high,
        "batch_per_gpu": ranked.batch_per_gpu,
        "speed_basis": ranked.basis,
        "speed_source": ranked.source,
        "evidence_note": ranked.caveat,
        "precision": ranked.precision,
        "precision_note": ranked.precision_note,
        "fits": ranked.fits,
        "memory_gb": ranked.gpu.memory_gb,
        "board_watts": ranked.gpu.board_watts,
        "usd": ranked.usd,
        "usd_basis": ranked.bought.basis if ranked.bought else None,
        "usd_date": ranked.bought.date.isoformat() if ranked.bought else None,
        "usd_per_gpu_hour": ranked.usd_per_hour,
        "rented_as": ranked.rented.id if ranked.rented else None,
        "rent_date": ranked.rented.date.isoformat() if ranked.rented else None,
        "samples_per_second_per_1000_usd": ranked.per_thousand_usd,
        "samples_per_rented_usd": ranked.samples_per_rented_usd,
        "samples_per_second_per_watt": ranked.per_watt,
        "end_of_life": end.sentence if end else None,
    }
