"""The answer of `gpuyard goodput`: the best checkpoint interval, and what interruptions cost."""

from collections.abc import Mapping

from gpuyard import units
from gpuyard.draw.goodput import GoodputCurve, draw_goodput_svg
from gpuyard.economics.goodput import Goodput
from gpuyard.planner.goodput import GoodputResult
from gpuyard.report.answer import (
    ALL_BATCHES,
    Answer,
    Chart,
    Charts,
    Column,
    DefinitionList,
    Part,
    RendererOnly,
    Sentence,
    StyledText,
    Table,
)
from gpuyard.report.figures.goodput import build_gpus_chart, build_interval_chart
from gpuyard.units import format_rough_seconds

_SHOWN_FACTORS = (1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8)
_COLUMNS = ("checkpoint every", "goodput", Column("90% interval", 1))


def goodput_answer(result: GoodputResult, misfit: str | None = None) -> Answer:
    """Show the best interval first, then where it comes from and how it changes.

    `misfit` says that the model does not fit; it is empty if it does, and None if that is unknown.
    """
    best = result.goodput
    parts: list[Part] = [
        *([Sentence(misfit, "bad")] if misfit else []),
        Sentence(first_line(result), "good" if best.share > 0.9 else "caution"),
        DefinitionList(_facts(result)),
        _interval_table(result),
        _gpus_table(result),
        RendererOnly("page", [Charts(_charts(result))]),
        Sentence(f"Interruptions: {best.mean_time.basis}.", "quiet"),
    ]
    if result.spot is not None:
        parts.append(Sentence(f"Spot: {result.spot.mean_time.basis}.", "quiet"))
    title = f"Goodput of {result.workload} on {units.format_count(result.gpus, 'GPU')} of {result.cluster}"
    document = result.as_json() | {"fits": None if misfit is None else not misfit}
    return Answer(parts, document, title=title, verb="goodput")


def first_line(result: GoodputResult) -> str:
    """Return e.g. "Checkpoint every 22 min; 94% goodput; spot saves 41% after restarts."."""
    words = [
        f"Checkpoint every {format_rough_seconds(result.goodput.interval_seconds)}",
        f"{_percent(result.goodput.share)} goodput",
    ]
    saving = result.spot_saving
    if saving is not None:
        verb = "saves" if saving >= 0 else "costs"
        more = "" if saving >= 0 else " more"
        words.append(f"spot {verb} {abs(saving):.0%}{more} after restarts")
    elif result.spot_fails:
        words.append("spot would hardly make progress")
    return "; ".join(words) + "."


def describe_losses(goodput: Goodput) -> str:
    """Return a sentence about what interruptions take from a run, for the answers of other commands."""
    return (
        f"Interruptions and checkpoints leave {_percent(goodput.share)} of the time "
        f"({_percent(goodput.low)} to {_percent(goodput.high)}), with a checkpoint every "
        f"{format_rough_seconds(goodput.interval_seconds)}."
    )


def _facts(result: GoodputResult) -> list[tuple[str, StyledText]]:
    best, checkpoints = result.goodput, result.checkpoints
    facts: list[tuple[str, StyledText]] = [
        (
            "interruptions",
            f"one in {_hours(best.mean_time.hours)} ({_hours(best.mean_time.low)} to "
            f"{_hours(best.mean_time.high)}) on {units.format_count(result.gpus, 'GPU')}",
        ),
        (
            "checkpoint",
            f"{units.format_bytes(checkpoints.size_bytes)}, written in "
            f"{units.format_seconds(checkpoints.write_seconds)}"
            + (f" to {checkpoints.storage}" if checkpoints.storage else ", as given"),
        ),
        ("restart", units.format_seconds(checkpoints.restart_seconds)),
        ("goodput", f"{_percent(best.share)} ({_percent(best.low)} to {_percent(best.high)})"),
    ]
    if (days := result.days) is not None and result.useful_days is not None:
        facts.append(
            ("days", f"{days[0]:,.3g} ({days[1]:,.3g} to {days[2]:,.3g}); {result.useful_days:,.3g} without losses")
        )  # fmt: skip
    document = result.as_json()
    if result.price is not None and result.usd_per_useful_hour is not None:
        facts.append(("on demand", _money(result.price.id, result.usd_per_useful_hour, document)))
    if result.spot is not None and result.spot_saving is not None and result.spot_price:
        hourly = document["spot"]["usd_per_useful_hour"]
        spot = _money(result.spot_price.id, hourly, document["spot"])
        facts.append(("spot", f"{spot}, {_percent(result.spot.share)} goodput"))
    return facts


def _money(instance: str, hourly: float, document: Mapping[str, float | None]) -> str:
    usd, low, high = (document[key] for key in ("usd", "usd_low", "usd_high"))
    whole = ""
    if usd is not None and low is not None and high is not None:
        span = f"{units.format_rough_usd(low)} to {units.format_rough_usd(high)}"
        whole = f"{units.format_rough_usd(usd)} ({span}), "
    return f"{whole}{units.format_usd(hourly)} per hour of progress on {instance}"


def _interval_table(result: GoodputResult) -> Table:
    points = dict(result.by_interval)
    chosen = [min(points, key=lambda s: abs(s / (_center(result) * f) - 1)) for f in _SHOWN_FACTORS]
    rows = [[format_rough_seconds(seconds), *_shares(points[seconds])] for seconds in chosen]
    return Table("By checkpoint interval", list(_COLUMNS), rows)


def _gpus_table(result: GoodputResult) -> Table:
    rows = [
        [f"{gpus:,}", format_rough_seconds(point.interval_seconds), *_shares(point)]
        for gpus, point in result.by_gpus
        if gpus == result.gpus or gpus.bit_length() % 2 == 0
    ]
    return Table(
        "By number of GPUs, with the same checkpoint and restart times", ["GPUs", *_COLUMNS], rows
    )


def _shares(point: Goodput) -> list[str]:
    return [_percent(point.share), f"{_percent(point.low)}–{_percent(point.high)}"]


def _center(result: GoodputResult) -> float:
    return result.by_interval[len(result.by_interval) // 2][0]


def _charts(result: GoodputResult) -> list[Chart]:
    return [
        Chart(
            "goodput-interval",
            "Shorter intervals write more checkpoints; longer ones lose more work.",
            {ALL_BATCHES: build_interval_chart(result)},
        ),
        Chart(
            "goodput-gpus",
            "More GPUs are interrupted more often.",
            {ALL_BATCHES: build_gpus_chart(result)},
        ),
    ]


def goodput_svg(result: GoodputResult, title: str) -> str:
    """Draw both curves."""
    intervals = tuple(
        (seconds, point.share, point.low, point.high) for seconds, point in result.by_interval
    )
    gpus = tuple(
        (float(count), point.share, point.low, point.high) for count, point in result.by_gpus
    )
    curves = [
        GoodputCurve(
            "By checkpoint interval", "time between checkpoints", intervals,
            tuple((at, format_rough_seconds(at)) for at, *_ in intervals[::8]), _center(result),
        ),
        GoodputCurve(
            "By number of GPUs", "GPUs, each at its best interval", gpus,
            tuple((at, f"{at:,.0f}") for at, *_ in gpus[::2]), float(result.gpus),
        ),
    ]  # fmt: skip
    return draw_goodput_svg(curves, title, first_line(result))


def _hours(hours: float) -> str:
    return format_rough_seconds(3600 * hours)


def _percent(share: float) -> str:
    """Keep a digit: near 100%, whole percents would hide the loss."""
    if share >= 0.9995:
        return ">99.9%" if share < 1 else "100%"
    return f"{share:.1%}"
