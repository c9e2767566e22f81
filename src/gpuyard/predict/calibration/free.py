"""A constant that a fit may move: its default, how far it may be from it, and how the fit sees it."""

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Free:
    """The fit works with `u`, how many prior σ a constant is off its default: 0 where nothing is known."""

    name: str
    default: float
    unit: str
    sigma: float  # of the prior: of the logarithm, or of the share itself
    low: float
    high: float
    scale: Literal["logarithm", "share"] = "logarithm"

    def value(self, u: float) -> float:
        if self.scale == "share":
            found = self.default + self.sigma * u
        else:
            found = self.default * math.exp(self.sigma * u)
        return min(max(found, self.low), self.high)

    @property
    def bounds(self) -> tuple[float, float]:
        return self._u(self.low), self._u(self.high)

    def _u(self, value: float) -> float:
        if self.scale == "share":
            return (value - self.default) / self.sigma
        return math.log(value / self.default) / self.sigma


def share(name: str, default: float, unit: str, sigma: float, most: float = 1.0) -> Free:
    """Between none and `most`."""
    return Free(name, default, unit, sigma, 0.0, most, "share")


def positive(name: str, default: float, unit: str, sigma: float, reach: float = 100.0) -> Free:
    """Known by its order of magnitude, and at most `reach` times off."""
    return Free(name, default, unit, sigma, default / reach, default * reach)
