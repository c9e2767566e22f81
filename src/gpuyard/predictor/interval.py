"""Prediction intervals: how far a prediction may be off on the slow and on the fast side.

Unknown factors slow a step down far more often than they speed it up: a software stack may hide less
communication, exchange more slowly, or lose time with every doubling of its GPUs. So the two sides have separate
formulas. `scripts/fit_intervals.py` sizes both on published results of *sources* (one publisher's machines and
software) that were not part of the fit.
"""

from dataclasses import dataclass, replace

import numpy as np

from gpuyard.predictor import constants as c
from gpuyard.predictor.constants import Spread, spread
from gpuyard.predictor.table import Booleans, Floats, StepParts, StepTable, compute_step_parts

# Published stacks that lose time per doubling go up to 32 GPUs; larger systems don't lose more.
MAX_DOUBLINGS = 5
# communication share of a step at which half of its maximum effect on the interval is reached
_HALF_SATURATION_SHARE = 0.1
_WIDTH_ITERATIONS = 8  # enough to reach the width limit to within a millionth
# number of σ around the mean that hold 90% of a normal distribution
NORMAL_90 = 1.645


@dataclass(frozen=True)
class Distance:
    """The distance of configurations from their measured basis; intervals grow with it."""

    doublings: Floats  # of the number of GPUs
    exchanged: Floats  # communication share of a step, hidden or not
    exposed: Floats  # share of a step spent on exposed communication or on stragglers
    batch: Floats | float = 0.0  # |log| of the ratio of the batch to the measured one

    @classmethod
    def from_parts(cls, parts: StepParts, gpus: Floats, passes: Floats) -> "Distance":
        """Return the distance from a single GPU."""
        step, exposed = parts.step_seconds, parts.exposed_communication_seconds
        return cls(
            doublings=np.log2(gpus),
            exchanged=parts.communication_seconds / passes / step,
            exposed=(exposed + parts.straggler_seconds) / step,
        )

    def select(self, rows: Booleans) -> "Distance":
        columns = {name: np.broadcast_to(x, rows.shape)[rows] for name, x in vars(self).items()}
        return Distance(**columns)


@dataclass(frozen=True)
class PredictionInterval:
    """The log distances from a predicted rate to the slow and to the fast end of its interval."""

    slow: Floats
    fast: Floats

    @classmethod
    def from_spread(cls, distance: Distance, spread: Spread) -> "PredictionInterval":
        """Return the interval for an unknown software stack."""
        slow = spread.tax * np.minimum(
            distance.doublings, MAX_DOUBLINGS
        ) + spread.exchange * saturate(distance.exchanged)
        fast = spread.exchange_fast * np.sqrt(distance.exposed)
        return cls(slow + spread.batch * distance.batch, fast + spread.batch_fast * distance.batch)

    def add_sigma(self, sigma: Floats | float) -> "PredictionInterval":
        """Widen both sides by an independent, symmetric σ."""
        other = NORMAL_90 * np.asarray(sigma)
        return PredictionInterval(np.hypot(self.slow, other), np.hypot(self.fast, other))

    def add_sides(self, slow: Floats, fast: Floats) -> "PredictionInterval":
        """Widen each side by its own independent log distance."""
        return PredictionInterval(np.hypot(self.slow, slow), np.hypot(self.fast, fast))

    def clip_to(self, other: "PredictionInterval", log_lead: Floats) -> "PredictionInterval":
        """Clip both ends to those of another interval whose middle is faster by `log_lead`.

        A side stays unchanged if the other interval does not reach this one's middle.
        """
        slow = np.where(
            log_lead < other.slow, np.minimum(self.slow, other.slow - log_lead), self.slow
        )
        fast = np.where(
            -log_lead < other.fast, np.minimum(self.fast, other.fast + log_lead), self.fast
        )
        return PredictionInterval(slow, fast)

    def limit_width(self, other: "PredictionInterval", log_lead: Floats) -> "PredictionInterval":
        """Limit the width to that of another interval whose middle is faster by `log_lead`.

        The slow end is first clipped to the other's slow end, but never closer than the fast end. It is not clipped
        if the other interval does not reach this one's middle.
        """
        shorter_side = np.minimum(self.slow, self.fast)
        clipped = np.clip(other.slow - log_lead, shorter_side, self.slow)
        slow = np.where(log_lead < other.slow, clipped, self.slow)
        factor = np.ones_like(slow)
        for _ in range(_WIDTH_ITERATIONS):
            factor = np.minimum(
                factor,
                factor * other.width / PredictionInterval(factor * slow, factor * self.fast).width,
            )
        return PredictionInterval(factor * slow, factor * self.fast)

    @property
    def width(self) -> Floats:
        """The width as a share of the predicted rate."""
        return np.asarray(np.exp(self.fast) - np.exp(-self.slow))

    def bounds(self, rate: Floats) -> tuple[Floats, Floats]:
        """Return the slow and the fast end of a predicted rate's interval."""
        return rate * np.exp(-self.slow), rate * np.exp(self.fast)


def saturate(share: Floats) -> Floats:
    """Map a communication share to a weight from 0 to 1 that levels off.

    A step that is mostly communication is hardly less certain than one that is half communication.
    """
    return share / (share + _HALF_SATURATION_SHARE)


def bound_staged_links(table: StepTable, parts: StepParts) -> tuple[Floats, Floats]:
    """Return how much slower and faster a step is at both ends of the interval of the rate inside a machine.

    Only rates through the memory of hosts that are newer than all published training have such an interval.
    """
    low, high = table.inside_low_share, table.inside_high_share
    if low is None or high is None or np.all(low == 1):
        zero = np.zeros_like(parts.step_seconds)
        return zero, zero
    rate = table.inside_bytes_per_second
    slow, fast = (
        compute_step_parts(replace(table, inside_bytes_per_second=rate * share)).step_seconds
        for share in (low, high)
    )
    return np.log(slow / parts.step_seconds), np.log(parts.step_seconds / fast)


def estimate_interval(
    table: StepTable,
    parts: StepParts,
    compute_sigma: float | Floats,
    link_basis: str = "assumed link",
) -> PredictionInterval:
    """Estimate the intervals of predictions that are based on the speed of one GPU."""
    step = parts.step_seconds
    variance = (parts.compute_seconds / step * compute_sigma) ** 2
    variance = variance + (parts.input_seconds / step * c.UNCERTAINTY["input"]) ** 2
    if link_basis == "assumed link":
        distance = Distance.from_parts(parts, table.gpus, table.accumulate * table.local_sgd)
        interval = PredictionInterval.from_spread(distance, spread()).add_sigma(np.sqrt(variance))
        return interval.add_sides(*bound_staged_links(table, parts))
    # The link was timed on this machine, with the software that the prediction is about.
    exposed = parts.exposed_communication_seconds / step * c.UNCERTAINTY[link_basis]
    waited = parts.straggler_seconds / step * c.UNCERTAINTY["waiting"]
    several = np.where(table.nodes > 1, c.UNCERTAINTY["more machines"], 0.0)
    zero = np.zeros_like(step)
    return PredictionInterval(zero, zero).add_sigma(
        np.sqrt(variance + exposed**2 + waited**2 + several**2)
    )
