"""What a job of a trace has to do, and how long that takes on some GPUs."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from gpuyard.jobs.curve import Curve, Speeds

GpusByMachine = tuple[int, ...]
"""GPUs by machine, the largest first: with the number of racks, all that speed depends on."""


def packed_shape(gpus: int, machine: int) -> GpusByMachine:
    """On as few machines of that many GPUs as hold them."""
    whole, rest = divmod(gpus, machine)
    return (machine,) * whole + ((rest,) if rest else ())


class Work(ABC):
    """An amount of work, and how fast it goes."""

    total: float

    @abstractmethod
    def curve(self, done: float) -> Curve:
        """As it is known when so much is done."""

    @abstractmethod
    def seconds(self, done: float, shape: GpusByMachine, racks: int = 1) -> float:
        """From there to the end on these GPUs, in so many racks; infinite where they can't do it."""

    @abstractmethod
    def after(self, done: float, shape: GpusByMachine, seconds: float, racks: int = 1) -> float:
        """What is done then."""


@dataclass(frozen=True, slots=True)
class SteadyWork(Work):
    """Goes equally fast from beginning to end."""

    total: float
    speeds: Curve

    def curve(self, done: float) -> Curve:
        del done
        return self.speeds

    def seconds(self, done: float, shape: GpusByMachine, racks: int = 1) -> float:
        speed = self.speeds.speed_on(shape, racks)
        return (self.total - done) / speed if speed > 0 else float("inf")

    def after(self, done: float, shape: GpusByMachine, seconds: float, racks: int = 1) -> float:
        return min(self.total, done + seconds * self.speeds.speed_on(shape, racks))


@dataclass(frozen=True, eq=False)
class PhasedWork(Work):
    """Speeds change from phase to phase, as where a larger batch pays later in training."""

    ends: Speeds  # work that is done at the end of each phase
    packed: Speeds  # [phase, GPUs]
    split: Callable[[GpusByMachine], Speeds]  # speed in each phase
    _clocks: dict[GpusByMachine, Speeds] = field(default_factory=dict)
    _curves: dict[int, Curve] = field(default_factory=dict)

    @property
    def total(self) -> float:  # type: ignore[override]
        return float(self.ends[-1])

    def curve(self, done: float) -> Curve:
        """Of the phase that it is in: nobody knows yet what the later ones will allow."""
        phase = min(int(np.searchsorted(self.ends, done, side="right")), len(self.ends) - 1)
        if phase not in self._curves:
            self._curves[phase] = Curve(
                self.packed[phase], lambda shape: float(self.split(shape)[phase])
            )
        return self._curves[phase]

    def seconds(self, done: float, shape: GpusByMachine, racks: int = 1) -> float:
        del racks  # what was measured says nothing of them
        clock = self._clock(shape)
        return float(clock[-1] - np.interp(done, self._starts, clock))

    def after(self, done: float, shape: GpusByMachine, seconds: float, racks: int = 1) -> float:
        del racks
        clock = self._clock(shape)
        then = np.interp(done, self._starts, clock) + seconds
        return float(np.interp(then, clock, self._starts))

    @cached_property
    def _starts(self) -> Speeds:
        return np.concatenate(([0.0], self.ends))

    def _clock(self, shape: GpusByMachine) -> Speeds:
        """When each phase begins, and when the last one ends, were it on these GPUs from its beginning."""
        if shape not in self._clocks:
            each = np.diff(self._starts) / self.split(shape)
            self._clocks[shape] = np.concatenate(([0.0], np.cumsum(each)))
        return self._clocks[shape]
