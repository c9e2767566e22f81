"""Check which machines a plan's site can house.

The room is designed as in `gpuyard facility`, for one machine of each kind and for all machines of each recommendation.
"""

import functools
from collections.abc import Iterable
from dataclasses import dataclass

from gpuyard.catalog import machines
from gpuyard.errors import GpuyardError
from gpuyard.facilities.design import design_facility
from gpuyard.planner.costs import HousingKey, SiteLimit
from gpuyard.planner.offers import Offer
from gpuyard.planner.servers import PricedServer
from gpuyard.specs import Cluster, Network
from gpuyard.specs.cluster import MachineSpec, Storage
from gpuyard.specs.site import Site

# machines that don't train together still need a connection
_PLAIN_NETWORK = Network(link="ethernet-1g")


@dataclass(frozen=True)
class SiteCheck:
    """Room designs at one site."""

    site: Site
    power_cap: float | None = None

    def find_unhousable(self, servers: Iterable[PricedServer]) -> dict[HousingKey, SiteLimit]:
        """Return the limits of servers of which the site cannot house even one."""
        limits: dict[HousingKey, SiteLimit] = {}
        for server in servers:
            why = _find_refusal(self.site, server, 1, None, self.power_cap)
            if why:
                limits[server.id, None] = SiteLimit(0, why)
        return limits

    def find_limit(self, offer: Offer, count: int) -> SiteLimit | None:
        """Return how many of these machines fit, or None if `count` fits; one is known to fit."""
        why = self._refuse(offer, count)
        if not why:
            return None
        fits, too_many = 1, count
        while too_many - fits > 1:
            middle = (fits + too_many) // 2
            refusal = self._refuse(offer, middle)
            fits, too_many, why = (fits, middle, refusal) if refusal else (middle, too_many, why)
        return SiteLimit(fits, f"{too_many} are too many: {why}")

    def _refuse(self, offer: Offer, count: int) -> str:
        return _find_refusal(self.site, offer.server, count, offer.network, self.power_cap)


@functools.lru_cache(maxsize=4096)
def _find_refusal(
    site: Site,
    server: PricedServer,
    count: int,
    network: Network | None,
    power_cap: float | None,
) -> str:
    """Explain why the site cannot house this many machines; empty if it can."""
    in_catalog = server.id in machines()
    cluster = Cluster(
        name=server.name,
        nodes=count,
        machine=server.id
        if in_catalog
        else MachineSpec(gpu=server.gpu.id, gpus=server.gpus, topology=server.topology),
        network=(network or (None if in_catalog else _PLAIN_NETWORK)) if count > 1 else None,
        storage=Storage(servers=0),  # the plan buys none
        power_cap=power_cap,
    )
    try:
        design_facility(cluster, site)
    except GpuyardError as error:
        return _condense_error(str(error))
    return ""


def _condense_error(message: str) -> str:
    """Shorten an error of `gpuyard facility` to one line without advice about its own files."""
    first, *rest = (line.strip() for line in message.splitlines())
    lines = rest or [first.partition(": ")[2] or first]
    return "; ".join(line.partition(". Try a site")[0] for line in lines)
