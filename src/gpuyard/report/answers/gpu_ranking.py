"""GPUs ranked for a workload, and what others published of them."""

from collections.abc import Sequence
from typing import Any

from gpuyard.catalog.hardware import end_of_life, ends_of
from gpuyard.catalog.published_rows import PublishedFigure
from gpuyard.planner.gpu_ranking import SORTS, RankedGpu
from gpuyard.predict.compute import computed_in
from gpuyard.report.answer import (
    ALL_BATCHES,
    Answer,
    Chart,
    Charts,
    Column,
    Part,
    Sentence,
    Table,
    Text,
    Words,
)
from gpuyard.report.figures.gpu_ranking import ranking_option
from gpuyard.specs import Workload
from gpuyard.table import ALWAYS

_MOST_PUBLISHED = 40
_TITLES = {
    "speed": "fastest first",
    "speed-per-dollar": "most speed for the price first",
    "speed-per-rent": "most samples for a rented dollar first",
    "speed-per-watt": "most speed for the watt first",
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
    """A table, charts for a page, and the published rows."""
    there = sorted({one.precision for one in ranked})
    precision = workload.precision or " or ".join(there) or "fp32"
    asked = f"{workload.name}, {precision}, batch {workload.batch_per_gpu} per GPU"
    parts: list[Part] = [
        Charts(_charts(ranked, precision)),
        _table(ranked, f"One GPU with {asked}: {_TITLES[sort]}", _SORTED_BY.get(sort)),
        *_notes(ranked),
    ]
    if workload.precision is None:
        parts.append(
            Sentence(
                "Precision: PyTorch's default, tf32 for convolutions and RNNs on NVIDIA GPUs that have it, else fp32 "
                "(--precision).",
                "quiet",
            )
        )
    slow = [one.gpu.id for one in ranked if computed_in(one.precision, one.gpu) != one.precision]
    if slow:
        parts.append(
            Sentence(
                f"Compute {precision} at the speed of fp32 or slower, so that it saves memory and no time: "
                f"{', '.join(slow)}.",
                "quiet",
            )
        )
    if without:
        parts.append(
            Sentence(
                f"Left out, because the catalog has neither their {precision} rate nor one that stands in: "
                f"{', '.join(without)}.",
                "quiet",
            )
        )
    if published:
        parts.append(_published(published, workload.model))
    document = {
        "workload": workload.name,
        "model": workload.model,
        "precision": workload.precision or (there[0] if len(there) == 1 else None),
        "batch_per_gpu": workload.batch_per_gpu,
        "sort": sort,
        "gpus": [_document(one) for one in ranked],
        "left_out": list(without),
        "published": [figure.model_dump(mode="json") for figure in published],
    }
    return Answer(
        parts, document, title=f"GPUs for {workload.name} in {precision}", verb="catalog gpus"
    )


def _table(ranked: Sequence[RankedGpu], title: str, sorted_by: str | None) -> Table:
    """What it is sorted by is shown, however narrow the terminal."""
    columns = (
        Column("GPU"),
        Column("samples/s"),
        Column("speed is", 3),
        Column("precision", 10),
        Column("GB", 6),
        Column("bought $", 5),
        Column("samples/s per $1,000", 1),
        Column("rented $/h", 4),
        Column("samples per rented $", 2),
        Column("samples/s per W", 7),
        Column("cheapest at", 9),
        Column("CUDA", 8),
    )
    kept = [Column(c.name, ALWAYS) if c.name == sorted_by else c for c in columns]
    return Table(title, kept, [_row(one) for one in ranked])


def _row(one: RankedGpu) -> list[Words]:
    end = end_of_life(one.gpu)
    rate = (
        f"{one.samples_per_second:,.0f}"
        if one.samples_per_second >= 10
        else f"{one.samples_per_second:.2f}"
    )
    return [
        one.gpu.id if one.fits else Text(f"{one.gpu.id} (does not fit)", "bad"),
        rate,
        one.basis,
        one.precision,
        f"{one.gpu.memory_gb:g}",
        "" if one.usd is None else f"{one.usd:,.0f}",
        _figure(one.per_thousand_usd),
        "" if one.usd_per_hour is None else f"{one.usd_per_hour:.2f}",
        "" if one.samples_per_rented_usd is None else f"{one.samples_per_rented_usd:,.0f}",
        _figure(one.per_watt),
        one.rented.id if one.rented else "",
        Text(end.words, "caution") if end else "",
    ]


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _notes(ranked: Sequence[RankedGpu]) -> list[Part]:
    said: list[Part] = [
        Sentence(
            "Measured: by you. Published: figures of others (below), carried to this batch. Predicted: by the "
            "roofline. Prices of GPUs are without a machine around them, of launch or street; rents are the "
            "cheapest on demand, by the GPU of an instance, whatever its size.",
            "quiet",
        )
    ]
    dates = sorted({str(one.rented.date) for one in ranked if one.rented})
    bought = sorted({str(one.bought.date) for one in ranked if one.bought})
    if dates:
        said.append(Sentence(f"Rents date from {dates[0]} to {dates[-1]}.", "quiet"))
    if bought:
        said.append(Sentence(f"Prices of GPUs date from {bought[0]} to {bought[-1]}.", "quiet"))
    said += [Sentence(end.sentence, "caution") for end in ends_of(one.gpu for one in ranked)]
    return said


def _charts(ranked: Sequence[RankedGpu], precision: str) -> list[Chart]:
    captions = {
        "speed": "Samples a second of one GPU.",
        "speed-per-dollar": "Samples a second for each $1,000 that the GPU costs, without a machine around it.",
        "speed-per-rent": "Samples for each dollar of rent, at the cheapest instance on demand.",
        "speed-per-watt": "Samples a second for each watt of the board.",
    }
    return [
        Chart(f"chart-{sort}", f"{caption} Trained in {precision}.", {ALL_BATCHES: option})
        for sort, caption in captions.items()
        if (option := ranking_option(ranked, sort, SORTS[sort])) is not None
    ]


def _published(figures: Sequence[PublishedFigure], model: str) -> Table:
    rows = [
        [
            figure.gpu or "",
            figure.table,
            figure.series,
            figure.precision,
            str(figure.gpus),
            f"{figure.batch_per_gpu:g}",
            f"{figure.samples_per_second:,.0f}",
            _figure(figure.per_gpu),
        ]
        for figure in figures[:_MOST_PUBLISHED]
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


def _document(one: RankedGpu) -> dict[str, Any]:
    end = end_of_life(one.gpu)
    return {
        "gpu": one.gpu.id,
        "samples_per_second": one.samples_per_second,
        "low": one.low,
        "high": one.high,
        "batch_per_gpu": one.batch_per_gpu,
        "speed_basis": one.basis,
        "speed_source": one.source,
        "precision": one.precision,
        "precision_note": one.precision_note,
        "fits": one.fits,
        "memory_gb": one.gpu.memory_gb,
        "board_watts": one.gpu.board_watts,
        "usd": one.usd,
        "usd_basis": one.bought.basis if one.bought else None,
        "usd_date": one.bought.date.isoformat() if one.bought else None,
        "usd_per_gpu_hour": one.usd_per_hour,
        "rented_as": one.rented.id if one.rented else None,
        "rent_date": one.rented.date.isoformat() if one.rented else None,
        "samples_per_second_per_1000_usd": one.per_thousand_usd,
        "samples_per_rented_usd": one.samples_per_rented_usd,
        "samples_per_second_per_watt": one.per_watt,
        "end_of_life": end.sentence if end else None,
    }
