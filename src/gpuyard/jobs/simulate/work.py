"""The work of a job in a trace, and how long it takes on some GPUs."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from gpuyard.policies.curve import Curve, Speeds

GpusByMachine = tuple[int, ...]
"""GPUs by machine, largest first. The speed depends only on this and the number of racks."""


def pack_gpus(gpus: int, per_machine: int) -> GpusByMachine:
    """Distribute GPUs over as few machines as possible."""
    whole, rest = divmod(gpus, per_machine)
    return (per_machine,) * whole + ((rest,) if rest else ())


class Work(ABC):
    """An amount of work and its speed."""

    total: float

    @abstractmethod
    def curve(self, done: float) -> Curve:
        """Return the scaling curve as it is known after that much work."""

    @abstractmethod
    def seconds(self, done: float, shape: GpusByMachine, racks: int = 1) -> float:
        """Return the time from there to the end on these GPUs; infinity if they cannot do it."""

    @abstractmethod
    def after(self, done: float, shape: GpusByMachine, seconds: float, racks: int = 1) -> float:
        """Return the work that is done after that time."""


@dataclass(frozen=True, slots=True)
class SteadyWork(Work):
    """Work with the same speed from beginning to end."""

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
    """Work whose speed changes from phase to phase, such as training with a growing batch."""

    ends: Speeds  # work done at the end of each phase
    packed: Speeds  # [phase, GPUs]
    split: Callable[[GpusByMachine], Speeds]  # returns the speed in each phase
    _clocks: dict[GpusByMachine, Speeds] = field(default_factory=dict)
    _curves: dict[int, Curve] = field(default_factory=dict)

    @property
    def total(self) -> float:  # type: ignore[override]
        return float(self.ends[-1])

    def curve(self, done: float) -> Curve:
        """Return the curve of the current phase; those of later phases are not known yet."""
        phase = min(int(np.searchsorted(self.ends, done, side="right")), len(self.ends) - 1)
        if phase not in self._curves:
            self._curves[phase] = Curve(
                self.packed[phase], lambda shape: float(self.split(shape)[phase])
            )
        return self._curves[phase]

    def seconds(self, done: float, shape: GpusByMachine, racks: int = 1) -> float:
        del racks  # the measurements do not include them
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
        """Return when each phase begins and the last one ends, if all ran on these GPUs."""
        if shape not in self._clocks:
            durations = np.diff(self._starts) / self.split(shape)
            self._clocks[shape] = np.concatenate(([0.0], np.cumsum(durations)))
        return self._clocks[shape]
