"""The machines that can be had: cloud instances, servers with a price, builds from parts, and the user's
own offers, each with what it costs and where that figure comes from."""

import datetime
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from gpuyard import units
from gpuyard.catalog import Gpu, Machine, Price, gpus, links, machines, prices
from gpuyard.catalog.fabric import PRICES_OF
from gpuyard.catalog.prices import Chassis, build_id, chassis, fits, gpu_prices, network_of_instance
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.facility.fabric import HostPorts, TypicalFloor, bill_of, cheapest_fabric
from gpuyard.hardware.presets import refuse_impossible, usual_topology
from gpuyard.specs import Network, Topology
from gpuyard.specs.plan import OwnedMachines, OwnOffer, Plan


@dataclass(frozen=True)
class Joining:
    """A network, and whether machines bring their own cards to it."""

    network: Network
    cards_included: bool = False


@dataclass(frozen=True)
class NetworkPrice:
    """Of one network between so many machines, and what that rests on."""

    usd: float
    source: str


@functools.cache
def network_price(joining: Joining, machines: int) -> NetworkPrice:
    """Cables between two machines; the cheapest switches between more."""
    network = joining.network
    if network.link is not None:
        link = links().get(network.link)
        gbit, kind = link.raw_bytes_per_second * 8 / 1e9, link.kind
    else:
        gbit, kind = (network.rate or 0.0) * 8 / 1e9, "ethernet"
    wanted = HostPorts(gbit, kind, network.rails, network.oversubscription)
    try:
        design = cheapest_fabric(wanted, machines, TypicalFloor.of(machines))
    except GpuyardError as unknown:
        return NetworkPrice(0.0, f"not counted: {unknown}")
    bill = bill_of(design)
    total = (bill.total_usd or 0.0) - (bill.cards_usd if joining.cards_included else 0.0)
    boxes = [
        f"{count} × {switch.name} at ${switch.price_usd or 0:,.0f} ({switch.price_as_of})"
        for switch in dict.fromkeys((design.switch, design.spine_switch))
        if (count := design.chassis.get(switch.id))
    ]
    rest = "cables" if joining.cards_included else "cables and cards"
    return NetworkPrice(total, ", ".join([*boxes, f"{rest} ({PRICES_OF}, estimate)"]))


# nobody says how rented machines without a row in the catalog are joined
ASSUMED_NETWORK = Network(link="ethernet-10g")
# 19 of 20 instances whose network is known have at least 5 Gbit/s; one that has more than Ethernet of 100 Gbit/s is
# sold with the name of its fabric
SLOW_NETWORK, FAST_NETWORK = Network(rate="5 Gbit/s"), Network(link="ethernet-100g")
UNKNOWN_NETWORK = "10 Gbit/s is assumed, and 5 to 100 Gbit/s are in the interval"
_GPU_ONLY = "GPU only"
# of a server whose own draw nobody gives: what its GPUs draw, and this much again for the rest
_REST_OF_SERVER = 0.6


@dataclass(frozen=True)
class PricedServer:
    """One kind of machine, and its prices: rent by the hour, or once."""

    id: str
    name: str
    gpu: Gpu
    gpus: int
    topology: Topology
    watts: float
    price_dates: tuple[datetime.date, ...]  # of its parts; none where the plan gives the price
    price_source: str
    cloud: str | None = None
    rent_usd_per_hour: float | None = None
    spot_usd_per_hour: float | None = None
    buy_usd: float | None = None
    estimate: bool = False  # the price is a sum of parts
    own_network: Network | None = None  # what it comes with
    network_assumed: bool = False
    given: bool = False  # by the plan
    owned: int | None = None  # how many you have; None: it is not yours
    value_usd: float = 0.0  # what one that is yours would sell for
    joined: bool = False  # its network is there and paid

    @property
    def price_date(self) -> datetime.date | None:
        """A price is as old as its oldest part."""
        return min(self.price_dates, default=None)

    def joinings(self, plan: Plan) -> tuple[Joining, ...]:
        """How several of them may be joined; machines of the catalog bring their cards."""
        if self.own_network is not None:
            return (Joining(self.own_network, cards_included=not self.given),)
        if self.given or (self.buy_usd is None and self.owned is None):
            return ()
        return tuple(Joining(Network(link=link)) for link in plan.search.networks)


def servers_of(plan: Plan) -> list[PricedServer]:
    """All that the plan may choose from, before any wish of the plan is looked at."""
    return [
        *(_kept(machines, plan) for machines in plan.owned),
        *(_own(offer) for offer in plan.offers),
        *_rented(),
        *_products(plan),
        *_builds(plan),
    ]


def _own(offer: OwnOffer) -> PricedServer:
    gpu = gpus().get(offer.gpu)
    refuse_impossible(offer.topology, gpu, offer.gpus)
    watts = offer.gpus * gpu.board_watts * (1 + _REST_OF_SERVER)
    return PricedServer(
        id=offer.name,
        name=offer.name,
        gpu=gpu,
        gpus=offer.gpus,
        topology=offer.topology,
        watts=watts if offer.power is None else offer.power,
        price_dates=(),
        price_source="the plan",
        rent_usd_per_hour=offer.rent,
        spot_usd_per_hour=offer.spot,
        buy_usd=offer.buy,
        own_network=offer.network,
        given=True,
    )


def _kept(owned: OwnedMachines, plan: Plan) -> PricedServer:
    """What you have, at what it is still worth."""
    known = machines().get(owned.machine) if owned.machine is not None else None
    gpu = gpus().get(known.gpu if known else owned.gpu or "")
    count = known.gpus if known else owned.gpus
    topology = known.topology if known else owned.topology
    refuse_impossible(topology, gpu, count)
    watts = owned.power or (known.max_watts if known else None)
    name = owned.name or f"your {known.name if known else f'machine with {count} × {gpu.name}'}"
    value, source = _remaining_value(owned, plan)
    return PricedServer(
        id=name,
        name=name,
        gpu=gpu,
        gpus=count,
        topology=topology,
        watts=watts or count * gpu.board_watts * (1 + _REST_OF_SERVER),
        price_dates=(),
        price_source=source,
        own_network=owned.network or (_network_of(known) if known else None),
        owned=owned.count,
        value_usd=value,
        joined=owned.network is not None,
    )


def _remaining_value(owned: OwnedMachines, plan: Plan) -> tuple[float, str]:
    """Of one, and where that comes from."""
    years = _age_years(owned)
    old = "" if years is None else f", {units.format_years(years)} old"
    if owned.value is not None:
        return owned.value, f"remaining value as the plan says{old}"
    if owned.price is None:
        return 0.0, f"no remaining value is given: counted as nothing{old}"
    kept = plan.owning.value_kept_per_year
    words = f"{100 * kept:.0f} % of ${owned.price:,.0f} kept per year"
    return owned.price * kept ** (years or 0.0), f"{words}{old}"


def _age_years(owned: OwnedMachines) -> float | None:
    if owned.bought is None:
        return None if owned.age is None else owned.age / (365.25 * 86400)
    days = (datetime.datetime.now(datetime.UTC).date() - owned.bought).days
    if days < 0:
        raise UserMistake(f"owned: 'bought' is {owned.bought}, a day to come")
    return days / 365.25


def _rented() -> Iterator[PricedServer]:
    """Instances whose GPU is known and whose price has the whole machine in it."""
    for price in prices():
        if price.gpu is None or price.note.startswith(_GPU_ONLY):
            continue
        gpu = gpus().get(price.gpu)
        known = _machine_of(price)
        joined = network_of_instance(price)
        network = joined.network if joined else _network_of(known) if known else None
        yield PricedServer(
            id=price.id,
            name=f"{price.cloud} {price.instance}",
            gpu=gpu,
            gpus=price.gpus,
            topology=known.topology if known else usual_topology(gpu, price.gpus),
            watts=0.0,  # the cloud's
            price_dates=(price.date,),
            price_source=price.source,
            cloud=price.cloud,
            rent_usd_per_hour=price.usd_per_hour,
            spot_usd_per_hour=price.spot_usd_per_hour,
            own_network=network or ASSUMED_NETWORK,
            network_assumed=network is None,
        )


def unusable_prices() -> dict[str, int]:
    """Rows of the price list that no plan can use, by reason."""
    rows = list(prices())
    return {
        "its GPU is not in the catalog": sum(row.gpu is None for row in rows),
        "its price covers the GPU only": sum(
            row.gpu is not None and row.note.startswith(_GPU_ONLY) for row in rows
        ),
    }


def _machine_of(price: Price) -> Machine | None:
    name = f"{price.cloud}-{price.instance.replace('.', '-')}"
    return machines().get(name) if name in machines() else None


def _network_of(machine: Machine) -> Network | None:
    return Network(link=machine.nic_link, rails=machine.nics or 1) if machine.nic_link else None


def _products(plan: Plan) -> Iterator[PricedServer]:
    """Machines with a list price, or with a quote of the plan's."""
    quotes = {quote.machine: quote.price for quote in plan.prices.servers}
    for machine in machines():
        price = quotes.get(machine.id, machine.price_usd)
        if price is None:
            continue
        gpu = gpus().get(machine.gpu)
        watts = machine.gpus * gpu.board_watts * (1 + _REST_OF_SERVER)
        quoted = machine.id in quotes
        yield PricedServer(
            id=machine.id,
            name=machine.name,
            gpu=gpu,
            gpus=machine.gpus,
            topology=machine.topology,
            watts=machine.max_watts or watts,
            price_dates=() if quoted else (machine.date,),
            price_source="the plan" if quoted else machine.source,
            buy_usd=price,
            own_network=_network_of(machine),
        )


def _builds(plan: Plan) -> Iterator[PricedServer]:
    """GPUs with a price in every chassis that takes them: an estimate from parts."""
    own = {price.gpu: price.price for price in plan.prices.gpus}
    for gpu in gpus():
        if gpu.id in own:
            priced = _GpuPrice(own[gpu.id], "as the plan says", ())
        elif gpu.id in gpu_prices():
            row = gpu_prices().get(gpu.id)
            priced = _GpuPrice(row.usd, f"{row.basis} price of {row.date}", (row.date,))
        else:
            continue
        for box in chassis():
            if fits(gpu, box):
                yield from _filled(gpu, box, priced)


class _GpuPrice(NamedTuple):
    usd: float
    words: str
    dates: tuple[datetime.date, ...]  # none where the plan gives it


def _filled(gpu: Gpu, box: Chassis, price: _GpuPrice) -> Iterator[PricedServer]:
    for count in box.gpus:
        topology = usual_topology(gpu, count) if box.form == "SXM" else box.topology
        yield PricedServer(
            id=build_id(gpu, count, box),
            name=f"{box.name} with {count} × {gpu.name}",
            gpu=gpu,
            gpus=count,
            topology=topology,
            watts=count * gpu.board_watts + box.watts,
            price_dates=(box.date, *price.dates),
            price_source=f"estimate: {count} GPUs at ${price.usd:,.0f} ({price.words}) and the machine around "
            f"them at ${box.usd:,.0f} (price of {box.date}: {box.source})",
            buy_usd=count * price.usd + box.usd,
            estimate=True,
        )
