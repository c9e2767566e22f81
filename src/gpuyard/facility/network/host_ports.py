"""The ports that a cluster's machines bring to the network between them."""

from gpuyard.catalog import Link, links, machines
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.facility.fabric import HostPorts
from gpuyard.specs import Cluster


def machine_ports(cluster: Cluster) -> HostPorts:
    """From the cluster's network, else from the cards that the catalog knows of its machine."""
    network = cluster.network
    if network is not None and network.rate is not None:
        gbit = network.rate * 8 / 1e9
        return HostPorts(gbit, "ethernet", network.rails, network.oversubscription)
    if network is not None and network.link is not None:
        link, ports = between_hosts(links().get(network.link), "network.link"), network.rails
    else:
        machine = machines().get(str(cluster.machine))
        if machine.nic_link is None:
            raise GpuyardError(
                f"{machine.name} has no network card in the catalog; give the cluster a 'network'"
            )
        link, ports = links().get(machine.nic_link), machine.nics
    oversubscription = network.oversubscription if network else 1.0
    return HostPorts(link.raw_bytes_per_second * 8 / 1e9, link.kind, ports, oversubscription)


def between_hosts(link: Link, key: str) -> Link:
    """The link, if it can leave a machine."""
    if link.kind not in {"ethernet", "infiniband"}:
        raise UserMistake(
            f"{key}: {link.id} is inside a machine; between machines there is ethernet or infiniband"
        )
    return link
