"""What a calibration found, and what it does to the errors."""

from collections.abc import Iterator, Sequence
from typing import Any

from gpuyard.predict.calibration.calibrate import Calibrated
from gpuyard.report.answer import Answer, Column, Part, Sentence, Table
from gpuyard.units import format_byte_rate, format_seconds, format_share


def calibrate_answer(
    calibrated: Sequence[Calibrated], notes: Sequence[str], document: Any
) -> Answer:
    """Tables for each kind of hardware, then what was left out."""
    tables = [part for one in calibrated for part in _parts(one)]
    return Answer([*tables, *map(Sentence, notes)], document, verb="calibrate")


def _parts(one: Calibrated) -> Iterator[Part]:
    if one.constants:
        yield Table(
            f"{one.hardware.label}: constants that the runs identify",
            ["constant", "default", "calibrated", "unit", Column("uncertainty", 1)],
            [
                [
                    c.name,
                    _shown(c.default, c.unit),
                    _shown(c.value, c.unit),
                    _unit(c.unit),
                    format_share(c.doubt),
                ]
                for c in one.constants
            ],
        )
    else:
        yield Sentence(f"{one.hardware.label}: the runs identify no constant, only compute.")
    columns = ("workload", Column("precision", 2), Column("runs", 3), Column("batches", 4))
    yield Table(
        "Compute of one worker: fixed + batch × per sample",
        [*columns, "fixed", Column("fixed part is", 1), "per sample"],
        [
            [
                line.workload,
                line.precision,
                str(line.runs),
                f"{line.smallest_batch} – {line.largest_batch}",
                format_seconds(line.fixed_seconds),
                line.fixed_basis,
                format_seconds(line.seconds_per_sample),
            ]
            for line in one.lines
        ],
    )
    off = one.errors
    yield Table(
        "Error of samples/s; each configuration was left out of the fit that predicts it",
        ["", "configurations", "mean", "median"],
        [
            [when, str(off.configurations), format_share(mean), format_share(median)]
            for when, mean, median in (
                ("before", off.mean_before, off.median_before),
                ("after", off.mean_after, off.median_after),
            )
        ],
    )
    if one.worse:
        yield Sentence("Worse than the defaults on what the fit had not seen.", "caution")


def _shown(value: float, unit: str) -> str:
    if unit == "seconds":
        return format_seconds(value)
    return format_byte_rate(value) if unit == "bytes/s" else f"{value:.3g}"


def _unit(unit: str) -> str:
    return "" if unit in ("seconds", "bytes/s") else unit
