"""Is a calibration worth it? Every configuration is predicted by a fit that has not seen it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gpuyard.predict.calibration.defaults import default_line
from gpuyard.predict.calibration.fit import Fit, fit
from gpuyard.predict.calibration.model import Lines, compiled, times
from gpuyard.predict.calibration.rows import (
    Configuration,
    Hardware,
    LineKey,
    LinkRates,
    TrainingRow,
)

MOST_FOLDS = 12
Listener = Callable[[int, int], None]


@dataclass(frozen=True)
class Checked:
    """One held-out configuration: how far off its samples/s would have been, relative."""

    row: TrainingRow
    before: float
    after: float


def cross_validate(
    hardware: Hardware,
    rows: Sequence[TrainingRow],
    links: LinkRates | None = None,
    on_fold: Listener | None = None,
) -> tuple[Checked, ...]:
    """Leave out one configuration with all its repeats (of many configurations, some at a time), fit
    the rest, and predict it with the defaults and with the fit."""
    checked: list[Checked] = []
    folds = list(_folds(rows))
    for number, left_out in enumerate(folds):
        kept = [row for row in rows if row.configuration not in left_out]
        known = {row.key for row in kept}
        held = [
            row
            for row in rows
            if row.configuration in left_out and (hardware.gpu is not None or row.key in known)
        ]
        if held:
            checked += _check(hardware, kept, held, links)
        if on_fold is not None:
            on_fold(number + 1, len(folds))
    return tuple(checked)


def errors(hardware: Hardware, fitted: Fit, rows: Sequence[TrainingRow]) -> list[float]:
    """Of a fit on rows of workloads that it has lines for."""
    return _errors(hardware, rows, fitted.values, fitted.by_key)


def _check(
    hardware: Hardware,
    kept: Sequence[TrainingRow],
    held: Sequence[TrainingRow],
    links: LinkRates | None,
) -> Iterator[Checked]:
    plain: dict[LineKey, tuple[float, float]] = {}
    for row in held:
        # a roofline does not look at the runs, so where none is left the held-out one may stand in
        seen = [other for other in kept if other.key == row.key] or [row]
        line = default_line(hardware, seen)
        plain[row.key] = line.fixed_seconds, line.seconds_per_sample
    found = fit(hardware, kept, links)
    before = _errors(hardware, held, {}, plain)
    after = _errors(hardware, held, found.values, {**plain, **found.by_key})
    by_configuration: dict[Configuration, list[int]] = {}
    ordered = [row for block in compiled(hardware, held) for row in block.rows]
    for index, row in enumerate(ordered):
        by_configuration.setdefault(row.configuration, []).append(index)
    for members in by_configuration.values():
        yield Checked(
            ordered[members[0]],
            float(np.mean([abs(before[i]) for i in members])),
            float(np.mean([abs(after[i]) for i in members])),
        )


def _errors(
    hardware: Hardware, rows: Sequence[TrainingRow], values: dict[str, float], lines: Lines
) -> list[float]:
    """Predicted over measured samples/s, less one; in the order of the blocks."""
    blocks = compiled(hardware, rows)
    made = times(blocks, values, lines)
    measured = np.array([row.step_seconds for block in blocks for row in block.rows])
    return [float(error) for error in measured / made.step - 1]


def _folds(rows: Sequence[TrainingRow]) -> Iterator[set[Configuration]]:
    """Nothing is random: configurations in the order of the runs, dealt out one after the other."""
    names = list(dict.fromkeys(row.configuration for row in rows))
    count = min(len(names), MOST_FOLDS)
    for fold in range(count):
        yield set(names[fold::count])
