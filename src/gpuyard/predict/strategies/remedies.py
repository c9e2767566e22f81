"""What could be changed about an exchange of gradients; what has been chosen already is left out.

A strategy lists those that it offers.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuyard.predict.table import Placement
from gpuyard.specs import ExchangeOptions

if TYPE_CHECKING:
    from gpuyard.predict.scenario import PlatformScenario

ACCUMULATED_STEPS = 4
POWERSGD_RANK = 2
BUCKET_MEGABYTES = (5, 10, 25, 50, 100)


@dataclass(frozen=True)
class Remedy:
    """Something that would help one configuration, and by how much."""

    what: str
    samples_per_second: float
    gain: float  # times the throughput as it is: 1.5 is half as fast again
    caveat: str = ""  # what it costs besides money
    memory_bytes: float | None = None  # of a GPU, where the change needs more of it
    adds_gpus: bool = False
    makes_fit: bool = False  # as it is, it does not fit: the gain is over GPUs with the memory

    @property
    def brings(self) -> str:
        """Its gain, where there is something to gain on."""
        return "it fits" if self.makes_fit else f"× {self.gain:.2f}"


@dataclass(frozen=True)
class Proposal:
    """A changed scenario, whether it helps or not: for any number of GPUs."""

    what: str
    scenario: "PlatformScenario"
    caveat: str = ""
    memory_bytes: float | None = None

    def rate(self, here: Placement) -> float:
        return float(self.scenario.samples_per_second([here])[0])

    def weighed(self, here: Placement, today: float) -> Remedy:
        """What it brings one configuration."""
        rate = self.rate(here)
        return Remedy(self.what, rate, rate / today, self.caveat, self.memory_bytes)

    def fits(self, here: Placement) -> bool:
        return self.scenario.fits(here.gpus)


Proposals = Callable[["PlatformScenario", Placement], Iterator[Proposal]]


def instead_ddp(scenario: "PlatformScenario", here: Placement) -> Iterator[Proposal]:
    yield Proposal(
        f"DistributedDataParallel instead of {scenario.strategy.name}",
        scenario.with_strategy("ddp"),
        "one process a GPU",
    )


def half_precision(scenario: "PlatformScenario", here: Placement) -> Iterator[Proposal]:
    if scenario.exchange.compress is None:
        sent = "gradients" if scenario.exchange.local_sgd == 1 else "parameters"
        yield Proposal(
            f"{sent} sent as 16-bit numbers",
            scenario.exchanging(compress="fp16"),
            f"{sent} are rounded; seldom harmful",
        )


def accumulation(scenario: "PlatformScenario", here: Placement) -> Iterator[Proposal]:
    times = scenario.exchange.accumulate * ACCUMULATED_STEPS
    yield Proposal(
        f"gradients exchanged every {times} steps (accumulation)",
        scenario.exchanging(accumulate=times),
        f"an update sees {ACCUMULATED_STEPS} × the samples: learning rate and accuracy may need care",
    )


def local_sgd(scenario: "PlatformScenario", here: Placement) -> Iterator[Proposal]:
    chosen = scenario.exchange
    if chosen == ExchangeOptions(bucket_mb=chosen.bucket_mb, hierarchical=chosen.hierarchical):
        yield Proposal(
            f"parameters averaged every {ACCUMULATED_STEPS} steps (local SGD)",
            scenario.exchanging(local_sgd=ACCUMULATED_STEPS, bucket_mb=None),
            "workers drift apart in between: accuracy may fall, compare it first",
        )


def power_sgd(scenario: "PlatformScenario", here: Placement) -> Iterator[Proposal]:
    if scenario.exchange.compress is None and scenario.exchange.local_sgd == 1:
        other = scenario.exchanging(compress=f"powersgd:{POWERSGD_RANK}")
        ratio = scenario.profile.gradient_bytes / other.buckets.total_bytes
        yield Proposal(
            f"PowerSGD of rank {POWERSGD_RANK} (lossy, about {ratio:.0f} × fewer bytes)",
            other,
            "lossy: accuracy may fall, compare it first; shapes of layers are assumed",
            other.memory_bytes(here.gpus),
        )


def hierarchical(scenario: "PlatformScenario", here: Placement) -> Iterator[Proposal]:
    if not scenario.exchange.hierarchical and here.nodes > 1 and here.gpus_per_node > 1:
        yield Proposal(
            "hierarchical all-reduce (inside each machine first)",
            scenario.exchanging(hierarchical=True),
            scenario.strategy.hierarchical_caveat,
        )


def bucket_size(scenario: "PlatformScenario", here: Placement) -> Iterator[Proposal]:
    """The best of some."""
    if scenario.exchange.local_sgd == 1:
        tried = [_bucket_size(scenario, megabytes) for megabytes in BUCKET_MEGABYTES]
        yield max(tried, key=lambda proposal: proposal.rate(here))


def _bucket_size(scenario: "PlatformScenario", megabytes: int) -> Proposal:
    other = scenario.exchanging(bucket_mb=float(megabytes))
    count = len(other.buckets.size_bytes)
    many = "1 bucket" if count == 1 else f"{count} buckets"
    return Proposal(f"{megabytes} MiB in {scenario.strategy.bucket_option} ({many})", other)
