"""Possible changes to the exchange of gradients, except those that are already in use.

Each strategy lists the proposals that apply to it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from gpuyard.catalog import ModelProfile
from gpuyard.predictor.placement import Placement
from gpuyard.predictor.table import Buckets, Floats
from gpuyard.specs import ExchangeOptions

ACCUMULATED_STEPS = 4
POWERSGD_RANK = 2
BUCKET_MEGABYTES = (5, 10, 25, 50, 100)


class NamedStrategy(Protocol):
    """The parts of a strategy that proposals mention."""

    @property
    def name(self) -> str: ...
    @property
    def bucket_option(self) -> str: ...
    @property
    def hierarchical_caveat(self) -> str: ...


class ChangeableScenario(Protocol):
    """The parts of a scenario that proposals read and change."""

    @property
    def strategy(self) -> NamedStrategy: ...
    @property
    def exchange(self) -> ExchangeOptions: ...
    @property
    def profile(self) -> ModelProfile: ...
    @property
    def buckets(self) -> Buckets: ...
    def change_strategy(self, name: str) -> Self: ...
    def change_exchange(self, **changes: object) -> Self: ...
    def samples_per_second(self, placements: Sequence[Placement]) -> Floats: ...
    def memory_bytes(self, gpus: int) -> float: ...
    def fits(self, gpus: int) -> bool: ...


@dataclass(frozen=True)
class Remedy:
    """A change that would help one configuration, and by how much."""

    change: str
    samples_per_second: float
    gain: float  # factor on the current throughput: 1.5 is 50% faster
    caveat: str = ""  # non-monetary cost
    memory_bytes: float | None = None  # per GPU, if the change needs more of it
    adds_gpus: bool = False
    makes_fit: bool = (
        False  # the current configuration does not fit; the gain assumes enough memory
    )

    @property
    def brings(self) -> str:
        """The gain, or that the change makes the configuration fit."""
        return "it fits" if self.makes_fit else f"× {self.gain:.2f}"


@dataclass(frozen=True)
class Proposal:
    """A changed scenario for any number of GPUs, whether it helps or not."""

    change: str
    scenario: ChangeableScenario
    caveat: str = ""
    memory_bytes: float | None = None

    def rate(self, here: Placement) -> float:
        return float(self.scenario.samples_per_second([here])[0])

    def evaluate(self, here: Placement, current_rate: float) -> Remedy:
        """Return the remedy for one configuration."""
        rate = self.rate(here)
        return Remedy(self.change, rate, rate / current_rate, self.caveat, self.memory_bytes)

    def fits(self, here: Placement) -> bool:
        return self.scenario.fits(here.gpus)


Proposer = Callable[[ChangeableScenario, Placement], Iterator[Proposal]]


def propose_ddp(scenario: ChangeableScenario, here: Placement) -> Iterator[Proposal]:
    yield Proposal(
        f"DistributedDataParallel instead of {scenario.strategy.name}",
        scenario.change_strategy("ddp"),
        "one process per GPU",
    )


def propose_half_precision(scenario: ChangeableScenario, here: Placement) -> Iterator[Proposal]:
    if scenario.exchange.compress is None:
        sent = "gradients" if scenario.exchange.local_sgd == 1 else "parameters"
        yield Proposal(
            f"{sent} sent as 16-bit numbers",
            scenario.change_exchange(compress="fp16"),
            f"{sent} are rounded; rarely harmful",
        )


def propose_accumulation(scenario: ChangeableScenario, here: Placement) -> Iterator[Proposal]:
    times = scenario.exchange.accumulate * ACCUMULATED_STEPS
    yield Proposal(
        f"gradients exchanged every {times} steps (accumulation)",
        scenario.change_exchange(accumulate=times),
        f"each update uses {ACCUMULATED_STEPS} × the samples: check learning rate and accuracy",
    )


def propose_local_sgd(scenario: ChangeableScenario, here: Placement) -> Iterator[Proposal]:
    exchange = scenario.exchange
    if exchange == ExchangeOptions(
        bucket_mb=exchange.bucket_mb, hierarchical=exchange.hierarchical
    ):
        yield Proposal(
            f"parameters averaged every {ACCUMULATED_STEPS} steps (local SGD)",
            scenario.change_exchange(local_sgd=ACCUMULATED_STEPS, bucket_mb=None),
            "workers drift apart in between: accuracy may drop, compare it first",
        )


def propose_power_sgd(scenario: ChangeableScenario, here: Placement) -> Iterator[Proposal]:
    if scenario.exchange.compress is None and scenario.exchange.local_sgd == 1:
        other = scenario.change_exchange(compress=f"powersgd:{POWERSGD_RANK}")
        ratio = scenario.profile.gradient_bytes / other.buckets.total_bytes
        yield Proposal(
            f"PowerSGD of rank {POWERSGD_RANK} (lossy, about {ratio:.0f} × fewer bytes)",
            other,
            "lossy: accuracy may drop, compare it first; shapes of layers are assumed",
            other.memory_bytes(here.gpus),
        )


def propose_hierarchical(scenario: ChangeableScenario, here: Placement) -> Iterator[Proposal]:
    if not scenario.exchange.hierarchical and here.nodes > 1 and here.gpus_per_node > 1:
        yield Proposal(
            "hierarchical all-reduce (inside each machine first)",
            scenario.change_exchange(hierarchical=True),
            scenario.strategy.hierarchical_caveat,
        )


def propose_bucket_size(scenario: ChangeableScenario, here: Placement) -> Iterator[Proposal]:
    """Propose the best of several bucket sizes."""
    if scenario.exchange.local_sgd == 1:
        candidates = [_change_bucket_size(scenario, megabytes) for megabytes in BUCKET_MEGABYTES]
        yield max(candidates, key=lambda proposal: proposal.rate(here))


def _change_bucket_size(scenario: ChangeableScenario, megabytes: int) -> Proposal:
    other = scenario.change_exchange(bucket_mb=float(megabytes))
    count = len(other.buckets.size_bytes)
    buckets = "1 bucket" if count == 1 else f"{count} buckets"
    return Proposal(f"{megabytes} MiB in {scenario.strategy.bucket_option} ({buckets})", other)
