"""`gpuyard calibrate` for people: what was found, and what it does to the errors."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpuyard.cli.options import console, print_table
from gpuyard.units import format_byte_rate, format_seconds, format_share

if TYPE_CHECKING:
    from gpuyard.predict.calibration.calibrate import Calibrated


def print_calibrated(done: Sequence["Calibrated"]) -> None:
    """Tables for each kind of hardware."""
    for one in done:
        _print_constants(one)
        _print_lines(one)
        _print_errors(one)


def _print_constants(one: "Calibrated") -> None:
    if not one.constants:
        console().print(
            f"{one.hardware.label}: the runs identify no constant, only compute.",
            highlight=False,
            markup=False,
        )
        return
    print_table(
        f"{one.hardware.label}: constants that the runs identify",
        ["constant", "default", "calibrated", "unit", "doubt left"],
        [
            [c.name, _shown(c.default, c.unit), _shown(c.value, c.unit), _unit(c.unit),
             format_share(c.doubt)]
            for c in one.constants
        ],
    )  # fmt: skip


def _print_lines(one: "Calibrated") -> None:
    print_table(
        "Compute of one worker: fixed + batch × per sample",
        ["workload", "precision", "runs", "batches", "fixed", "fixed part is", "per sample"],
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


def _print_errors(one: "Calibrated") -> None:
    off = one.errors
    print_table(
        "Error of samples/s; each configuration was left out of the fit that predicts it",
        ["", "configurations", "mean", "median"],
        [
            ["before", str(off.configurations), format_share(off.mean_before),
             format_share(off.median_before)],
            ["after", str(off.configurations), format_share(off.mean_after),
             format_share(off.median_after)],
        ],
    )  # fmt: skip
    if one.worse:
        console().print("Worse than the defaults on what the fit had not seen.", highlight=False)


def _shown(value: float, unit: str) -> str:
    if unit == "seconds":
        return format_seconds(value)
    return format_byte_rate(value) if unit == "bytes/s" else f"{value:.3g}"


def _unit(unit: str) -> str:
    return "" if unit in ("seconds", "bytes/s") else unit
