"""Times windows of training steps, and splits the step time into compute, exchange, and input."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import fmean
from time import perf_counter

import torch
from torch import Tensor

from gpuyard.measure.training.records import MeasuredStep, Window
from gpuyard.measure.training.trainer import Trainer
from gpuyard.run.peers import Peers, synchronize

Batches = Iterator[tuple[tuple[Tensor, ...], Tensor]]

_MIN_WINDOWS = 3
_MAX_WINDOWS = 10
_WARM_UP_SECONDS = 0.3
_MAX_WARM_UP_STEPS = 30


@dataclass(frozen=True)
class WindowSchedule:
    """The number of windows, the steps in each, and how many windows are followed by one without exchange."""

    windows: int
    steps: int
    local_windows: int


@dataclass(frozen=True)
class TimedWindows:
    """All windows of one point, and the loss of its first and last step."""

    windows: tuple[Window, ...]
    local_windows: tuple[Window, ...]
    loss_first: float
    loss_last: float


def plan_windows(
    step_seconds: float, budget_seconds: float, kinds: int, period: int = 1
) -> WindowSchedule:
    """Fill the time budget with up to 10 windows of each kind, each of whole periods of steps.

    If periods are too slow for that, plan 3 windows of one period, and one local window.
    """
    periods = budget_seconds / (kinds * period * max(step_seconds, 1e-9))
    windows = max(_MIN_WINDOWS, min(_MAX_WINDOWS, int(periods)))
    local_windows = max(1, min(windows, int(periods))) if kinds > 1 else 0
    return WindowSchedule(windows, period * max(1, round(periods / windows)), local_windows)


def time_windows(
    trainer: Trainer,
    batches: Batches,
    local_batches: Batches | None,
    *,
    peers: Peers,
    device: torch.device,
    budget_seconds: float,
    on_progress: Callable[[float], None],
) -> TimedWindows:
    """Warm up, then time windows of synchronized steps, each followed by one without exchange.

    Rank 0 decides the number of windows and steps, so that no rank waits for a step that another skips.
    """
    kinds = 1 if local_batches is None else 2
    loss_first, step_seconds = _warm_up(trainer, batches, peers, device, budget_seconds)
    schedule = plan_windows(step_seconds, budget_seconds, kinds, trainer.period)
    windows, steps, local_windows = (
        int(n) for n in peers.broadcast([schedule.windows, schedule.steps, schedule.local_windows])
    )
    if local_batches is not None and steps > trainer.period:
        with trainer.without_exchange():
            _run_steps(trainer, local_batches, trainer.period, device)
    synchronized: list[Window] = []
    local: list[Window] = []
    for index in range(windows):
        on_progress((1 + index) / (1 + windows))  # the warm-up was the first part
        window, loss = _time_window(trainer, batches, steps, peers, device)
        synchronized.append(window)
        if local_batches is not None and index < local_windows:
            on_progress((1.5 + index) / (1 + windows))
            with trainer.without_exchange():
                window, _ = _time_window(trainer, local_batches, steps, peers, device)
            local.append(window)
    losses = peers.mean([float(loss_first), float(loss)])
    return TimedWindows(tuple(synchronized), tuple(local), *losses)


def calculate_measured_step(
    windows: tuple[Window, ...], local_windows: tuple[Window, ...]
) -> MeasuredStep:
    """Split the step time into input, exchange (synchronized minus local step), and compute."""
    step = fmean(window.seconds / window.steps for window in windows)
    input_part = fmean(window.input_seconds / window.steps for window in windows)
    exposed = 0.0
    if local_windows:
        local_step = fmean(window.seconds / window.steps for window in local_windows)
        exposed = min(max(0.0, step - local_step), step - input_part)
    return MeasuredStep(
        step_seconds=step,
        compute_seconds=max(0.0, step - input_part - exposed),
        exposed_communication_seconds=exposed,
        input_seconds=input_part,
    )


def finite_or_none(number: float) -> float | None:
    """Return None for a diverged loss (infinity or NaN), which JSON cannot represent."""
    return number if math.isfinite(number) else None


def _warm_up(
    trainer: Trainer, batches: Batches, peers: Peers, device: torch.device, budget_seconds: float
) -> tuple[Tensor, float]:
    period = trainer.period
    first, loss = _run_steps(trainer, batches, 1, device)
    if period > 1:
        rest, _ = _run_steps(trainer, batches, period - 1, device)
        first = Window(
            steps=period,
            seconds=first.seconds + rest.seconds,
            input_seconds=first.input_seconds + rest.input_seconds,
        )
    # the first step allocates memory, and DDP rearranges its buckets after it, so it is not typical
    more_steps = 0.0
    if first.seconds < max(2.0, budget_seconds):
        more_steps = min(_MAX_WARM_UP_STEPS, max(2.0, _WARM_UP_SECONDS / first.seconds))
    (more_steps,) = peers.broadcast([more_steps])
    if not int(more_steps):
        return loss, first.seconds / period
    half = period * max(1, int(more_steps) // 2)
    _run_steps(trainer, batches, half, device)
    rest, _ = _run_steps(trainer, batches, half, device)
    return loss, rest.seconds / rest.steps


def _time_window(
    trainer: Trainer, batches: Batches, steps: int, peers: Peers, device: torch.device
) -> tuple[Window, Tensor]:
    peers.barrier()
    trainer.reset_clock()
    window, loss = _run_steps(trainer, batches, steps, device)
    seconds, input_seconds = peers.max([window.seconds, window.input_seconds])
    return Window(steps=steps, seconds=seconds, input_seconds=input_seconds), loss


def _run_steps(
    trainer: Trainer, batches: Batches, steps: int, device: torch.device
) -> tuple[Window, Tensor]:
    input_seconds = 0.0
    start = perf_counter()
    for _ in range(steps):
        input_start = perf_counter()
        inputs, target = next(batches)
        input_seconds += perf_counter() - input_start
        loss = trainer.step(inputs, target)
    synchronize(device)
    seconds = perf_counter() - start
    return Window(steps=steps, seconds=seconds, input_seconds=input_seconds), loss
