"""How many runs there will be: today's a month, growing with the people who start them."""

from dataclasses import dataclass

import numpy as np

from gpuyard.economics.amounts import HOURS_PER_MONTH
from gpuyard.predict.step import Floats
from gpuyard.specs.plan import Plan

_SECONDS_PER_MONTH = HOURS_PER_MONTH * 3600


@dataclass(frozen=True)
class PlannedRuns:
    """Runs over the horizon. Everyone is taken to start as many as those who are here today."""

    months: float
    per_month_now: float
    per_month_at_end: float

    @property
    def years(self) -> float:
        return self.months / 12

    @property
    def total(self) -> float:
        """In all: people come evenly over the year, so the mean of start and end counts."""
        return self.months * (self.per_month_now + self.per_month_at_end) / 2

    @property
    def per_month(self) -> Floats:
        """Through the horizon, in steps of about a month, from the first to the last."""
        steps = max(2, round(self.months) + 1)
        return np.linspace(self.per_month_now, self.per_month_at_end, steps)


def runs_of(plan: Plan) -> PlannedRuns:
    months = plan.horizon / _SECONDS_PER_MONTH
    people = plan.people.researchers
    at_end = people + plan.people.hires_per_year * months / 12
    return PlannedRuns(
        months=months,
        per_month_now=plan.runs_per_month,
        per_month_at_end=plan.runs_per_month * at_end / people,
    )
