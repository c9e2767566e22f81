"""What a plan found: the goal, the choice and its reasons, the front, and why the others lost."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from gpuyard.specs import PlanRemedy, Way

Constraint = Literal["time", "budget", "rules"]


@dataclass(frozen=True)
class Choice:
    """One candidate in full. Low and high are the ends of the prediction's 90 % interval."""

    offer: str
    name: str
    way: Way
    gpu: str
    gpus_per_node: int
    nodes: int
    gpus: int
    network: str
    batch_per_gpu: int
    remedy: PlanRemedy
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
    compute_basis: str
    in_time: bool
    in_budget: bool
    broken_rules: tuple[str, ...]

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

    def as_json(self) -> dict[str, Any]:
        return asdict(self)
