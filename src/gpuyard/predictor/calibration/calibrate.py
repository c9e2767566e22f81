"""Turn training rows into a calibration.

Each kind of hardware is fitted separately and checked by cross-validation: every configuration is predicted by a fit
that has not seen it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from gpuyard.predictor.calibration.defaults import default_line
from gpuyard.predictor.calibration.document import (
    CalibratedConstant,
    CalibratedLine,
    CalibratedPoint,
    CheckedErrors,
)
from gpuyard.predictor.calibration.fit import Fit, Lines, compile_blocks, fit, predict_times
from gpuyard.predictor.calibration.rows import (
    Configuration,
    Hardware,
    LineKey,
    LinkRates,
    TrainingRow,
)

MAX_FOLDS = 12
_FoldListener = Callable[[int, int], None]


@dataclass(frozen=True)
class CheckedConfiguration:
    """The relative errors of samples/s of one held-out configuration, before and after the fit."""

    row: TrainingRow
    before: float
    after: float


def cross_validate(
    hardware: Hardware,
    rows: Sequence[TrainingRow],
    links: LinkRates | None = None,
    on_fold: _FoldListener | None = None,
) -> tuple[CheckedConfiguration, ...]:
    """Predict each held-out configuration with the defaults and with a fit to the rest.

    All repeats of a configuration are held out together; many configurations are held out in groups.
    """
    checked: list[CheckedConfiguration] = []
    folds = list(_folds(rows))
    for number, left_out in enumerate(folds):
        kept = [row for row in rows if row.configuration not in left_out]
        kept_keys = {row.key for row in kept}
        held = [
            row
            for row in rows
            if row.configuration in left_out and (hardware.gpu is not None or row.key in kept_keys)
        ]
        if held:
            checked += _check(hardware, kept, held, links)
        if on_fold is not None:
            on_fold(number + 1, len(folds))
    return tuple(checked)


def fit_errors(hardware: Hardware, result: Fit, rows: Sequence[TrainingRow]) -> list[float]:
    """Return the errors of a fit on rows of workloads that it has lines for."""
    return _compute_errors(hardware, rows, result.values, result.by_key)


def _check(
    hardware: Hardware,
    kept: Sequence[TrainingRow],
    held: Sequence[TrainingRow],
    links: LinkRates | None,
) -> Iterator[CheckedConfiguration]:
    default_lines: dict[LineKey, tuple[float, float]] = {}
    for row in held:
        # a roofline does not use the runs, so the held-out row may stand in if no other row remains
        same_line = [other for other in kept if other.key == row.key] or [row]
        line = default_line(hardware, same_line)
        default_lines[row.key] = line.fixed_seconds, line.seconds_per_sample
    result = fit(hardware, kept, links)
    before = _compute_errors(hardware, held, {}, default_lines)
    after = _compute_errors(hardware, held, result.values, {**default_lines, **result.by_key})
    by_configuration: dict[Configuration, list[int]] = {}
    ordered = [row for block in compile_blocks(hardware, held) for row in block.rows]
    for index, row in enumerate(ordered):
        by_configuration.setdefault(row.configuration, []).append(index)
    for members in by_configuration.values():
        yield CheckedConfiguration(
            ordered[members[0]],
            float(np.mean([abs(before[i]) for i in members])),
            float(np.mean([abs(after[i]) for i in members])),
        )


def _compute_errors(
    hardware: Hardware, rows: Sequence[TrainingRow], values: dict[str, float], lines: Lines
) -> list[float]:
    """Return predicted over measured samples/s minus one, in the order of the blocks."""
    blocks = compile_blocks(hardware, rows)
    predicted = predict_times(blocks, values, lines)
    measured = np.array([row.step_seconds for block in blocks for row in block.rows])
    return [float(error) for error in measured / predicted.step - 1]


def _folds(rows: Sequence[TrainingRow]) -> Iterator[set[Configuration]]:
    """Yield deterministic folds: configurations in the order of the runs, distributed round-robin."""
    names = list(dict.fromkeys(row.configuration for row in rows))
    count = min(len(names), MAX_FOLDS)
    for fold in range(count):
        yield set(names[fold::count])


MIN_RUNS = 4
MIN_CONFIGURATIONS = 3
# a smaller difference counts as equal
_TOLERANCE = 1e-9
Listener = Callable[[Hardware, int, int], None]


@dataclass(frozen=True)
class Calibrated:
    """One kind of hardware, fitted and checked."""

    hardware: Hardware
    constants: tuple[CalibratedConstant, ...]
    lines: tuple[CalibratedLine, ...]
    points: tuple[CalibratedPoint, ...]
    errors: CheckedErrors
    checked: tuple[CheckedConfiguration, ...]

    @property
    def is_worse(self) -> bool:
        """True if the fit is worse than the defaults on configurations that it has not seen."""
        return self.errors.mean_after > self.errors.mean_before + _TOLERANCE


@dataclass(frozen=True)
class Uncalibrated:
    """A kind of hardware that cannot be calibrated, and the reason."""

    hardware: Hardware
    reason: str


def calibrate(
    rows: Sequence[TrainingRow],
    links: Mapping[Hardware, LinkRates],
    on_fold: Listener | None = None,
) -> tuple[list[Calibrated], list[Uncalibrated]]:
    """Fit and check every kind of hardware that has enough runs."""
    by_hardware: dict[Hardware, list[TrainingRow]] = {}
    for row in rows:
        by_hardware.setdefault(row.hardware, []).append(row)
    calibrated: list[Calibrated] = []
    uncalibrated: list[Uncalibrated] = []
    for hardware, members in by_hardware.items():
        reason = _describe_missing_runs(members)
        if reason is not None:
            uncalibrated.append(Uncalibrated(hardware, reason))
            continue

        def report_fold(fold: int, folds: int, hardware: Hardware = hardware) -> None:
            if on_fold is not None:
                on_fold(hardware, fold, folds)

        result = fit(hardware, members, links.get(hardware))
        checked = cross_validate(hardware, members, links.get(hardware), report_fold)
        if not checked:
            uncalibrated.append(Uncalibrated(hardware, _describe_missing_check(members)))
            continue
        calibrated.append(_build_calibrated(hardware, members, result, checked))
    return calibrated, uncalibrated


def _build_calibrated(
    hardware: Hardware,
    rows: Sequence[TrainingRow],
    result: Fit,
    checked: tuple[CheckedConfiguration, ...],
) -> Calibrated:
    constants = tuple(
        CalibratedConstant(
            name=constant.free.name,
            value=_round(constant.value),
            default=_round(constant.free.default),
            unit=constant.free.unit,
            doubt=_round(constant.doubt),
        )
        for constant in result.constants
    )
    lines = []
    for line in result.lines:
        members = [row for row in rows if row.key == line.key]
        batches = [row.batch_per_worker for row in members]
        lines.append(
            CalibratedLine(
                workload=members[-1].workload.name,
                model=line.key.model,
                precision=line.key.precision,
                gradient_bytes=line.key.gradient_bytes,
                fixed_seconds=_round(line.fixed_seconds),
                seconds_per_sample=_round(line.seconds_per_sample),
                fixed_basis="measured" if line.fixed_measured else "assumed",
                runs=len(members),
                smallest_batch=min(batches),
                largest_batch=max(batches),
            )
        )
    checked_errors = CheckedErrors(
        configurations=len(checked),
        mean_before=fmean(c.before for c in checked),
        mean_after=fmean(c.after for c in checked),
        median_before=median(c.before for c in checked),
        median_after=median(c.after for c in checked),
        mean_fitted=fmean(abs(error) for error in fit_errors(hardware, result, rows)),
    )
    return Calibrated(
        hardware, constants, tuple(lines), _average_points(rows), checked_errors, checked
    )


def _average_points(rows: Sequence[TrainingRow]) -> tuple[CalibratedPoint, ...]:
    """Average the runs of every configuration with several workers."""
    groups: dict[Configuration, list[TrainingRow]] = {}
    for row in rows:
        if row.workers > 1:
            groups.setdefault(row.configuration, []).append(row)
    return tuple(
        CalibratedPoint(
            model=key.model,
            precision=key.precision,
            gradient_bytes=key.gradient_bytes,
            strategy=strategy,
            workers=workers,
            batch_per_worker=batch,
            samples_per_second=_round(workers * batch / fmean(row.step_seconds for row in members)),
            runs=len(members),
        )
        for (key, strategy, workers, batch), members in groups.items()
    )


def _round(value: float) -> float:
    return float(f"{value:.6g}")


def _describe_missing_runs(rows: Sequence[TrainingRow]) -> str | None:
    configurations = len({row.configuration for row in rows})
    if len(rows) >= MIN_RUNS and configurations >= MIN_CONFIGURATIONS:
        return None
    return (
        f"{len(rows)} training run{'s' if len(rows) > 1 else ''} of {configurations} "
        f"configuration{'s' if configurations > 1 else ''}; a calibration needs {MIN_RUNS} runs of "
        f"{MIN_CONFIGURATIONS}"
    )


def _describe_missing_check(rows: Sequence[TrainingRow]) -> str:
    return (
        f"{len(rows)} training runs, but only one configuration per workload, so no configuration can be "
        "held out to check the fit"
    )
