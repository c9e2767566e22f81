"""What a plan found: the goal, the choice and its reasons, the front, and why the others lost."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from gpuyard.specs.plan import Acquisition, RemedyName

Constraint = Literal["time", "budget", "rules"]


@dataclass(frozen=True)
class RentedRest:
    """What a hybrid rents beside its own machines: the runs that those can't do."""

    offer: str
    name: str
    way: Acquisition
    gpu: str
    nodes: int
    gpus: int
    batch_per_gpu: int
    remedy: RemedyName
    run_seconds: float
    usd_per_run: float  # with its share of what data costs in the cloud, if all runs were there
    share_of_runs: float
    price_source: str
    price_date: str | None


@dataclass(frozen=True)
class Choice:
    """One candidate in full, or a hybrid: then the machines are those that are owned. Low and high are
    the ends of the prediction's 90 % interval."""

    offer: str
    name: str
    way: Acquisition
    gpu: str
    gpus_per_node: int
    nodes: int
    gpus: int
    network: str
    batch_per_gpu: int
    remedy: RemedyName
    update_samples: int
    samples_per_second: float
    scaling_efficiency: float
    effective_gpus: float
    run_seconds: float
    run_seconds_low: float
    run_seconds_high: float
    usd_per_run: float
    usd_per_run_low: float
    usd_per_run_high: float
    total_usd: float
    clusters: int  # of so many nodes each, side by side
    utilisation: float
    watts: float
    price_source: str
    price_date: str | None  # None: the plan gives the price
    price_is_estimate: bool
    price_is_assumed: bool  # reserved, at a discount that no list has
    compute_basis: str
    in_time: bool
    in_budget: bool
    broken_rules: tuple[str, ...]
    owned_way: Acquisition | None = None  # of a hybrid's own machines
    rest: RentedRest | None = None

    @property
    def allowed(self) -> bool:
        return not self.broken_rules


@dataclass(frozen=True)
class Goal:
    """What was asked for, in base units."""

    workload: str
    samples_per_run: float
    runs_per_month: float
    runs_per_month_at_end: float
    runs: float
    months: float
    time_per_run_seconds: float | None
    budget_usd: float | None


@dataclass(frozen=True)
class LeftOut:
    """How many candidates one reason keeps out; one candidate may have several."""

    reason: str
    candidates: int


@dataclass(frozen=True)
class Binding:
    """The constraint that nothing meets, and by how much the nearest misses it."""

    constraint: Constraint
    missed_by: float  # seconds or dollars
    sentence: str
    nearest: Choice | None


@dataclass(frozen=True)
class Alternative:
    """A well-known answer, its best variant here, and why it is not the plan's."""

    name: str
    choice: Choice | None
    sentence: str


@dataclass(frozen=True)
class Siting:
    """Where the bought machines could stand, and what the same machines then come to."""

    way: Acquisition
    where: str
    pue: float
    usd_per_kwh: float
    energy_usd_per_month: float
    rent_usd_per_month: float
    build_usd_per_month: float | None  # None: nobody said what the room costs
    total_usd: float  # over the horizon, with the machines
    usd_per_run: float
    broken_rules: tuple[str, ...]


@dataclass(frozen=True)
class PlanResult:
    """The whole answer."""

    name: str
    goal: Goal
    candidates: int
    offers: int
    predictions: int
    allowed: int
    feasible: int
    left_out: tuple[LeftOut, ...]
    winner: Choice | None
    verdict: str
    reasons: tuple[str, ...]
    binding: tuple[Binding, ...]
    front: tuple[Choice, ...]  # the fastest first
    alternatives: tuple[Alternative, ...]
    assumptions: tuple[str, ...]
    places: tuple[Siting, ...] = ()  # of the machines of the choice, or of the best that are bought

    def as_json(self) -> dict[str, Any]:
        return asdict(self)
