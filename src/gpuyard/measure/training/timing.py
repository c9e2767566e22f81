"""Timed windows of training steps: how many, how long, and what they say."""

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

_FEWEST_WINDOWS = 3
_MOST_WINDOWS = 10
_WARM_UP_SECONDS = 0.3
_MOST_WARM_UP_STEPS = 30


@dataclass(frozen=True)
class Schedule:
    """So many windows of so many steps, the first of them each followed by a local one."""

    windows: int
    steps: int
    local_windows: int


@dataclass(frozen=True)
class TimedWindows:
    """All windows of one point."""

    windows: tuple[Window, ...]
    local_windows: tuple[Window, ...]
    loss_first: float
    loss_last: float


def schedule(step_seconds: float, budget_seconds: float, kinds: int, period: int = 1) -> Schedule:
    """Fill the budget with up to 10 windows of each kind, each of whole periods of steps.

    Periods too slow for that get 3 windows of one period, and one local window.
    """
    periods = budget_seconds / (kinds * period * max(step_seconds, 1e-9))
    windows = max(_FEWEST_WINDOWS, min(_MOST_WINDOWS, int(periods)))
    local_windows = max(1, min(windows, int(periods))) if kinds > 1 else 0
    return Schedule(windows, period * max(1, round(periods / windows)), local_windows)


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
    """Warm up, then windows of synchronised steps, each followed by one without exchange.

    Rank 0 decides how many steps there are of each, so that no rank waits for a step that another
    does not make.
    """
    kinds = 1 if local_batches is None else 2
    loss_first, step_seconds = _warm_up(trainer, batches, peers, device, budget_seconds)
    decided = schedule(step_seconds, budget_seconds, kinds, trainer.period)
    windows, steps, local_windows = (
        int(n) for n in peers.agree([decided.windows, decided.steps, decided.local_windows])
    )
    if local_batches is not None and steps > trainer.period:
        with trainer.alone():
            _run(trainer, local_batches, trainer.period, device)
    synchronised: list[Window] = []
    local: list[Window] = []
    for done in range(windows):
        on_progress((1 + done) / (1 + windows))  # the warm-up was the first part
        window, loss = _window(trainer, batches, steps, peers, device)
        synchronised.append(window)
        if local_batches is not None and done < local_windows:
            on_progress((1.5 + done) / (1 + windows))
            with trainer.alone():
                window, _ = _window(trainer, local_batches, steps, peers, device)
            local.append(window)
    losses = peers.mean([float(loss_first), float(loss)])
    return TimedWindows(tuple(synchronised), tuple(local), *losses)


def measured_step(windows: tuple[Window, ...], local_windows: tuple[Window, ...]) -> MeasuredStep:
    """What the step waits for: input, exchange (synchronised minus local step), computation."""
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


def finite(number: float) -> float | None:
    """None for what JSON cannot say: a loss that ran away."""
    return number if math.isfinite(number) else None


def _warm_up(
    trainer: Trainer, batches: Batches, peers: Peers, device: torch.device, budget_seconds: float
) -> tuple[Tensor, float]:
    period = trainer.period
    first, loss = _run(trainer, batches, 1, device)
    if period > 1:
        rest, _ = _run(trainer, batches, period - 1, device)
        first = Window(
            steps=period,
            seconds=first.seconds + rest.seconds,
            input_seconds=first.input_seconds + rest.input_seconds,
        )
    # a first step allocates, and DDP rearranges its buckets after it: it is no measure of the rest
    wanted = 0.0
    if first.seconds < max(2.0, budget_seconds):
        wanted = min(_MOST_WARM_UP_STEPS, max(2.0, _WARM_UP_SECONDS / first.seconds))
    (more,) = peers.agree([wanted])
    if not int(more):
        return loss, first.seconds / period
    half = period * max(1, int(more) // 2)
    _run(trainer, batches, half, device)
    rest, _ = _run(trainer, batches, half, device)
    return loss, rest.seconds / rest.steps


def _window(
    trainer: Trainer, batches: Batches, steps: int, peers: Peers, device: torch.device
) -> tuple[Window, Tensor]:
    peers.barrier()
    trainer.rest()
    window, loss = _run(trainer, batches, steps, device)
    seconds, input_seconds = peers.slowest([window.seconds, window.input_seconds])
    return Window(steps=steps, seconds=seconds, input_seconds=input_seconds), loss


def _run(
    trainer: Trainer, batches: Batches, steps: int, device: torch.device
) -> tuple[Window, Tensor]:
    input_seconds = 0.0
    start = perf_counter()
    for _ in range(steps):
        asked = perf_counter()
        inputs, target = next(batches)
        input_seconds += perf_counter() - asked
        loss = trainer.step(inputs, target)
    synchronize(device)
    seconds = perf_counter() - start
    return Window(steps=steps, seconds=seconds, input_seconds=input_seconds), loss
