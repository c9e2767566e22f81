"""The spec of a plan: the training runs, the deadline and budget, and the constraints."""

import datetime
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, ValidationInfo, model_validator

from gpuyard import units
from gpuyard.errors import describe_unknown
from gpuyard.specs.base import (
    MAX_LISTED,
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
from gpuyard.specs.cluster import Network, Topology, get_reference_tag
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
    """Constraints that do not depend on the price."""

    data_stays: Annotated[
        bool,
        Field(description="data cannot leave the building, so nothing is rented or colocated"),
    ] = False
    clouds: Annotated[
        tuple[CloudName, ...] | None,
        Field(min_length=1, max_length=MAX_LISTED, description="clouds to rent from, as named by `gpuyard catalog prices`; default: all"),
    ] = None  # fmt: skip


class People(Spec):
    """The people who train; the number of runs grows with them."""

    researchers: Annotated[int, Field(gt=0, le=1_000_000)] = 1
    hires_per_year: Annotated[float, Field(ge=0, le=1_000_000)] = 0.0


class PlanSite(Spec):
    """The site of bought machines, and its costs."""

    power: Annotated[
        Watts | None, Field(gt=0, description="power that the room has, including cooling")
    ] = None
    country: Annotated[Country | None, Field(description="country of the site, like DE")] = None
    region: Region | None = None
    electricity: Annotated[
        UsdPerKwh | None, Field(description="electricity price; default: that of the country")
    ] = None
    pue: Annotated[float, Field(ge=1, le=3, description="power of the room divided by that of its machines")] = 1.58  # fmt: skip
    colocation: Annotated[
        UsdPerKwMonth, Field(description="colocation price per kW under load, without electricity")
    ] = 184.06
    colocation_pue: Annotated[
        float,
        Field(ge=1, le=3, description="PUE of a colocation; default: typical of new, large sites"),
    ] = 1.3


class Owning(Spec):
    """The costs of bought machines other than power and space; costs that are left out are zero."""

    busy_at_most: Annotated[
        Share,
        Field(
            gt=0,
            description="highest utilization; the remaining hours are queueing, maintenance, and repair",
        ),
    ] = 0.8
    spares: Annotated[
        Share, Field(description="spare parts bought with it, as a share of the hardware's price")
    ] = 0.0
    support_per_year: Annotated[
        Share, Field(description="support contract, as a share of the hardware's price")
    ] = 0.0
    value_kept_per_year: Annotated[
        Share, Field(description="share of the resale value that remains after a year")
    ] = 0.0
    staff_hours_per_month: Annotated[
        float, Field(ge=0, le=1e6, description="staff hours per machine")
    ] = 2.0
    staff: UsdPerHour = 75.0
    idle_power: Annotated[
        Share, Field(description="power of an idle machine, as a share of its power under load")
    ] = 0.0
    failure: Annotated[
        Usd,
        Field(ge=0, description="cost per failure; one in about 50,700 GPU-hours (Llama 3)"),
    ] = 0.0


class Renting(Spec):
    """The costs of rented runs other than their steps: startup time, and data in the cloud."""

    start: Annotated[
        Seconds, Field(description="billed time from requesting machines to the first step")
    ] = 300.0
    data: Annotated[
        Bytes | None,
        Field(
            description="data stored in the cloud over the horizon; default: the workload's dataset"
        ),
    ] = None
    results: Annotated[
        Bytes | None,
        Field(description="data downloaded after each run; default: one checkpoint of the model"),
    ] = None
    storage: Annotated[
        Usd | None,
        Field(
            ge=0, description="price per GB and month; default: from `gpuyard catalog cloud-data`"
        ),
    ] = None
    egress: Annotated[
        Usd | None,
        Field(ge=0, description="price per GB; default: from `gpuyard catalog cloud-data`"),
    ] = None


class SpotInterruptions(Spec):
    """The interruption rate of spot instances, and the time that an interruption costs a run."""

    interruptions_per_hour: Annotated[
        float, Field(ge=0, le=60, description="interruptions of one instance per hour")
    ] = 0.05
    checkpoint: Annotated[Seconds, Field(description="time to write a checkpoint")] = 60.0
    restart: Annotated[Seconds, Field(description="time until the run continues")] = 600.0


class GpuPrice(Spec):
    """Your price for one GPU."""

    gpu: GpuName
    price: Usd


class ServerPrice(Spec):
    """A quote for a whole server."""

    machine: MachineName
    price: Usd


class OwnPrices(Spec):
    """Your own quotes and term discounts, which replace catalog prices."""

    gpus: Annotated[tuple[GpuPrice, ...], Field(max_length=MAX_LISTED)] = ()
    servers: Annotated[tuple[ServerPrice, ...], Field(max_length=MAX_LISTED)] = ()
    reserved_1_year: Annotated[
        Share | None,
        Field(description="discount on the on-demand price, paid for every hour of a year"),
    ] = None
    reserved_3_years: Share | None = None


class OwnOffer(Spec):
    """An offer that is not in the catalog: an instance by the hour, a server to buy, or both."""

    name: Name
    gpu: GpuName
    gpus: Annotated[int, Field(gt=0, le=72, description="GPUs per machine")] = 1
    topology: Topology = "workstation"
    network: Annotated[
        Network | None, Field(description="network between machines; default: one machine only")
    ] = None
    rent: UsdPerHour | None = None
    spot: UsdPerHour | None = None
    buy: Usd | None = None
    power: Annotated[Watts | None, Field(gt=0, description="power per machine under load")] = None

    @model_validator(mode="after")
    def _check_price(self) -> "OwnOffer":
        if self.rent is None and self.spot is None and self.buy is None:
            raise ValueError("an offer needs a price: 'rent', 'spot', or 'buy'")
        return self


class OwnedMachines(Spec):
    """Machines of one kind that you have: a catalog machine, or GPUs in a machine."""

    name: Annotated[
        Name | None, Field(description="name in tables; default: the machine or GPUs")
    ] = None
    machine: MachineName | None = None
    gpu: GpuName | None = None
    gpus: Annotated[int, Field(gt=0, le=72, description="GPUs per machine")] = 1
    topology: Topology = "workstation"
    count: Annotated[int, Field(gt=0, le=100_000, description="number of machines")] = 1
    network: Annotated[
        Network | None,
        Field(description="network that they already have; default: one is bought if it helps"),
    ] = None
    power: Annotated[Watts | None, Field(gt=0, description="power per machine under load")] = None
    age: Years | None = None
    bought: datetime.date | None = None
    price: Annotated[Usd | None, Field(description="price that you paid for one")] = None
    value: Annotated[
        Usd | None,
        Field(
            description="resale value of one today; default: calculated from price, age, and "
            "owning.value_kept_per_year"
        ),
    ] = None

    @model_validator(mode="after")
    def _check_combination(self) -> "OwnedMachines":
        if (self.machine is None) == (self.gpu is None):
            raise ValueError("owned machines need either a 'machine' or a 'gpu'")
        if self.machine is not None and {"gpus", "topology"} & self.model_fields_set:
            raise ValueError(
                "'gpus' and 'topology' belong to a 'gpu'; a catalog machine has its own"
            )
        if self.age is not None and self.bought is not None:
            raise ValueError("give 'age' or 'bought', not both")
        if (
            self.value is None
            and self.price is not None
            and self.age is None
            and self.bought is None
        ):
            raise ValueError(
                "the value of a 'price' today needs 'age' or 'bought'; or give 'value'"
            )
        return self


class PlanSearch(Spec):
    """The candidates to compare; a key that is left out means everything in the catalog."""

    ways: Annotated[
        tuple[Acquisition, ...],
        Field(min_length=1, max_length=MAX_LISTED, description="ways to acquire machines"),
    ] = _ACQUISITIONS
    gpus: Annotated[tuple[GpuName, ...] | None, Field(min_length=1, max_length=MAX_LISTED)] = None
    offers: Annotated[
        tuple[Name, ...] | None,
        Field(min_length=1, max_length=MAX_LISTED, description="ids of `gpuyard catalog prices` or `machines`, or names of `offers`"),
    ] = None  # fmt: skip
    nodes: Counts = (1, 2, 3, 4, 6, 8, 12, 16)
    networks: Annotated[
        tuple[LinkName, ...], Field(min_length=1, max_length=MAX_LISTED, description="links between bought machines")
    ] = ("ethernet-1g", "ethernet-10g", "ethernet-25g", "ethernet-100g", "infiniband-hdr", "infiniband-ndr")  # fmt: skip
    batch: Counts | None = None
    remedies: Annotated[tuple[RemedyName, ...], Field(min_length=1, max_length=MAX_LISTED)] = (
        _REMEDIES
    )
    precision: Annotated[
        tuple[Precision, ...] | None,
        Field(min_length=1, max_length=4, description="precisions to compare; default: the workload's"),
    ] = None  # fmt: skip
    largest_batch: Annotated[
        Count | None, Field(description="largest number of samples per update, over all GPUs")
    ] = None

    @model_validator(mode="after")
    def _check_hybrid(self) -> "PlanSearch":
        owned, rented = {"buy", "colocate", "keep"}, {"on-demand", "spot"}
        if "hybrid" in self.ways and not (owned & set(self.ways) and rented & set(self.ways)):
            raise ValueError(
                "hybrid combines owning and renting: add 'buy', 'colocate', or 'keep', and 'on-demand' or 'spot'"
            )
        return self


class Playbook(Spec):
    """The additional inputs of `gpuyard playbook`."""

    gpus_now: Annotated[
        int | None, Field(ge=0, le=1_000_000, description="GPUs needed at once today")
    ] = None
    load: Load = "steady"
    inference: Annotated[bool, Field(description="models are also served around the clock")] = False  # fmt: skip
    data: Annotated[Bytes | None, Field(description="size of all training data")] = None
    memory: Annotated[
        Bytes | None,
        Field(description="GPU memory that training one copy of the largest model needs"),
    ] = None


class Plan(Spec):
    """The goal of a plan, and the candidates to search."""

    name: Name
    workload: Annotated[
        Annotated[Workload, Tag("described")] | Annotated[WorkloadReference, Tag("named")],
        Discriminator(get_reference_tag),
        Field(description="workload file next to the plan, a catalog model, or the workload itself"),
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
        Discriminator(get_reference_tag),
        Field(description="power and costs of the room, or a *.site.yaml next to the plan"),
    ] = PlanSite()
    owning: Owning = Owning()
    renting: Renting = Renting()
    spot: SpotInterruptions = SpotInterruptions()
    search: PlanSearch = PlanSearch()
    prices: OwnPrices = OwnPrices()
    offers: Annotated[tuple[OwnOffer, ...], Field(max_length=MAX_LISTED)] = ()
    owned: Annotated[
        tuple[OwnedMachines, ...],
        Field(max_length=MAX_LISTED, description="machines that you already have"),
    ] = ()
    playbook: Playbook = Playbook()

    @model_validator(mode="after")
    def _check_terms_and_names(self) -> "Plan":
        years = self.horizon / (365.25 * 86400)
        explicit_ways = self.search.ways if "ways" in self.search.model_fields_set else ()
        for acquisition, term in RESERVED_YEARS.items():
            if acquisition in explicit_ways and term > years:
                raise ValueError(
                    f"search.ways: the term of {acquisition} is longer than the horizon of {units.format_years(years)}; "
                    "lengthen 'horizon' or remove it"
                )
        if self.owned and "keep" not in self.search.ways:
            raise ValueError(
                "'owned' has machines: add 'keep' to 'search.ways', or leave out 'search.ways'"
            )
        names = [offer.name for offer in self.offers]
        names += [
            machines.name or machines.machine or f"{machines.gpus} × {machines.gpu}"
            for machines in self.owned
        ]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(
                    f"two offers or owned machines are called {name!r}; give one of them another 'name'"
                )
        return self

    @model_validator(mode="after")
    def _check_offer_names(self, info: ValidationInfo) -> "Plan":
        catalog = (info.context or {}).get("offer")
        own = {offer.name for offer in self.offers}
        own |= {machines.name for machines in self.owned if machines.name is not None}
        for name in self.search.offers or ():
            if catalog is not None and name not in catalog | own:
                raise ValueError(f"search.offers: {describe_unknown('offer', name, catalog | own)}")
        return self
