"""The spec of a plan: the training runs, the deadline and budget, and the constraints."""

import datetime
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, ValidationInfo, model_validator

from gpuyard import units
from gpuyard.choices import Load, Precision, Topology
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
    Tokens,
    Usd,
    UsdPerHour,
    UsdPerKwh,
    UsdPerKwMonth,
    Watts,
    WorkloadReference,
    Years,
)
from gpuyard.specs.cluster import Network, get_reference_tag
from gpuyard.specs.workload import Workload

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
        Field(
            description="whether data must stay in the building, so that nothing is rented or colocated"
        ),
    ] = False
    clouds: Annotated[
        tuple[CloudName, ...] | None,
        Field(
            min_length=1,
            max_length=MAX_LISTED,
            description="clouds to rent from, as named by `gpuyard catalog prices`; default: all",
        ),
    ] = None


class People(Spec):
    """The people who train; the number of runs grows with them."""

    researchers: Annotated[int, Field(gt=0, le=1_000_000, description="number of people today")] = 1
    hires_per_year: Annotated[
        float, Field(ge=0, le=1_000_000, description="number of people who join each year")
    ] = 0.0


class PlanSite(Spec):
    """The site of bought machines, and its costs."""

    power: Annotated[
        Watts | None,
        Field(gt=0, description="power that the room has, including cooling; default: no limit"),
    ] = None
    country: Annotated[
        Country | None,
        Field(
            description="two-letter country code for the electricity price, like `DE`; default: `US`, and the "
            "answer states it"
        ),
    ] = None
    region: Annotated[
        Region | None,
        Field(
            description="region with its own electricity price, like `US-IL`, as named by `gpuyard catalog "
            "electricity`"
        ),
    ] = None
    electricity: Annotated[
        UsdPerKwh | None,
        Field(description="electricity price, like `$0.12/kWh`; default: the country's"),
    ] = None
    pue: Annotated[
        float, Field(ge=1, le=3, description="power of the room divided by that of its machines")
    ] = 1.58
    colocation: Annotated[
        UsdPerKwMonth,
        Field(
            description="colocation price per kW under load, without electricity, like `$184/kW/month`"
        ),
    ] = 184.06
    colocation_pue: Annotated[
        float,
        Field(ge=1, le=3, description="PUE of the colocation"),
    ] = 1.3


class Owning(Spec):
    """The costs of bought machines other than power and space; costs that are left out are zero."""

    busy_at_most: Annotated[
        Share,
        Field(
            gt=0,
            description="highest utilization of the machines, as a share of all hours",
        ),
    ] = 0.8
    spares: Annotated[
        Share, Field(description="spare parts bought with the hardware, as a share of its price")
    ] = 0.0
    support_per_year: Annotated[
        Share, Field(description="support contract, as a share of the hardware's price")
    ] = 0.0
    value_kept_per_year: Annotated[
        Share,
        Field(description="share of the resale value that remains after a year; 0: no resale"),
    ] = 0.0
    staff_hours_per_month: Annotated[
        float, Field(ge=0, le=1e6, description="staff hours per machine and month")
    ] = 2.0
    staff: Annotated[UsdPerHour, Field(description="price of a staff hour")] = 75.0
    idle_power: Annotated[
        Share, Field(description="power of an idle machine, as a share of its power under load")
    ] = 0.0
    failure: Annotated[
        Usd,
        Field(ge=0, description="cost per failure; there is one in about 50,700 GPU-hours"),
    ] = 0.0


class Renting(Spec):
    """The costs of rented runs other than their steps: startup time, and data in the cloud."""

    start: Annotated[
        Seconds,
        Field(description="billed time from requesting machines to the first step"),
    ] = 300.0
    data: Annotated[
        Bytes | None,
        Field(
            description="data stored in the cloud over the horizon; default: the workload's dataset: samples × "
            "bytes per sample"
        ),
    ] = None
    results: Annotated[
        Bytes | None,
        Field(
            description="data downloaded after each run; default: a checkpoint, 12 bytes per parameter"
        ),
    ] = None
    storage: Annotated[
        Usd | None,
        Field(
            ge=0,
            description="storage price per GB and month, like `$0.023`; default: the cloud's, from `gpuyard "
            "catalog cloud-data`",
        ),
    ] = None
    egress: Annotated[
        Usd | None,
        Field(
            ge=0,
            description="egress price per GB, like `$0.09`; with your own price, nothing is free; default: the "
            "cloud's, from `gpuyard catalog cloud-data`",
        ),
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

    gpu: Annotated[GpuName, Field(description="catalog GPU")]
    price: Annotated[Usd, Field(description="price of one GPU")]


class ServerPrice(Spec):
    """A quote for a whole server."""

    machine: Annotated[MachineName, Field(description="catalog machine")]
    price: Annotated[Usd, Field(description="price of one machine")]


class OwnPrices(Spec):
    """Your own quotes and term discounts, which replace catalog prices."""

    gpus: Annotated[
        tuple[GpuPrice, ...],
        Field(max_length=MAX_LISTED, description="list of GPU prices; default: the catalog's"),
    ] = ()
    servers: Annotated[
        tuple[ServerPrice, ...],
        Field(
            max_length=MAX_LISTED,
            description="list of quotes for catalog machines; default: list prices",
        ),
    ] = ()
    reserved_1_year: Annotated[
        Share | None,
        Field(
            description="discount on the on-demand price for a one-year term; default: 35%, large clouds only"
        ),
    ] = None
    reserved_3_years: Annotated[
        Share | None,
        Field(
            description="discount on the on-demand price for a three-year term; default: 55%, large clouds only"
        ),
    ] = None


class OwnOffer(Spec):
    """An offer that is not in the catalog: an instance by the hour, a server to buy, or both."""

    name: Annotated[Name, Field(description="name of the offer")]
    gpu: Annotated[GpuName, Field(description="catalog GPU")]
    gpus: Annotated[int, Field(gt=0, le=72, description="number of GPUs per machine")] = 1
    topology: Annotated[Topology, Field(description="how the GPUs are connected")] = "workstation"
    network: Annotated[
        Network | None,
        Field(description="network between machines; default: one machine only"),
    ] = None
    rent: Annotated[UsdPerHour | None, Field(description="on-demand price of one machine")] = None
    spot: Annotated[UsdPerHour | None, Field(description="spot price of one machine")] = None
    buy: Annotated[Usd | None, Field(description="purchase price of one machine")] = None
    power: Annotated[
        Watts | None,
        Field(
            gt=0, description="power of one machine under load; default: 1.6 times that of its GPUs"
        ),
    ] = None

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
    machine: Annotated[
        MachineName | None, Field(description="catalog machine; either this or `gpu`")
    ] = None
    gpu: Annotated[
        GpuName | None, Field(description="catalog GPU of a machine that you describe")
    ] = None
    gpus: Annotated[int, Field(gt=0, le=72, description="number of GPUs per machine")] = 1
    topology: Annotated[Topology, Field(description="how the GPUs are connected")] = "workstation"
    count: Annotated[
        int, Field(gt=0, le=100_000, description="number of machines of this kind")
    ] = 1
    network: Annotated[
        Network | None,
        Field(description="network that they already have; default: one is bought if it helps"),
    ] = None
    power: Annotated[
        Watts | None,
        Field(
            gt=0,
            description="power of one machine under load; default: the catalog's, or 1.6 times that of its GPUs",
        ),
    ] = None
    age: Annotated[
        Years | None,
        Field(description="age of the machines, like `4 years`; either this or `bought`"),
    ] = None
    bought: Annotated[
        datetime.date | None, Field(description="date of the purchase; either this or `age`")
    ] = None
    price: Annotated[
        Usd | None, Field(description="price that you paid for one, to calculate its value")
    ] = None
    value: Annotated[
        Usd | None,
        Field(
            description="resale value of one today; default: calculated from `price` and age, otherwise nothing"
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
        Field(
            min_length=1,
            max_length=MAX_LISTED,
            description="ways to acquire machines: `on-demand`, `reserved-1-year`, `reserved-3-years`, `spot`, "
            "`buy`, `colocate`, `keep` (your machines), `hybrid`; default: all",
        ),
    ] = _ACQUISITIONS
    power_cap: Annotated[
        Watts | None,
        Field(gt=0, description="power limit of each GPU, like `300 W`; default: its rated power"),
    ] = None
    gpus: Annotated[
        tuple[GpuName, ...] | None,
        Field(
            min_length=1,
            max_length=MAX_LISTED,
            description="catalog GPUs to consider; default: all",
        ),
    ] = None
    offers: Annotated[
        tuple[Name, ...] | None,
        Field(
            min_length=1,
            max_length=MAX_LISTED,
            description="offers to consider: ids of `gpuyard catalog prices` or `machines`, machines built from"
            " parts like `server-sxm5/8x-h100-sxm5-80gb`, or names of your own `offers`; default: "
            "all",
        ),
    ] = None
    nodes: Annotated[Counts, Field(description="numbers of machines for one run")] = (
        1,
        2,
        3,
        4,
        6,
        8,
        12,
        16,
    )
    networks: Annotated[
        tuple[LinkName, ...],
        Field(
            min_length=1,
            max_length=MAX_LISTED,
            description="links between bought machines; default: 1, 10, 25, and 100 Gbit/s Ethernet, HDR and "
            "NDR InfiniBand",
        ),
    ] = (
        "ethernet-1g",
        "ethernet-10g",
        "ethernet-25g",
        "ethernet-100g",
        "infiniband-hdr",
        "infiniband-ndr",
    )
    batch: Annotated[
        Counts | None,
        Field(description="batch sizes per GPU; default: half to eight times the workload's"),
    ] = None
    remedies: Annotated[
        tuple[RemedyName, ...],
        Field(
            min_length=1,
            max_length=MAX_LISTED,
            description="remedies for the exchange; default: all",
        ),
    ] = _REMEDIES
    precision: Annotated[
        tuple[Precision, ...] | None,
        Field(
            min_length=1,
            max_length=4,
            description="precisions that replace the workload's; several are compared; default: the workload's",
        ),
    ] = None
    largest_batch: Annotated[
        Count | None,
        Field(description="largest number of samples per update, over all GPUs; default: no limit"),
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
        int | None,
        Field(
            ge=0,
            le=1_000_000,
            description="number of GPUs needed at once today; default: the plan's choice",
        ),
    ] = None
    load: Annotated[Load, Field(description="shape of the load")] = "steady"
    inference: Annotated[
        bool, Field(description="whether models are also served around the clock")
    ] = False
    data: Annotated[Bytes | None, Field(description="size of all training data")] = None
    memory: Annotated[
        Bytes | None,
        Field(
            description="GPU memory that training one copy of the largest model needs; default: that of the "
            "plan's workload"
        ),
    ] = None


class Plan(Spec):
    """The goal of a plan, and the candidates to search."""

    name: Annotated[Name, Field(description="name in tables and reports")]
    workload: Annotated[
        Annotated[Workload, Tag("described")] | Annotated[WorkloadReference, Tag("named")],
        Discriminator(get_reference_tag),
        Field(
            description="workload file next to the plan, a catalog model, or the workload itself; it needs a "
            "dataset or tokens"
        ),
    ]
    tokens: Annotated[
        Tokens | None,
        Field(le=1e18, description="tokens of one run of a large model; default: the workload's"),
    ] = None
    runs_per_month: Annotated[
        float, Field(gt=0, le=1_000_000, description="finished runs per month today")
    ]
    time_per_run: Annotated[
        Seconds | None,
        Field(gt=0, description="longest time for a finished run; default: no limit"),
    ] = None
    budget: Annotated[
        Usd | None,
        Field(gt=0, description="total budget over the horizon, in dollars; default: no limit"),
    ] = None
    horizon: Annotated[
        Years,
        Field(gt=0, le=20 * 365.25 * 86400, description="planning horizon"),
    ] = 3 * 365.25 * 86400
    policy: Annotated[PlanPolicy, Field(description="rules that don't depend on prices")] = (
        PlanPolicy()
    )
    people: Annotated[
        People, Field(description="people who train; the number of runs grows with them")
    ] = People()
    site: Annotated[
        Annotated[PlanSite, Tag("described")] | Annotated[SiteReference, Tag("named")],
        Discriminator(get_reference_tag),
        Field(
            description="room for bought machines: the next keys, or the name of a site file next to the plan"
        ),
    ] = PlanSite()
    owning: Annotated[
        Owning, Field(description="costs of bought machines in addition to power and space")
    ] = Owning()
    renting: Annotated[
        Renting, Field(description="costs of rented runs in addition to their steps")
    ] = Renting()
    spot: Annotated[
        SpotInterruptions, Field(description="interruptions of spot instances and their cost")
    ] = SpotInterruptions()
    search: Annotated[PlanSearch, Field(description="candidates to try")] = PlanSearch()
    prices: Annotated[OwnPrices, Field(description="your own prices instead of the catalog's")] = (
        OwnPrices()
    )
    offers: Annotated[
        tuple[OwnOffer, ...],
        Field(
            max_length=MAX_LISTED,
            description="list of your own offers, each with `rent`, `spot`, or `buy`",
        ),
    ] = ()
    owned: Annotated[
        tuple[OwnedMachines, ...],
        Field(
            max_length=MAX_LISTED,
            description="list of machines that you already have",
        ),
    ] = ()
    playbook: Annotated[
        Playbook, Field(description="additional answers for `gpuyard playbook`")
    ] = Playbook()

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
