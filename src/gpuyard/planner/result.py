"""What a plan found: the goal, the choice and its reasons, the front, and why the others lost.

The fields are the keys of `gpuyard plan --json`. The properties say the same in words.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from gpuyard import units
from gpuyard.catalog.electricity import Tariff
from gpuyard.specs import Precision
from gpuyard.specs.plan import Acquisition, RemedyName

Constraint = Literal["time", "budget", "rules"]
ACQUIRED: dict[Acquisition, str] = {
    "on-demand": "rented on demand",
    "reserved-1-year": "reserved for one year at a time",
    "reserved-3-years": "reserved for three years at a time",
    "spot": "rented as spot instances",
    "buy": "bought",
    "colocate": "bought and colocated",
    "keep": "kept",
    "hybrid": "partly bought, partly rented",
}
_REMEDIES: dict[RemedyName, str] = {
    "none": "",
    "fp16-gradients": "gradients sent as 16-bit numbers",
    "accumulation": "gradients accumulated over 4 steps",
    "powersgd": "gradients compressed by PowerSGD",
}


def dollars(amount: float) -> str:
    """Runs may cost less than a cent."""
    return f"${amount:.2g}" if 0 < amount < 0.1 else units.format_usd(amount)


def share_of_runs(share: float) -> str:
    """Never nothing and never all, where it is neither."""
    if 0 < share < 0.01:
        return "under 1 %"
    return "over 99 %" if 0.99 < share < 1 else units.format_share(share)


def precisions_words(tried: Sequence[Precision]) -> str:
    """ "fp32, tf32 or bf16"."""
    *most, last = sorted(tried, key=get_args(Precision).index)
    return f"{', '.join(most)} or {last}" if most else last


def many(count: int) -> str:
    return f"{count} × " if count > 1 else ""


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
    precision: Precision
    run_seconds: float
    usd_per_run: float  # with its share of what data costs in the cloud, if all runs were there
    share_of_runs: float
    price_source: str
    price_date: str | None


@dataclass(frozen=True)
class KeptPart:
    """Machines that are there already and go on doing some of the runs, beside what the choice adds."""

    offer: str
    name: str
    gpu: str
    nodes: int
    clusters: int
    gpus: int  # of one run
    batch_per_gpu: int
    remedy: RemedyName
    precision: Precision
    run_seconds: float
    share_of_runs: float
    utilisation: float
    total_usd: float

    @property
    def machines(self) -> str:
        return f"{many(self.nodes * self.clusters)}{self.name}"


@dataclass(frozen=True)
class Choice:
    """One candidate in full, or a hybrid: then the machines are those that are owned, or added to those that
    are kept. Low and high are the ends of the prediction's 90 % interval."""

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
    precision: Precision
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
    network_usd: float = 0.0  # switches, cables and cards of all its bought clusters
    network_price_source: str = ""
    price_dates: tuple[str, ...] = ()  # of all that the price is made of
    network_is_assumed: bool = False  # the interval is wider then
    topology: str = "workstation"
    network_keys: Mapping[str, Any] | None = None  # as a cluster file has them; None: one machine
    kept: tuple[
        KeptPart, ...
    ] = ()  # what goes on beside it; cost and time are those of all together

    @property
    def allowed(self) -> bool:
        return not self.broken_rules

    @property
    def meets_goal(self) -> bool:
        return self.in_time and self.in_budget

    def same_machines(self, other: "Choice") -> bool:
        """Batch, remedy and precision are settings of them, and so is how many runs each does of a mix."""
        what = [
            (c.offer, c.way, c.nodes, c.clusters, c.network, [(k.offer, k.clusters) for k in c.kept],
             c.rest and (c.rest.offer, c.rest.way, c.rest.nodes))
            for c in (self, other)
        ]  # fmt: skip
        return what[0] == what[1]

    @property
    def what(self) -> str:
        """ "2 × AWS p4d.24xlarge, rented on demand"."""
        own = f"{many(self.nodes * self.clusters)}{self.name}, {self.how_acquired}"
        rest = self.rest
        if self.kept:
            kept = (
                f"{k.machines}, kept, with {share_of_runs(k.share_of_runs)} of the runs"
                for k in self.kept
            )
            own = f"{', '.join(kept)}, and {own}"
        if rest is None:
            return own
        rented = f"{many(rest.nodes)}{rest.name}, {ACQUIRED[rest.way]}"
        return f"{own}, with {share_of_runs(rest.share_of_runs)} of the runs on {rented}"

    @property
    def how_acquired(self) -> str:
        """And whether the price is a guess."""
        assumed = " (price assumed)" if self.price_is_assumed else ""
        return f"{ACQUIRED[self.owned_way or self.way]}{assumed}"

    @property
    def acquired_cell(self) -> str:
        """The same in a table."""
        return f"{self.way}, assumed" if self.price_is_assumed else self.way

    @property
    def machines(self) -> str:
        """In a table that has the acquisition in a column of its own."""
        own = [*(k.machines for k in self.kept), f"{many(self.nodes * self.clusters)}{self.name}"]
        if self.rest is not None:
            own.append(f"{many(self.rest.nodes)}{self.rest.name} ({self.rest.way})")
        return " and ".join(own)

    @property
    def setting(self) -> str:
        """How the run is set up: GPUs, network, batch, precision, remedy."""
        parts = [f"{self.gpus} GPUs per run" if self.gpus > 1 else "1 GPU per run"]
        if self.nodes > 1:
            parts.append(f"{self.nodes} machines over {self.network}")
        parts.append(f"batch {self.batch_per_gpu} per GPU in {self.precision}")
        if self.remedy != "none":
            parts.append(_REMEDIES[self.remedy])
        if self.clusters > 1:
            parts.append(f"{self.clusters} such clusters side by side")
        return ", ".join(parts)

    @property
    def price(self) -> str:
        low, high = dollars(self.usd_per_run_low), dollars(self.usd_per_run_high)
        between = f" ({low} – {high})" if low != high else ""
        return f"{dollars(self.usd_per_run)} per finished run{between}"

    @property
    def duration(self) -> str:
        typical, low, high = map(
            units.format_seconds, (self.run_seconds, self.run_seconds_low, self.run_seconds_high)
        )
        return f"{typical} per run ({low} – {high})"


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
class NoRate:
    """Offers that drop out, because nobody knows how fast their GPU computes in a precision."""

    gpu: str
    precision: Precision
    offers: tuple[str, ...]

    @property
    def words(self) -> str:
        return f"for {self.precision} on {self.gpu}"


@dataclass(frozen=True)
class SiteRefusal:
    """What would be among the best, if the site could house it."""

    offer: str
    what: str
    usd_per_run: float
    why: str
    would_win: bool

    @property
    def sentence(self) -> str:
        return f"{self.what}, at {dollars(self.usd_per_run)} per run: {self.why}."


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
    runners_up: tuple[Alternative, ...] = ()  # next to the choice, at most three
    would_change: tuple[str, ...] = ()  # the decision
    site: str | None = None  # of a file: what is recommended was designed as a room there
    refused: tuple[SiteRefusal, ...] = ()  # by that site; what would have won comes first
    electricity: Tariff | None = None  # of bought machines; None where none may be bought
    places: tuple[Siting, ...] = ()  # of the machines of the choice, or of the best that are bought
    precisions: tuple[Precision, ...] = ("fp32",)  # that were tried
    no_rate: tuple[NoRate, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def trained_in(self) -> str:
        """What a title says."""
        return precisions_words(self.precisions)

    @property
    def shown(self) -> list[Choice]:
        """All choices that the answer names: the winner, the front and the alternatives."""
        others = (other.choice for other in (*self.runners_up, *self.alternatives))
        return [choice for choice in (self.winner, *self.front, *others) if choice is not None]

    @property
    def price_dates(self) -> str:
        """When the prices of all that is shown were read."""
        days: list[str | None] = [day for choice in self.shown for day in choice.price_dates]
        days += [choice.rest.price_date for choice in self.shown if choice.rest]
        dates = sorted({day for day in days if day})
        if not dates:
            return "All prices come from the plan."
        parts = any(choice.price_is_estimate for choice in self.shown)
        estimated = " Servers from parts are estimates." if parts else ""
        return f"Prices date from {dates[0]} to {dates[-1]}.{estimated}"
