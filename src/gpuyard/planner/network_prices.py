"""What joining bought machines costs: the network that `gpuyard facility fabric` would design for them."""

import functools
from dataclasses import dataclass

from gpuyard.catalog import links
from gpuyard.catalog.fabric import PRICES_OF
from gpuyard.errors import GpuyardError
from gpuyard.facility.fabric import HostPorts, TypicalFloor, bill_of, cheapest_fabric
from gpuyard.specs import Network


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
