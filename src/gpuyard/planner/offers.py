"""An offer: one host, one way to get it, one network between several of them; its prices as columns."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpuyard.planner.cloud_data import CloudData
from gpuyard.planner.demand import Demand
from gpuyard.planner.hosts import Host
from gpuyard.planner.shapes import Shape, network_name
from gpuyard.predict.step import Floats
from gpuyard.specs import Network, Topology
from gpuyard.specs.plan import RESERVED_YEARS, Plan, Way

# Off the price on demand, for every hour of the term. One year: p3dn.24xlarge at $160,308 a year against
# $31.212/h is 41 %, p3.8xlarge and p3.16xlarge are 35 %; three years: assumed.
# Others get a reserved price only where the plan brings the discount.
RESERVING_CLOUDS = frozenset({"aws", "azure", "gcp", "ibm", "oci"})
OWNED_WAYS: tuple[Way, ...] = ("buy", "colocate")
DEFAULT_DISCOUNTS: dict[Way, float] = {"reserved-1-year": 0.35, "reserved-3-years": 0.55}


@dataclass(frozen=True)
class Offer:
    """What is paid for one machine, by the hour or once."""

    host: Host
    way: Way
    network: Network | None
    usd_per_hour: float  # rented: while it runs, or all the time where it is reserved
    buy_usd: float
    port_usd: float

    @property
    def shape(self) -> Shape:
        return Shape(self.host.gpu, self.host.gpus, self.host.topology, self.network)

    @property
    def shape_key(self) -> tuple[str, int, Topology, Network | None]:
        return (self.host.gpu.id, self.host.gpus, self.host.topology, self.network)

    @property
    def network_words(self) -> str:
        if self.network is None:
            return "one machine"
        return network_name(self.network) + (" (assumed)" if self.host.network_assumed else "")


@dataclass(frozen=True)
class OfferColumns:
    """The prices of all offers, one entry each."""

    way: Floats  # position in the plan's ways
    usd_per_hour: Floats
    buy_usd: Floats
    port_usd: Floats
    watts: Floats
    gpus: Floats
    memory_bytes: Floats  # of one GPU
    keeping_usd: Floats  # data in the cloud, over the horizon
    egress_usd: Floats  # of one run

    @staticmethod
    def of(
        offers: Sequence[Offer], ways: Sequence[Way], data: CloudData, demand: Demand
    ) -> "OfferColumns":
        clouds = {cloud: data.usd(cloud, demand) for cloud in {o.host.cloud for o in offers}}
        rows = [
            (ways.index(o.way), o.usd_per_hour, o.buy_usd, o.port_usd, o.host.watts, o.host.gpus,
             o.host.gpu.memory_bytes, *(clouds[o.host.cloud] if o.way not in OWNED_WAYS else (0, 0)))
            for o in offers
        ]  # fmt: skip
        found = OfferColumns(*np.array(rows, dtype=float).reshape(len(rows), 9).T)
        return replace(found, egress_usd=found.egress_usd / demand.runs)


def offers_of(hosts: Sequence[Host], plan: Plan) -> list[Offer]:
    """Every way that the plan asks for, of every host that it allows."""
    search = plan.search
    return [
        offer
        for host in hosts
        if (search.gpus is None or host.gpu.id in search.gpus)
        and (search.offers is None or host.id in search.offers)
        for way in search.ways
        for offer in _joined(host, way, plan)
    ]


def _joined(host: Host, way: Way, plan: Plan) -> Iterator[Offer]:
    price = _price(host, way, plan)
    if price is None:
        return
    usd_per_hour, buy_usd = price
    if 1 in plan.search.nodes:
        yield Offer(host, way, None, usd_per_hour, buy_usd, 0.0)
    if any(count > 1 for count in plan.search.nodes):
        for network, port_usd in host.networks(plan):
            ports = port_usd if way in OWNED_WAYS else 0.0
            yield Offer(host, way, network, usd_per_hour, buy_usd, ports)


def _price(host: Host, way: Way, plan: Plan) -> tuple[float, float] | None:
    """Dollars an hour and dollars once; None: not to be had so."""
    match way:
        case "buy" | "colocate":
            return None if host.buy_usd is None else (0.0, host.buy_usd)
        case "spot":
            return None if host.spot_usd_per_hour is None else (host.spot_usd_per_hour, 0.0)
        case "on-demand":
            return None if host.rent_usd_per_hour is None else (host.rent_usd_per_hour, 0.0)
        case "reserved-1-year" | "reserved-3-years":
            return _reserved(host, way, plan)
        case "hybrid":
            return None  # made of the others


def _reserved(host: Host, way: Way, plan: Plan) -> tuple[float, float] | None:
    known = given_discount(plan, way) is not None or host.cloud in RESERVING_CLOUDS
    if host.rent_usd_per_hour is None or not known or RESERVED_YEARS[way] > years_of(plan):
        return None
    return host.rent_usd_per_hour * (1 - discount(plan, way)), 0.0


def years_of(plan: Plan) -> float:
    return plan.horizon / (365.25 * 86400)


def given_discount(plan: Plan, way: Way) -> float | None:
    one, three = plan.prices.reserved_1_year, plan.prices.reserved_3_years
    return one if way == "reserved-1-year" else three


def is_assumed(plan: Plan, way: Way) -> bool:
    """A term's price that neither a list nor the plan has."""
    return way in RESERVED_YEARS and given_discount(plan, way) is None


def discount(plan: Plan, way: Way) -> float:
    """What a term takes off the price on demand."""
    given = given_discount(plan, way)
    return DEFAULT_DISCOUNTS[way] if given is None else given
