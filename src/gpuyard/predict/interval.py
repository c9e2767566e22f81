"""How far a prediction may be off, to the slow and to the fast side.

What nobody describes makes a step slower far more often than faster: a software stack that hides less of its
exchange, exchanges slower or loses something with every doubling of its GPUs. So the two sides have formulas of
their own. Both are sized on published results of *sources* (one publisher's machines and software) that had
no part in the fit, by `scripts/fit_intervals.py`.
"""

from dataclasses import dataclass

import numpy as np

from gpuyard.predict import constants as c
from gpuyard.predict.constants import Spread, spread
from gpuyard.predict.table import Floats, StepParts, StepTable, Truths

# stacks that lose with every doubling were published up to 32 GPUs; larger systems don't lose more
MOST_DOUBLINGS = 5
# where an exchange takes so much of a step, half of what it may do to the interval is reached
_HALF_WAY = 0.1
_ROUNDS = 8  # until an interval is as wide as it may be, to a millionth
# of a normal distribution, 90 % lie within so many σ
NORMAL_90 = 1.645


@dataclass(frozen=True)
class Distance:
    """How far configurations are from the figure that they stand on: what an interval grows with."""

    doublings: Floats  # of the number of GPUs
    exchanged: Floats  # what of a step its exchange takes, hidden or not
    exposed: Floats  # what of it is exchange that does not hide, or waiting for other workers
    batch: Floats | float = 0.0  # |log| of a batch over the one that was measured

    @classmethod
    def of(cls, parts: StepParts, gpus: Floats, passes: Floats) -> "Distance":
        """From one GPU."""
        step, exposed = parts.step_seconds, parts.exposed_communication_seconds
        return cls(
            doublings=np.log2(gpus),
            exchanged=parts.communication_seconds / passes / step,
            exposed=(exposed + parts.straggler_seconds) / step,
        )

    def take(self, rows: Truths) -> "Distance":
        columns = {name: np.broadcast_to(x, rows.shape)[rows] for name, x in vars(self).items()}
        return Distance(**columns)


@dataclass(frozen=True)
class Reach:
    """From a predicted rate to both ends of its interval, as logarithms."""

    slow: Floats
    fast: Floats

    @classmethod
    def of(cls, far: Distance, off: Spread) -> "Reach":
        """By what a software stack that nobody described may do."""
        slow = off.tax * np.minimum(far.doublings, MOST_DOUBLINGS) + off.exchange * saturating(
            far.exchanged
        )
        fast = off.exchange_fast * np.sqrt(far.exposed)
        return cls(slow + off.batch * far.batch, fast + off.batch_fast * far.batch)

    def and_sigma(self, sigma: Floats | float) -> "Reach":
        """With an independent σ besides, of which both sides are alike."""
        other = NORMAL_90 * np.asarray(sigma)
        return Reach(np.hypot(self.slow, other), np.hypot(self.fast, other))

    def within(self, other: "Reach", ahead: Floats) -> "Reach":
        """No further than another one reaches whose middle is so much faster, as a logarithm; where that does not
        even reach this one's middle, as it is."""
        slow = np.where(ahead < other.slow, np.minimum(self.slow, other.slow - ahead), self.slow)
        fast = np.where(-ahead < other.fast, np.minimum(self.fast, other.fast + ahead), self.fast)
        return Reach(slow, fast)

    def no_wider(self, other: "Reach", ahead: Floats) -> "Reach":
        """No wider than another one, whose middle is so much faster, as a logarithm. First the slow end is cut to the
        other's, but no nearer than the fast end is, and not where the other does not even reach this one's middle."""
        least = np.minimum(self.slow, self.fast)
        cut = np.clip(other.slow - ahead, least, self.slow)
        slow = np.where(ahead < other.slow, cut, self.slow)
        part = np.ones_like(slow)
        for _ in range(_ROUNDS):
            part = np.minimum(part, part * other.width / Reach(part * slow, part * self.fast).width)
        return Reach(part * slow, part * self.fast)

    @property
    def width(self) -> Floats:
        """From end to end, as a share of what is predicted."""
        return np.asarray(np.exp(self.fast) - np.exp(-self.slow))

    def ends(self, rate: Floats) -> tuple[Floats, Floats]:
        """The slow and the fast end of a predicted rate's interval."""
        return rate * np.exp(-self.slow), rate * np.exp(self.fast)


def saturating(share: Floats) -> Floats:
    """From nothing for no exchange towards one: a step that is mostly exchange is hardly less sure than one
    that is half of it."""
    return share / (share + _HALF_WAY)


def reach_of(
    table: StepTable, parts: StepParts, compute: float | Floats, link_basis: str = "assumed link"
) -> Reach:
    """Of predictions that stand on one GPU's speed, whose σ is `compute`."""
    step = parts.step_seconds
    others = (parts.compute_seconds / step * compute) ** 2
    others = others + (parts.input_seconds / step * c.UNCERTAINTY["input"]) ** 2
    if link_basis == "assumed link":
        far = Distance.of(parts, table.gpus, table.accumulate * table.local_sgd)
        return Reach.of(far, spread()).and_sigma(np.sqrt(others))
    # timed on this very machine, with the software that a prediction is about
    exposed = parts.exposed_communication_seconds / step * c.UNCERTAINTY[link_basis]
    waited = parts.straggler_seconds / step * c.UNCERTAINTY["waiting"]
    several = np.where(table.nodes > 1, c.UNCERTAINTY["more machines"], 0.0)
    nothing = np.zeros_like(step)
    return Reach(nothing, nothing).and_sigma(np.sqrt(others + exposed**2 + waited**2 + several**2))
