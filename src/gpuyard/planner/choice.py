"""A candidate of a plan in full, with the parts of a hybrid, and its wording.

The fields are keys of `gpuyard plan --json`. The properties put them into words.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from gpuyard import units
from gpuyard.choices import LargePrecision
from gpuyard.predictor.large.layout import Layout
from gpuyard.specs.plan_candidates import Acquisition, RemedyName

ACQUISITION_LABELS: dict[Acquisition, str] = {
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


def format_dollars(amount: float) -> str:
    """Format dollars with two significant digits below 10 cents: a run may cost less than a cent."""
    return f"${amount:.2g}" if 0 < amount < 0.1 else units.format_usd(amount)


def format_share_of_runs(share: float) -> str:
    """Format a share so that only exactly 0 and 1 read as 0% and 100%."""
    if 0 < share < 0.01:
        return "under 1%"
    return "over 99%" if 0.99 < share < 1 else units.format_share(share)


def format_precisions(precisions: Sequence[LargePrecision]) -> str:
    """Join precisions as in "fp32, tf32, or bf16"."""
    return join_with_or(sorted(precisions, key=get_args(LargePrecision).index))


def join_with_or(items: Sequence[str]) -> str:
    """Join items as in "a", "a or b", and "a, b, or c"."""
    if len(items) < 3:
        return " or ".join(items)
    return f"{', '.join(items[:-1])}, or {items[-1]}"


def format_count(count: int) -> str:
    """Return "3 × ", or nothing for 1."""
    return f"{count} × " if count > 1 else ""


@dataclass(frozen=True)
class RentedRest:
    """The instance that a hybrid rents for the runs that its own machines cannot do."""

    offer: str
    name: str
    way: Acquisition
    gpu: str
    nodes: int
    gpus: int
    batch_per_gpu: int
    remedy: RemedyName
    precision: LargePrecision
    run_seconds: float
    usd_per_run: float  # if all runs were there, including storage and egress
    share_of_runs: float
    price_source: str
    price_date: str | None


@dataclass(frozen=True)
class KeptPart:
    """Owned machines that keep doing some of the runs next to the machines that the choice adds."""

    offer: str
    name: str
    gpu: str
    nodes: int
    clusters: int
    gpus: int  # of one run
    batch_per_gpu: int
    remedy: RemedyName
    precision: LargePrecision
    run_seconds: float
    share_of_runs: float
    utilization: float
    total_usd: float

    @property
    def machines(self) -> str:
        return f"{format_count(self.nodes * self.clusters)}{self.name}"


@dataclass(frozen=True)
class Choice:
    """One candidate in full. For a hybrid, the machines are the owned ones, or the ones added to the kept ones.

    Low and high are the ends of the prediction's 90% interval; those of costs also cover the range of estimated prices.
    """

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
    precision: LargePrecision
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
    clusters: int  # of `nodes` machines each, side by side
    utilization: float
    watts: float
    price_source: str
    price_date: str | None  # None: the plan gives the price
    price_is_estimate: bool
    price_is_assumed: bool  # reserved, at a discount that no price list contains
    compute_basis: str
    in_time: bool
    in_budget: bool
    broken_rules: tuple[str, ...]
    owned_way: Acquisition | None = None  # of a hybrid's own machines
    rest: RentedRest | None = None
    network_usd: float = 0.0  # switches, cables, and cards of all bought clusters
    network_price_source: str = ""
    price_dates: tuple[str, ...] = ()  # of all parts of the price
    network_is_assumed: bool = False  # widens the interval
    topology: str = "workstation"
    network_keys: Mapping[str, Any] | None = None  # as in a cluster file; None: one machine
    kept: tuple[KeptPart, ...] = ()  # cost and time include these
    machine_usd: float | None = None  # of one bought machine
    machine_usd_range: tuple[float, float] | None = None  # in which a quote for it is expected
    evidence_note: str = ""  # set if nothing is published for this GPU or its vendor
    goodput: float = (
        1.0  # left of a run's time by failures; the time includes only spot interruptions
    )
    energy_kwh: float = 0.0  # of the machines in one run, without cooling
    tokens_per_second: float | None = None  # of a transformer
    layout: Layout | None = None  # None: a whole copy of the model on every GPU

    @property
    def allowed(self) -> bool:
        return not self.broken_rules

    @property
    def meets_goal(self) -> bool:
        return self.in_time and self.in_budget

    def has_same_machines(self, other: "Choice") -> bool:
        """Return whether both use the same machines, whatever the batch, remedy, precision, and share of runs."""
        machines = [
            (c.offer, c.way, c.nodes, c.clusters, c.network, [(k.offer, k.clusters) for k in c.kept],
             c.rest and (c.rest.offer, c.rest.way, c.rest.nodes))
            for c in (self, other)
        ]  # fmt: skip
        return machines[0] == machines[1]

    @property
    def summary(self) -> str:
        """The machines and how they are acquired, as in "2 × AWS p4d.24xlarge, rented on demand"."""
        own = f"{format_count(self.nodes * self.clusters)}{self.name}, {self.how_acquired}"
        rest = self.rest
        if self.kept:
            kept = (
                f"{k.machines}, kept, with {format_share_of_runs(k.share_of_runs)} of the runs"
                for k in self.kept
            )
            own = f"{', '.join(kept)}, and {own}"
        if rest is None:
            return own
        rented = f"{format_count(rest.nodes)}{rest.name}, {ACQUISITION_LABELS[rest.way]}"
        return f"{own}, with {format_share_of_runs(rest.share_of_runs)} of the runs on {rented}"

    @property
    def how_acquired(self) -> str:
        """The acquisition in words, with a remark if the price is assumed."""
        assumed = " (price assumed)" if self.price_is_assumed else ""
        return f"{ACQUISITION_LABELS[self.owned_way or self.way]}{assumed}"

    @property
    def acquisition_cell(self) -> str:
        """The acquisition, short enough for a table cell."""
        return f"{self.way}, assumed" if self.price_is_assumed else self.way

    @property
    def machines(self) -> str:
        """The machines without how they are acquired."""
        own = [
            *(k.machines for k in self.kept),
            f"{format_count(self.nodes * self.clusters)}{self.name}",
        ]
        if self.rest is not None:
            own.append(f"{format_count(self.rest.nodes)}{self.rest.name} ({self.rest.way})")
        return " and ".join(own)

    @property
    def setting(self) -> str:
        """The setup of a run: GPUs, network, batch, precision, and remedy."""
        parts = [f"{self.gpus} GPUs per run" if self.gpus > 1 else "1 GPU per run"]
        if self.nodes > 1:
            parts.append(f"{self.nodes} machines over {self.network}")
        parts.append(self.run_setting)
        if remedy := self.remedy_words:
            parts.append(remedy)
        if self.clusters > 1:
            parts.append(f"{self.clusters} such clusters side by side")
        return ", ".join(parts)

    @property
    def remedy_words(self) -> str:
        """The remedy that relieves the exchange of gradients, or an empty string."""
        return _REMEDIES[self.remedy]

    @property
    def run_setting(self) -> str:
        """The batch or layout, and the precision."""
        if self.layout is None:
            return f"batch {self.batch_per_gpu} per GPU in {self.precision}"
        return (
            f"{self.layout.method} ({self.layout.description}), micro-batch {self.layout.micro_batch} and "
            f"global batch {self.layout.global_batch} in {self.precision}, recomputation {self.layout.recompute}"
        )

    @property
    def how_trained(self) -> str:
        """The precision, and for a divided model the layout and its speed."""
        if self.layout is None or self.tokens_per_second is None:
            return f"trained in {self.precision}"
        return (
            f"trained in {self.precision} with {self.layout.method} ({self.layout.description}), "
            f"{self.tokens_per_second / self.gpus:,.0f} tokens/s per GPU"
        )

    @property
    def price(self) -> str:
        low, high = format_dollars(self.usd_per_run_low), format_dollars(self.usd_per_run_high)
        between = f" ({low} – {high})" if low != high else ""
        return f"{format_dollars(self.usd_per_run)} per finished run{between}"

    @property
    def duration(self) -> str:
        typical, low, high = map(
            units.format_seconds, (self.run_seconds, self.run_seconds_low, self.run_seconds_high)
        )
        return f"{typical} per run ({low} – {high})"
