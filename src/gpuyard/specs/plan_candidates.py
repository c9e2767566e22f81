"""The keys of a plan about its candidates: your own offers and machines, and what to search."""

import datetime
from typing import Annotated, Literal

from pydantic import Field, model_validator

from gpuyard.choices import Precision, Topology
from gpuyard.specs.base import (
    MAX_LISTED,
    Count,
    Counts,
    GpuName,
    LinkName,
    MachineName,
    Name,
    Spec,
    Usd,
    UsdPerHour,
    Watts,
    Years,
)
from gpuyard.specs.cluster import Network

Acquisition = Literal[
    "on-demand", "reserved-1-year", "reserved-3-years", "spot", "buy", "colocate", "keep", "hybrid"
]
RemedyName = Literal["none", "fp16-gradients", "accumulation", "powersgd"]
_ACQUISITIONS: tuple[Acquisition, ...] = (
    "on-demand", "reserved-1-year", "reserved-3-years", "spot", "buy", "colocate", "keep", "hybrid",
)  # fmt: skip
RESERVED_YEARS: dict[Acquisition, int] = {"reserved-1-year": 1, "reserved-3-years": 3}
_REMEDIES: tuple[RemedyName, ...] = ("none", "fp16-gradients", "accumulation", "powersgd")


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
