"""The result of a plan: the goal, the choice and its reasons, the Pareto front, and why the alternatives lost.

The fields are the keys of `gpuyard plan --json`. The properties put them into words.
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from gpuyard.catalog.electricity import Tariff
from gpuyard.choices import LargePrecision
from gpuyard.planner.choice import Choice, format_dollars, format_precisions
from gpuyard.specs.plan_candidates import Acquisition

Constraint = Literal["time", "budget", "rules"]


@dataclass(frozen=True)
class Goal:
    """The goal of the plan, in base units."""

    workload: str
    samples_per_run: float
    tokens_per_run: float | None
    runs_per_month: float
    runs_per_month_at_end: float
    runs: float
    months: float
    time_per_run_seconds: float | None
    budget_usd: float | None


@dataclass(frozen=True)
class Exclusion:
    """The number of candidates that one reason excludes; a candidate may be excluded for several."""

    reason: str
    candidates: int


@dataclass(frozen=True)
class BindingConstraint:
    """A constraint that no candidate meets, and by how much the nearest one misses it."""

    constraint: Constraint
    missed_by: float  # seconds or format_dollars
    sentence: str
    nearest: Choice | None


@dataclass(frozen=True)
class Alternative:
    """A common alternative, its best variant here, and why the plan does not choose it."""

    name: str
    choice: Choice | None
    sentence: str


@dataclass(frozen=True)
class LocationCost:
    """The cost of the bought machines at one location: on premises or in a colocation."""

    way: Acquisition
    where: str
    pue: float
    usd_per_kwh: float
    energy_usd_per_month: float
    rent_usd_per_month: float
    build_usd_per_month: float | None  # None: the cost of the room is unknown
    total_usd: float  # over the horizon, with the machines
    usd_per_run: float
    broken_rules: tuple[str, ...]


@dataclass(frozen=True)
class MissingRate:
    """Offers that are excluded because the speed of their GPU in a precision is unknown."""

    gpu: str
    precision: LargePrecision
    offers: tuple[str, ...]

    @property
    def description(self) -> str:
        return f"for {self.precision} on {self.gpu}"


@dataclass(frozen=True)
class SiteRefusal:
    """A choice that would be among the best if the site could house it."""

    offer: str
    choice: str
    usd_per_run: float
    why: str
    would_win: bool

    @property
    def sentence(self) -> str:
        return f"{self.choice}, at {format_dollars(self.usd_per_run)} per run: {self.why}."


@dataclass(frozen=True)
class PlanResult:
    """The complete result of a plan."""

    name: str
    goal: Goal
    candidates: int
    offers: int
    predictions: int
    allowed: int
    feasible: int
    left_out: tuple[Exclusion, ...]
    winner: Choice | None
    verdict: str
    reasons: tuple[str, ...]
    binding: tuple[BindingConstraint, ...]
    front: tuple[Choice, ...]  # the fastest first
    alternatives: tuple[Alternative, ...]
    assumptions: tuple[str, ...]
    runners_up: tuple[Alternative, ...] = ()  # at most three
    would_change: tuple[str, ...] = ()  # conditions under which the decision would change
    site: str | None = None  # name of the site file whose room the recommended machines fit
    refused: tuple[SiteRefusal, ...] = ()  # by that site; a refused winner comes first
    electricity: Tariff | None = None  # None if no machines may be bought
    places: tuple[
        LocationCost, ...
    ] = ()  # for the bought machines of the choice, or the best bought ones
    precisions: tuple[LargePrecision, ...] = ("fp32",)  # tried in the search
    no_rate: tuple[MissingRate, ...] = ()
    price_basis: str = ""  # the old or estimated price that the decision rests on

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def precision_label(self) -> str:
        """All tried precisions, for titles."""
        return format_precisions(self.precisions)

    @property
    def all_choices(self) -> list[Choice]:
        """All choices in the result: the winner, the front, the runners-up, and the alternatives."""
        others = (other.choice for other in (*self.runners_up, *self.alternatives))
        return [choice for choice in (self.winner, *self.front, *others) if choice is not None]

    @property
    def price_dates(self) -> str:
        """The range of dates of all prices in the result."""
        days: list[str | None] = [day for choice in self.all_choices for day in choice.price_dates]
        days += [choice.rest.price_date for choice in self.all_choices if choice.rest]
        dates = sorted({day for day in days if day})
        if not dates:
            return "All prices come from the plan."
        parts = any(choice.price_is_estimate for choice in self.all_choices)
        estimated = " Servers from parts are estimates." if parts else ""
        return f"Prices date from {dates[0]} to {dates[-1]}.{estimated}"
