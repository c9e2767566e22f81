"""From rows to a calibration: fit each kind of hardware by itself, check it (every configuration is predicted by a fit
that has not seen it), and keep what helps."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from gpuyard.predict.calibration.defaults import default_line
from gpuyard.predict.calibration.document import (
    CalibratedConstant,
    CalibratedLine,
    CalibratedPoint,
    CheckedErrors,
)
from gpuyard.predict.calibration.fit import Fit, Lines, compiled, fit, times
from gpuyard.predict.calibration.rows import (
    Configuration,
    Hardware,
    LineKey,
    LinkRates,
    TrainingRow,
)

MOST_FOLDS = 12
_FoldListener = Callable[[int, int], None]


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
    on_fold: _FoldListener | None = None,
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


LEAST_RUNS = 4
LEAST_CONFIGURATIONS = 3
# of one or two configurations by chance: what is this little worse counts as equal
_AS_GOOD = 1e-9
Listener = Callable[[Hardware, int, int], None]


@dataclass(frozen=True)
class Calibrated:
    """One kind of hardware, fitted and checked."""

    hardware: Hardware
    constants: tuple[CalibratedConstant, ...]
    lines: tuple[CalibratedLine, ...]
    points: tuple[CalibratedPoint, ...]
    errors: CheckedErrors
    checked: tuple[Checked, ...]

    @property
    def worse(self) -> bool:
        """On configurations that the fit has not seen."""
        return self.errors.mean_after > self.errors.mean_before + _AS_GOOD


@dataclass(frozen=True)
class Uncalibrated:
    """A kind of hardware with too few runs, and the sentence that says so."""

    hardware: Hardware
    sentence: str


def calibrate(
    rows: Sequence[TrainingRow],
    links: Mapping[Hardware, LinkRates],
    on_fold: Listener | None = None,
) -> tuple[list[Calibrated], list[Uncalibrated]]:
    """Fit and check every kind of hardware that has enough runs."""
    by_hardware: dict[Hardware, list[TrainingRow]] = {}
    for row in rows:
        by_hardware.setdefault(row.hardware, []).append(row)
    done: list[Calibrated] = []
    refused: list[Uncalibrated] = []
    for hardware, members in by_hardware.items():
        sentence = _too_few(members)
        if sentence is not None:
            refused.append(Uncalibrated(hardware, sentence))
            continue

        def listen(fold: int, folds: int, hardware: Hardware = hardware) -> None:
            if on_fold is not None:
                on_fold(hardware, fold, folds)

        found = fit(hardware, members, links.get(hardware))
        checked = cross_validate(hardware, members, links.get(hardware), listen)
        if not checked:
            refused.append(Uncalibrated(hardware, _no_check(members)))
            continue
        done.append(_calibrated(hardware, members, found, checked))
    return done, refused


def _calibrated(
    hardware: Hardware, rows: Sequence[TrainingRow], found: Fit, checked: tuple[Checked, ...]
) -> Calibrated:
    constants = tuple(
        CalibratedConstant(
            name=constant.free.name,
            value=_rounded(constant.value),
            default=_rounded(constant.free.default),
            unit=constant.free.unit,
            doubt=_rounded(constant.doubt),
        )
        for constant in found.constants
    )
    lines = []
    for line in found.lines:
        members = [row for row in rows if row.key == line.key]
        batches = [row.batch_per_worker for row in members]
        lines.append(
            CalibratedLine(
                workload=members[-1].workload.name,
                model=line.key.model,
                precision=line.key.precision,
                gradient_bytes=line.key.gradient_bytes,
                fixed_seconds=_rounded(line.fixed_seconds),
                seconds_per_sample=_rounded(line.seconds_per_sample),
                fixed_basis="measured" if line.fixed_measured else "assumed",
                runs=len(members),
                smallest_batch=min(batches),
                largest_batch=max(batches),
            )
        )
    off = CheckedErrors(
        configurations=len(checked),
        mean_before=fmean(c.before for c in checked),
        mean_after=fmean(c.after for c in checked),
        median_before=median(c.before for c in checked),
        median_after=median(c.after for c in checked),
        mean_fitted=fmean(abs(error) for error in errors(hardware, found, rows)),
    )
    return Calibrated(hardware, constants, tuple(lines), _points(rows), off, checked)


def _points(rows: Sequence[TrainingRow]) -> tuple[CalibratedPoint, ...]:
    """Every configuration of several workers, its runs averaged."""
    found: dict[Configuration, list[TrainingRow]] = {}
    for row in rows:
        if row.workers > 1:
            found.setdefault(row.configuration, []).append(row)
    return tuple(
        CalibratedPoint(
            model=key.model,
            precision=key.precision,
            gradient_bytes=key.gradient_bytes,
            strategy=strategy,
            workers=workers,
            batch_per_worker=batch,
            samples_per_second=_rounded(
                workers * batch / fmean(row.step_seconds for row in members)
            ),
            runs=len(members),
        )
        for (key, strategy, workers, batch), members in found.items()
    )


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _too_few(rows: Sequence[TrainingRow]) -> str | None:
    configurations = len({row.configuration for row in rows})
    if len(rows) >= LEAST_RUNS and configurations >= LEAST_CONFIGURATIONS:
        return None
    return (
        f"{len(rows)} training run{'s' if len(rows) > 1 else ''} of {configurations} "
        f"configuration{'s' if configurations > 1 else ''}, and it takes {LEAST_RUNS} runs of "
        f"{LEAST_CONFIGURATIONS}"
    )


def _no_check(rows: Sequence[TrainingRow]) -> str:
    return (
        f"{len(rows)} training runs, but of no workload more than one configuration, so nothing "
        "can be left out to check it"
    )
