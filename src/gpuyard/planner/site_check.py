"""What the site that a plan names can house: the room is designed as `gpuyard facility` does, for one machine of
each kind and for all machines of what would be recommended."""

import functools
from collections.abc import Iterable
from dataclasses import dataclass

from gpuyard.catalog import machines
from gpuyard.errors import GpuyardError
from gpuyard.facility.design import design_facility
from gpuyard.planner.costs import Housed, SiteLimit
from gpuyard.planner.offers import Offer
from gpuyard.planner.servers import PricedServer
from gpuyard.specs import Cluster, Network
from gpuyard.specs.cluster import MachineSpec, Storage
from gpuyard.specs.site import Site

# machines that don't train together still have to be reached
_PLAIN_NETWORK = Network(link="ethernet-1g")


@dataclass(frozen=True)
class SiteCheck:
    """Designs of rooms at one site."""

    site: Site

    def alone(self, servers: Iterable[PricedServer]) -> dict[Housed, SiteLimit]:
        """Those of which the site can't house a single one."""
        found: dict[Housed, SiteLimit] = {}
        for server in servers:
            why = self.refusal(server, 1, None)
            if why:
                found[server.id, None] = SiteLimit(0, why)
        return found

    def limit(self, offer: Offer, count: int) -> SiteLimit | None:
        """How many of these machines it can house, where that is fewer than so many; one fits."""
        why = self.refusal(offer.server, count, offer.network)
        if not why:
            return None
        fits, too_many = 1, count
        while too_many - fits > 1:
            middle = (fits + too_many) // 2
            refused = self.refusal(offer.server, middle, offer.network)
            fits, too_many, why = (fits, middle, refused) if refused else (middle, too_many, why)
        return SiteLimit(fits, f"{too_many} are too many: {why}")

    def refusal(self, server: PricedServer, count: int, network: Network | None) -> str:
        """Why so many of them can't stand there; nothing if they can."""
        return _refusal(self.site, server, count, network)


@functools.lru_cache(maxsize=4096)
def _refusal(site: Site, server: PricedServer, count: int, network: Network | None) -> str:
    known = server.id in machines()
    cluster = Cluster(
        name=server.name,
        nodes=count,
        machine=server.id
        if known
        else MachineSpec(gpu=server.gpu.id, gpus=server.gpus, topology=server.topology),
        network=(network or (None if known else _PLAIN_NETWORK)) if count > 1 else None,
        storage=Storage(servers=0),  # the plan buys none
    )
    try:
        design_facility(cluster, site)
    except GpuyardError as refused:
        return _in_one_line(str(refused))
    return ""


def _in_one_line(said: str) -> str:
    """Without what `gpuyard facility` says about its own files."""
    first, *rest = (line.strip() for line in said.splitlines())
    lines = rest or [first.partition(": ")[2] or first]
    return "; ".join(line.partition(". Try a site")[0] for line in lines)
