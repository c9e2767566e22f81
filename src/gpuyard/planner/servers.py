"""The machines a plan can choose from: cloud instances, servers with a list price, builds from parts, and the plan's
own offers, each with its price and the source of that price."""

import datetime
import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from gpuyard import units
from gpuyard.catalog import Gpu, Machine, gpus, links, machines, prices
from gpuyard.catalog.fabric import ESTIMATE_YEAR
from gpuyard.catalog.prices import (
    Chassis,
    chassis,
    find_instance_network,
    fits_chassis,
    format_build_id,
    gpu_prices,
)
from gpuyard.catalog.short_names import find_instance_machine
from gpuyard.economics.interruption_rates import SPOT_PER_HOUR, find_spot_interruptions
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.facilities.fabric import HostPorts, TypicalFloor, find_cheapest_fabric
from gpuyard.hardware.presets import check_topology, choose_topology
from gpuyard.specs import Network, Topology
from gpuyard.specs.plan import Plan
from gpuyard.specs.plan_candidates import OwnedMachines, OwnOffer


@dataclass(frozen=True)
class NetworkOption:
    """A network between machines, and whether the machines include the network cards."""

    network: Network
    cards_included: bool = False


@dataclass(frozen=True)
class NetworkPrice:
    """The price of one network between a number of machines, and its source."""

    usd: float
    source: str


@functools.cache
def price_network(network_option: NetworkOption, machines: int) -> NetworkPrice:
    """Price cables between two machines, or the cheapest switched fabric between more."""
    network = network_option.network
    if network.link is not None:
        link = links().get(network.link)
        gbit, kind = link.raw_bytes_per_second * 8 / 1e9, link.kind
    else:
        gbit, kind = (network.rate or 0.0) * 8 / 1e9, "ethernet"
    ports = HostPorts(gbit, kind, network.rails, network.oversubscription)
    try:
        design = find_cheapest_fabric(ports, machines, TypicalFloor.from_node_count(machines))
    except GpuyardError as error:
        return NetworkPrice(0.0, f"not counted: {error}")
    bill = design.bill
    total = (bill.total_usd or 0.0) - (bill.cards_usd if network_option.cards_included else 0.0)
    sources = [
        f"{count} × {switch.name} at ${switch.price_usd or 0:,.0f} ({switch.price_as_of})"
        for switch in dict.fromkeys((design.switch, design.spine_switch))
        if (count := design.chassis.get(switch.id))
    ]
    other_parts = "cables" if network_option.cards_included else "cables and cards"
    return NetworkPrice(total, ", ".join([*sources, f"{other_parts} ({ESTIMATE_YEAR}, estimate)"]))


# The network of rented machines without a row in the catalog is unknown. 19 of 20 instances with a known network have
# at least 5 Gbit/s; an instance with more than 100 Gbit/s is sold with the name of its fabric.
ASSUMED_NETWORK = Network(link="ethernet-10g")
SLOW_NETWORK, FAST_NETWORK = Network(rate="5 Gbit/s"), Network(link="ethernet-100g")
UNKNOWN_NETWORK = "10 Gbit/s is assumed, and the interval covers 5 to 100 Gbit/s"
_GPU_ONLY = "GPU only"


@dataclass(frozen=True)
class PricedServer:
    """One kind of machine with its prices: rent by the hour, or a purchase price."""

    id: str
    name: str
    gpu: Gpu
    gpus: int
    topology: Topology
    watts: float
    price_dates: tuple[datetime.date, ...]  # of its parts; empty if the plan gives the price
    price_source: str
    cloud: str | None = None
    rent_usd_per_hour: float | None = None
    spot_usd_per_hour: float | None = None
    spot_interruptions_per_hour: float = SPOT_PER_HOUR
    buy_usd: float | None = None
    buy_usd_low: float | None = (
        None  # ends of the range in which a quote is expected; None: the price is quoted
    )
    buy_usd_high: float | None = None
    estimate: bool = False  # the price is a sum of parts
    included_network: Network | None = None
    network_assumed: bool = False
    from_plan: bool = False  # one of the plan's own offers
    owned: int | None = None  # how many you already have; None: not yours
    value_usd: float = 0.0  # resale value of one that you have
    network_exists: bool = False  # you already have its network

    @property
    def load_watts(self) -> float:
        """The power of one machine under load, whoever pays for it."""
        return self.watts or self.gpu.server_watts(self.gpus)

    @property
    def price_date(self) -> datetime.date | None:
        """The date of the oldest part of the price."""
        return min(self.price_dates, default=None)

    def network_options(self, plan: Plan) -> tuple[NetworkOption, ...]:
        """Return the networks that can connect several of them; catalog machines include their cards."""
        if self.included_network is not None:
            return (NetworkOption(self.included_network, cards_included=not self.from_plan),)
        if self.from_plan or (self.buy_usd is None and self.owned is None):
            return ()
        return tuple(NetworkOption(Network(link=link)) for link in plan.search.networks)


def list_servers(plan: Plan) -> list[PricedServer]:
    """List every server, before any filter of the plan applies."""
    servers = [
        *(_from_owned(machines, plan) for machines in plan.owned),
        *(_from_plan_offer(offer) for offer in plan.offers),
        *_list_instances(),
        *_list_products(plan),
        *_list_builds(plan),
    ]
    cap = plan.search.power_cap
    return servers if cap is None else [_cap_power(server, cap) for server in servers]


def _cap_power(server: PricedServer, watts: float) -> PricedServer:
    """Return the server with less power; a cloud pays for its own, so that is unknown here."""
    saved = server.gpus * max(0.0, server.gpu.board_watts - watts)
    return replace(server, watts=max(0.0, server.watts - saved) if server.watts else 0.0)


def _from_plan_offer(offer: OwnOffer) -> PricedServer:
    gpu = gpus().get(offer.gpu)
    check_topology(offer.topology, gpu, offer.gpus)
    watts = gpu.server_watts(offer.gpus)
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
        included_network=offer.network,
        from_plan=True,
    )


def _from_owned(owned: OwnedMachines, plan: Plan) -> PricedServer:
    """Describe machines that you already have, at their resale value."""
    machine = machines().get(owned.machine) if owned.machine is not None else None
    gpu = gpus().get(machine.gpu if machine else owned.gpu or "")
    count = machine.gpus if machine else owned.gpus
    topology = machine.topology if machine else owned.topology
    check_topology(topology, gpu, count)
    watts = owned.power or (machine.max_watts if machine else None)
    name = owned.name or f"your {machine.name if machine else f'machine with {count} × {gpu.name}'}"
    value, source = _estimate_value(owned, plan)
    return PricedServer(
        id=name,
        name=name,
        gpu=gpu,
        gpus=count,
        topology=topology,
        watts=watts or gpu.server_watts(count),
        price_dates=(),
        price_source=source,
        included_network=owned.network or (_machine_network(machine) if machine else None),
        owned=owned.count,
        value_usd=value,
        network_exists=owned.network is not None,
    )


def _estimate_value(owned: OwnedMachines, plan: Plan) -> tuple[float, str]:
    """Estimate the resale value of one machine, and describe its source."""
    years = _age_years(owned)
    age = "" if years is None else f", {units.format_years(years)} old"
    if owned.value is not None:
        return owned.value, f"resale value from the plan{age}"
    if owned.price is None:
        return 0.0, f"no resale value given: counted as $0{age}"
    kept_share = plan.owning.value_kept_per_year
    source = f"{100 * kept_share:.0f}% of ${owned.price:,.0f} kept per year{age}"
    return owned.price * kept_share ** (years or 0.0), source


def _age_years(owned: OwnedMachines) -> float | None:
    if owned.bought is None:
        return None if owned.age is None else owned.age / (365.25 * 86400)
    days = (datetime.datetime.now(datetime.UTC).date() - owned.bought).days
    if days < 0:
        raise UserMistake(f"owned: 'bought' is {owned.bought}, which is in the future")
    return days / 365.25


def _list_instances() -> Iterator[PricedServer]:
    """List instances whose GPU is in the catalog and whose price covers the whole machine."""
    for price in prices():
        if price.gpu is None or price.note.startswith(_GPU_ONLY):
            continue
        gpu = gpus().get(price.gpu)
        machine = find_instance_machine(price)
        listed = find_instance_network(price)
        network = listed.network if listed else _machine_network(machine) if machine else None
        yield PricedServer(
            id=price.id,
            name=price.title,
            gpu=gpu,
            gpus=price.gpus,
            topology=machine.topology if machine else choose_topology(gpu, price.gpus),
            watts=0.0,  # paid by the cloud
            price_dates=(price.date,),
            price_source=price.source,
            cloud=price.cloud,
            rent_usd_per_hour=price.usd_per_hour,
            spot_usd_per_hour=price.spot_usd_per_hour,
            spot_interruptions_per_hour=1 / find_spot_interruptions(price).hours,
            included_network=network or ASSUMED_NETWORK,
            network_assumed=network is None,
        )


def count_unusable_prices() -> dict[str, int]:
    """Count the rows of the price list that no plan can use, by reason."""
    rows = list(prices())
    return {
        "its GPU is not in the catalog": sum(row.gpu is None for row in rows),
        "its price covers the GPU only": sum(
            row.gpu is not None and row.note.startswith(_GPU_ONLY) for row in rows
        ),
    }


def _machine_network(machine: Machine) -> Network | None:
    return Network(link=machine.nic_link, rails=machine.nics or 1) if machine.nic_link else None


def _list_products(plan: Plan) -> Iterator[PricedServer]:
    """List machines that have a list price or a quote in the plan."""
    quotes = {quote.machine: quote.price for quote in plan.prices.servers}
    for machine in machines():
        price = quotes.get(machine.id, machine.price_usd)
        if price is None:
            continue
        gpu = gpus().get(machine.gpu)
        watts = gpu.server_watts(machine.gpus)
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
            included_network=_machine_network(machine),
        )


def _list_builds(plan: Plan) -> Iterator[PricedServer]:
    """List every GPU with a price in every chassis that it fits, as an estimate from parts."""
    plan_prices = {price.gpu: price.price for price in plan.prices.gpus}
    for gpu in gpus():
        if gpu.id in plan_prices:
            quoted = plan_prices[gpu.id]
            price = _GpuPrice(quoted, quoted, quoted, "from the plan", ())
        elif gpu.id in gpu_prices():
            row = gpu_prices().get(gpu.id)
            source = f"{row.basis} price of {row.date}, range ${row.price_range}"
            price = _GpuPrice(row.usd, row.usd_low, row.usd_high, source, (row.date,))
        else:
            continue
        for box in chassis():
            if fits_chassis(gpu, box):
                yield from _fill_chassis(gpu, box, price)


class _GpuPrice(NamedTuple):
    usd: float
    usd_low: float
    usd_high: float
    source: str
    dates: tuple[datetime.date, ...]  # empty if the plan gives the price


def _fill_chassis(gpu: Gpu, box: Chassis, price: _GpuPrice) -> Iterator[PricedServer]:
    for count in box.gpus:
        topology = box.topology if "PCIe" in box.forms else choose_topology(gpu, count)
        yield PricedServer(
            id=format_build_id(gpu, count, box),
            name=f"{box.name} with {count} × {gpu.name}",
            gpu=gpu,
            gpus=count,
            topology=topology,
            watts=count * gpu.board_watts + box.watts,
            price_dates=(box.date, *price.dates),
            price_source=f"estimate: {count} GPUs at ${price.usd:,.0f} ({price.source}) and the machine around "
            f"them at ${box.usd:,.0f} (price of {box.date}, range ${box.price_range}: {box.source})",
            buy_usd=count * price.usd + box.usd,
            buy_usd_low=count * price.usd_low + box.usd_low,
            buy_usd_high=count * price.usd_high + box.usd_high,
            estimate=True,
        )
