"""Processing performance and scaling efficiency of a deployment against its GPUs, measured beside predicted."""

from collections.abc import Callable, Sequence

from gpuyard.deploy.bench.compared import Compared
from gpuyard.draw.palette import COLOURS
from gpuyard.report.figures.frame import Option, category_axis, finite, frame, value_axis
from gpuyard.report.figures.marks import SYMBOLS, Look, dashed, dots
from gpuyard.units import format_bit_rate, format_number

_Value = Callable[[Compared], float | None]


def line_name(one: Compared) -> str:
    """What tells a line from the others."""
    rate = one.link_bytes_per_second
    if rate is None or one.series == "one machine":
        return one.series
    return f"{one.series}, {format_bit_rate(rate)}"


def performance_option(rows: Sequence[Compared], batch: int) -> Option:
    """Samples a second at one batch size."""
    option = _option(
        rows,
        batch,
        "Processing performance",
        lambda one: one.measurement.samples_per_second,
        lambda one: one.predicted.samples_per_second,
    )
    option["yAxis"] = value_axis("samples/s")
    return option


def efficiency_option(rows: Sequence[Compared], batch: int) -> Option:
    """In percent of as many single GPUs."""
    option = _option(
        rows,
        batch,
        "Scaling efficiency",
        lambda one: None if one.efficiency is None else round(one.efficiency * 100, 2),
        lambda one: round(one.predicted.scaling_efficiency * 100, 2),
    )
    most = max((one.efficiency or 0.0 for one in rows), default=1.0)
    option["yAxis"] = value_axis("% of ideal", min=0, max=100 if most <= 1.005 else None)
    return option


def _option(
    rows: Sequence[Compared], batch: int, title: str, measured: _Value, predicted: _Value
) -> Option:
    here = [one for one in rows if one.measurement.batch_per_worker == batch]
    names = list(dict.fromkeys(line_name(one) for one in rows))  # the same look at every batch
    axis = sorted({one.measurement.workers for one in here})
    series: list[Option] = []
    for index, name in enumerate(names):
        look = Look(COLOURS[index % len(COLOURS)], SYMBOLS[index % len(SYMBOLS)])
        own = {one.measurement.workers: one for one in here if line_name(one) == name}
        at = [(str(gpus), finite(measured(one))) for gpus, one in sorted(own.items())]
        series.append(dots(f"{name}, measured", look, at))
        along = [finite(predicted(own[gpus])) if gpus in own else None for gpus in axis]
        series.append(dashed(f"{name}, predicted", look, along))
    words = " ".join(
        f"{line_name(one)} with {one.measurement.workers} GPUs: {format_number(value)} measured."
        for one in here
        if (value := measured(one)) is not None
    )
    subtitle = f"batch of {batch:,} per GPU"
    option = frame(title, subtitle, f"{title} at a {subtitle}. {words}", series)
    option["xAxis"] = category_axis("GPUs", map(str, axis))
    option["series"] = series
    return option
