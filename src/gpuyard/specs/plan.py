"""A plan: what is to be trained how often, by when and for how much, and what must not happen."""

import datetime
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, ValidationInfo, model_validator

from gpuyard import units
from gpuyard.errors import describe_unknown
from gpuyard.specs.base import (
    MOST_LISTED,
    Bytes,
    CloudName,
    Count,
    Country,
    Counts,
    GpuName,
    LinkName,
    MachineName,
    Name,
    Region,
    Seconds,
    Share,
    SiteReference,
    Spec,
    Usd,
    UsdPerHour,
    UsdPerKwh,
    UsdPerKwMonth,
    Watts,
    WorkloadReference,
    Years,
)
from gpuyard.specs.cluster import Network, Topology, named_or_described
from gpuyard.specs.offers import Load
from gpuyard.specs.workload import Precision, Workload

Acquisition = Literal[
    "on-demand", "reserved-1-year", "reserved-3-years", "spot", "buy", "colocate", "keep", "hybrid"
]
RemedyName = Literal["none", "fp16-gradients", "accumulation", "powersgd"]
_ACQUISITIONS: tuple[Acquisition, ...] = (
    "on-demand", "reserved-1-year", "reserved-3-years", "spot", "buy", "colocate", "keep", "hybrid",
)  # fmt: skip
RESERVED_YEARS: dict[Acquisition, int] = {"reserved-1-year": 1, "reserved-3-years": 3}
_REMEDIES: tuple[RemedyName, ...] = ("none", "fp16-gradients", "accumulation", "powersgd")


class PlanPolicy(Spec):
    """What is not a matter of price."""

    data_stays: Annotated[
        bool, Field(description="data may not leave the building: nothing is rented or colocated")
    ] = False
    clouds: Annotated[
        tuple[CloudName, ...] | None,
        Field(min_length=1, max_length=MOST_LISTED, description="rent only from these, as `gpuyard catalog prices` names them"),
    ] = None  # fmt: skip


class People(Spec):
    """Who trains; runs grow with them."""

    researchers: Annotated[int, Field(gt=0, le=1_000_000)] = 1
    hires_per_year: Annotated[float, Field(ge=0, le=1_000_000)] = 0.0


class PlanSite(Spec):
    """Where bought machines would stand, and what that costs."""

    power: Annotated[
        Watts | None, Field(gt=0, description="what the room has, cooling included")
    ] = None
    country: Annotated[Country | None, Field(description="two letters, like DE")] = None
    region: Region | None = None
    electricity: Annotated[
        UsdPerKwh | None, Field(description="what you pay; default: the price of the country")
    ] = None
    pue: Annotated[float, Field(ge=1, le=3, description="power of the room divided by that of its machines")] = 1.58  # fmt: skip
    colocation: Annotated[
        UsdPerKwMonth, Field(description="per kW under load, without electricity")
    ] = 184.06
    colocation_pue: Annotated[
        float,
        Field(ge=1, le=3, description="the same for a colocation; typical of new, large sites"),
    ] = 1.3


class Owning(Spec):
    """What bought machines need besides power and space; what you leave out costs nothing."""

    busy_at_most: Annotated[
        Share,
        Field(gt=0, description="share of all hours; the rest is queueing, maintenance and repair"),
    ] = 0.8
    spares: Annotated[Share, Field(description="share of the hardware's price, bought with it")] = (
        0.0
    )
    support_per_year: Annotated[Share, Field(description="share of the hardware's price")] = 0.0
    value_kept_per_year: Annotated[
        Share, Field(description="share of the hardware's resale value that is left after a year")
    ] = 0.0
    staff_hours_per_month: Annotated[float, Field(ge=0, le=1e6, description="per machine")] = 2.0
    staff: UsdPerHour = 75.0
    idle_power: Annotated[
        Share, Field(description="what an idle machine draws, as a share of its power under load")
    ] = 0.0
    failure: Annotated[
        Usd,
        Field(ge=0, description="cost per failure; one in about 50,700 GPU-hours (Llama 3)"),
    ] = 0.0


class Renting(Spec):
    """What rented runs need besides their steps: time to start, and their data in the cloud."""

    start: Annotated[
        Seconds, Field(description="from requesting machines to the first step; billed")
    ] = 300.0
    data: Annotated[
        Bytes | None,
        Field(description="stored in the cloud over the horizon; default: the workload's dataset"),
    ] = None
    results: Annotated[
        Bytes | None,
        Field(description="downloaded after each run; default: one checkpoint of the model"),
    ] = None
    storage: Annotated[
        Usd | None,
        Field(ge=0, description="per GB and month; default: from `gpuyard catalog cloud-data`"),
    ] = None
    egress: Annotated[
        Usd | None, Field(ge=0, description="per GB; default: from `gpuyard catalog cloud-data`")
    ] = None


class SpotInterruptions(Spec):
    """How often spot instances are interrupted, and what that costs a run."""

    interruptions_per_hour: Annotated[float, Field(ge=0, le=60, description="per instance")] = 0.05
    checkpoint: Annotated[Seconds, Field(description="time to write one")] = 60.0
    restart: Annotated[Seconds, Field(description="until the run continues")] = 600.0


class GpuPrice(Spec):
    """What one GPU costs you."""

    gpu: GpuName
    price: Usd


class ServerPrice(Spec):
    """A quote for a whole server."""

    machine: MachineName
    price: Usd


class OwnPrices(Spec):
    """What you know better than the catalog: quotes, and discounts for a term."""

    gpus: Annotated[tuple[GpuPrice, ...], Field(max_length=MOST_LISTED)] = ()
    servers: Annotated[tuple[ServerPrice, ...], Field(max_length=MOST_LISTED)] = ()
    reserved_1_year: Annotated[
        Share | None,
        Field(description="discount on the on-demand price, paid for every hour of a year"),
    ] = None
    reserved_3_years: Share | None = None


class OwnOffer(Spec):
    """An offer that is not in the catalog: an instance by the hour, a server by its price, or both."""

    name: Name
    gpu: GpuName
    gpus: Annotated[int, Field(gt=0, le=72, description="in one machine")] = 1
    topology: Topology = "workstation"
    network: Annotated[Network | None, Field(description="without one: a single machine only")] = (
        None
    )
    rent: UsdPerHour | None = None
    spot: UsdPerHour | None = None
    buy: Usd | None = None
    power: Annotated[Watts | None, Field(gt=0, description="per machine under load")] = None

    @model_validator(mode="after")
    def _has_a_price(self) -> "OwnOffer":
        if self.rent is None and self.spot is None and self.buy is None:
            raise ValueError("an offer needs a price: 'rent', 'spot' or 'buy'")
        return self


class OwnedMachines(Spec):
    """Machines of one kind that you have: a catalog machine, or GPUs in a machine."""

    name: Annotated[Name | None, Field(description="default: what they are")] = None
    machine: MachineName | None = None
    gpu: GpuName | None = None
    gpus: Annotated[int, Field(gt=0, le=72, description="in one machine")] = 1
    topology: Topology = "workstation"
    count: Annotated[int, Field(gt=0, le=100_000, description="machines")] = 1
    network: Annotated[
        Network | None, Field(description="that joins them already; else one is bought if it helps")
    ] = None
    power: Annotated[Watts | None, Field(gt=0, description="per machine under load")] = None
    age: Years | None = None
    bought: datetime.date | None = None
    price: Annotated[Usd | None, Field(description="what one cost")] = None
    value: Annotated[
        Usd | None,
        Field(
            description="what one would sell for today; default: of its price, what is left at its age by "
            "owning.value_kept_per_year"
        ),
    ] = None

    @model_validator(mode="after")
    def _one_of_each(self) -> "OwnedMachines":
        if (self.machine is None) == (self.gpu is None):
            raise ValueError("owned machines have either a 'machine' or a 'gpu'")
        if self.machine is not None and {"gpus", "topology"} & self.model_fields_set:
            raise ValueError(
                "'gpus' and 'topology' go with a 'gpu'; the catalog knows the machine's"
            )
        if self.age is not None and self.bought is not None:
            raise ValueError("give 'age' or 'bought', not both")
        if (
            self.value is None
            and self.price is not None
            and self.age is None
            and self.bought is None
        ):
            raise ValueError("what is left of a 'price' needs 'age' or 'bought'; or give 'value'")
        return self


class PlanSearch(Spec):
    """What to try; whatever you leave out is tried with all that the catalog has."""

    ways: Annotated[
        tuple[Acquisition, ...],
        Field(min_length=1, max_length=MOST_LISTED, description="how machines may be acquired"),
    ] = _ACQUISITIONS
    gpus: Annotated[tuple[GpuName, ...] | None, Field(min_length=1, max_length=MOST_LISTED)] = None
    offers: Annotated[
        tuple[Name, ...] | None,
        Field(min_length=1, max_length=MOST_LISTED, description="ids of `gpuyard catalog prices` or `machines`, or names of `offers`"),
    ] = None  # fmt: skip
    nodes: Counts = (1, 2, 3, 4, 6, 8, 12, 16)
    networks: Annotated[
        tuple[LinkName, ...], Field(min_length=1, max_length=MOST_LISTED, description="between bought machines")
    ] = ("ethernet-1g", "ethernet-10g", "ethernet-25g", "ethernet-100g", "infiniband-hdr", "infiniband-ndr")  # fmt: skip
    batch: Counts | None = None
    remedies: Annotated[tuple[RemedyName, ...], Field(min_length=1, max_length=MOST_LISTED)] = (
        _REMEDIES
    )
    precision: Annotated[
        tuple[Precision, ...] | None,
        Field(min_length=1, max_length=4, description="what to train in, whatever the workload says; several are compared"),
    ] = None  # fmt: skip
    largest_batch: Annotated[
        Count | None, Field(description="samples per update, over all GPUs")
    ] = None

    @model_validator(mode="after")
    def _mixes_something(self) -> "PlanSearch":
        owned, rented = {"buy", "colocate", "keep"}, {"on-demand", "spot"}
        if "hybrid" in self.ways and not (owned & set(self.ways) and rented & set(self.ways)):
            raise ValueError(
                "hybrid combines owning and renting: add 'buy', 'colocate' or 'keep', and 'on-demand' or 'spot'"
            )
        return self


class Playbook(Spec):
    """What `gpuyard playbook` asks in addition."""

    gpus_now: Annotated[
        int | None, Field(ge=0, le=1_000_000, description="GPUs needed at once today")
    ] = None
    load: Load = "steady"
    inference: Annotated[bool, Field(description="models are also served around the clock")] = False  # fmt: skip
    data: Annotated[Bytes | None, Field(description="size of all training data")] = None


class Plan(Spec):
    """The goal, and what is searched for it."""

    name: Name
    workload: Annotated[
        Annotated[Workload, Tag("described")] | Annotated[WorkloadReference, Tag("named")],
        Discriminator(named_or_described),
        Field(description="a workload file next to the plan, a catalog model, or the workload itself"),
    ]  # fmt: skip
    runs_per_month: Annotated[float, Field(gt=0, le=1_000_000)]
    time_per_run: Annotated[
        Seconds | None, Field(gt=0, description="longest time for a finished run")
    ] = None
    budget: Annotated[Usd | None, Field(gt=0, description="total over the horizon")] = None
    horizon: Annotated[
        Years, Field(gt=0, le=20 * 365.25 * 86400, description="planning horizon")
    ] = 3 * 365.25 * 86400
    policy: PlanPolicy = PlanPolicy()
    people: People = People()
    site: Annotated[
        Annotated[PlanSite, Tag("described")] | Annotated[SiteReference, Tag("named")],
        Discriminator(named_or_described),
        Field(description="what the room has and costs, or a *.site.yaml next to the plan"),
    ] = PlanSite()
    owning: Owning = Owning()
    renting: Renting = Renting()
    spot: SpotInterruptions = SpotInterruptions()
    search: PlanSearch = PlanSearch()
    prices: OwnPrices = OwnPrices()
    offers: Annotated[tuple[OwnOffer, ...], Field(max_length=MOST_LISTED)] = ()
    owned: Annotated[
        tuple[OwnedMachines, ...],
        Field(max_length=MOST_LISTED, description="what you have already"),
    ] = ()
    playbook: Playbook = Playbook()

    @model_validator(mode="after")
    def _terms_within_horizon(self) -> "Plan":
        years = self.horizon / (365.25 * 86400)
        asked = self.search.ways if "ways" in self.search.model_fields_set else ()
        for acquisition, term in RESERVED_YEARS.items():
            if acquisition in asked and term > years:
                raise ValueError(
                    f"search.ways: the term of {acquisition} is longer than the horizon of {units.format_years(years)}; "
                    "lengthen 'horizon' or remove it"
                )
        if self.owned and "keep" not in self.search.ways:
            raise ValueError("'owned' has machines: add 'keep' to 'search.ways', or leave that out")
        names = [offer.name for offer in self.offers]
        names += [one.name or one.machine or f"{one.gpus} × {one.gpu}" for one in self.owned]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(
                    f"two offers or owned machines are called {name!r}; give one another 'name'"
                )
        return self

    @model_validator(mode="after")
    def _offers_are_known(self, info: ValidationInfo) -> "Plan":
        known = (info.context or {}).get("offer")
        own = {offer.name for offer in self.offers}
        own |= {machines.name for machines in self.owned if machines.name is not None}
        for name in self.search.offers or ():
            if known is not None and name not in known | own:
                raise ValueError(f"search.offers: {describe_unknown('offer', name, known | own)}")
        return self
