"""Shows the constants that a calibration found, and how it changes the errors of predictions."""

from collections.abc import Iterator, Sequence
from typing import Any

from gpuyard.predictor.calibration.calibrate import Calibrated
from gpuyard.report.answer import Answer, Column, Part, Sentence, Table
from gpuyard.units import format_byte_rate, format_seconds, format_share

_UNITS_IN_VALUE = ("seconds", "bytes/s")  # formatted together with the value


def calibrate_answer(
    calibrated: Sequence[Calibrated], notes: Sequence[str], document: Any
) -> Answer:
    """Show tables for each kind of hardware, then notes about the runs that were left out."""
    tables = [part for hardware in calibrated for part in _build_parts(hardware)]
    return Answer([*tables, *map(Sentence, notes)], document, verb="calibrate")


def _build_parts(calibrated: Calibrated) -> Iterator[Part]:
    label = calibrated.hardware.label
    if calibrated.constants:
        yield Table(
            f"{label}: constants that the runs determine",
            ["constant", "default", "calibrated", "unit", Column("uncertainty", 1)],
            [
                [
                    c.name,
                    _format_value(c.default, c.unit),
                    _format_value(c.value, c.unit),
                    "" if c.unit in _UNITS_IN_VALUE else c.unit,
                    format_share(c.doubt),
                ]
                for c in calibrated.constants
            ],
        )
    else:
        yield Sentence(f"{label}: the runs determine only compute, and no constant.")
    columns = ("workload", Column("precision", 2), Column("runs", 3), Column("batches", 4))
    yield Table(
        "Compute of one worker: fixed + batch × per sample",
        [*columns, "fixed", Column("basis of fixed", 1), "per sample"],
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
            for line in calibrated.lines
        ],
    )
    errors = calibrated.errors
    yield Table(
        "Error of samples/s; each configuration was left out of the fit that predicts it",
        ["", "configurations", "mean", "median"],
        [
            [label, str(errors.configurations), format_share(mean), format_share(median)]
            for label, mean, median in (
                ("before", errors.mean_before, errors.median_before),
                ("after", errors.mean_after, errors.median_after),
            )
        ],
    )
    if calibrated.is_worse:
        yield Sentence("Worse than the defaults on configurations outside the fit.", "caution")


def _format_value(value: float, unit: str) -> str:
    if unit == "seconds":
        return format_seconds(value)
    return format_byte_rate(value) if unit == "bytes/s" else f"{value:.3g}"
