"""Decide how storage is attached to a room's machines: how many servers, on which network, with which ports."""

from dataclasses import dataclass

from gpuyard.catalog import Link, gpus, links, machines
from gpuyard.catalog.fabric import storage_needs, switches
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.facilities.fabric import HostPorts, estimate_storage_servers
from gpuyard.specs import Cluster, Storage

SERVER_PORTS = 2
"""The ports of a storage server on a separate storage network."""
_ASSUMED_NEED = "resnet50-h100"


@dataclass(frozen=True)
class StorageAttachment:
    """The storage servers and their network.

    `ports` are the ports of a separate storage network. They are None if the servers share the network between
    machines, with one port each.
    """

    servers: int
    machine_ports: int
    ports: HostPorts | None
    assumptions: tuple[str, ...] = ()
    servers_assumed: bool = False

    @property
    def shared(self) -> bool:
        return self.ports is None

    def list_port_hosts(self, nodes: int) -> tuple[int, ...]:
        """Return the host of each port. Machines are numbered first, then storage servers."""
        hosts = [node for node in range(nodes) for _ in range(self.machine_ports)]
        hosts += [nodes + server for server in range(self.servers) for _ in range(SERVER_PORTS)]
        return tuple(hosts)


def attach_storage(
    cluster: Cluster, ethernet_gbit: float | None, *, assume: bool
) -> StorageAttachment | None:
    """Attach storage servers, or return None if there are none.

    `ethernet_gbit` is the rate of each machine's single Ethernet port to the other machines, or None. Storage
    shares that network if it carries the reads.
    """
    spec = cluster.storage or Storage()
    servers, assumptions = spec.servers, []
    servers_assumed = servers is None
    if servers is None:
        servers = estimate_storage_servers(cluster.nodes) if assume and cluster.nodes > 1 else 0
        if servers:
            assumptions.append(
                f"{servers} storage server{'s' if servers > 1 else ''}, one for every ten machines"
                " (set 'storage: servers' in the cluster file)"
            )
    if not servers:
        return None
    if spec.link is not None:
        link = check_host_link(links().get(spec.link), "storage.link")
        gbit = link.raw_bytes_per_second * 8 / 1e9
        _check_reads(spec, cluster.nodes, servers, gbit, link)
        return StorageAttachment(
            servers, spec.ports, HostPorts(gbit, link.kind), tuple(assumptions), servers_assumed
        )
    if ethernet_gbit is not None and (
        spec.read is None or spec.read * 8e-9 <= min(cluster.nodes, servers) * ethernet_gbit
    ):
        assumptions.append(
            "storage shares the network between machines (set 'storage: link' in the cluster file)"
        )
        return StorageAttachment(servers, 1, None, tuple(assumptions), servers_assumed)
    read = spec.read
    if read is None:
        read, assumption = _assume_read(cluster)
        assumptions.append(assumption)
    gbit = _find_slowest_ethernet(spec, cluster.nodes, servers, read)
    return StorageAttachment(
        servers, spec.ports, HostPorts(gbit, "ethernet"), tuple(assumptions), servers_assumed
    )


def _find_slowest_ethernet(spec: Storage, nodes: int, servers: int, read: float) -> float:
    """Return the lowest port rate that carries the reads on both sides, the machines and the servers."""
    machine_gbit = read * 8e-9 / (nodes * spec.ports)
    server_gbit = read * 8e-9 / (servers * SERVER_PORTS)
    rates = sorted(
        {
            s.port_gbit_per_second
            for s in switches()
            if s.kind == "ethernet" and not s.discontinued and not s.small
        }
    )
    need = max(machine_gbit, server_gbit)
    for gbit in rates:
        if gbit >= need:
            return gbit
    host, fix = ("a storage server", "servers")
    if machine_gbit > server_gbit:
        host, fix = ("a machine", "ports")
    raise GpuyardError(
        f"to read {read / 1e9:,.0f} GB/s, each port of {host} must carry {need:,.0f} Gbit/s, but the"
        f" fastest Ethernet in the catalog has {rates[-1]:,.0f}: {need - rates[-1]:,.0f} Gbit/s short;"
        f" set more '{fix}' in 'storage'"
    )


def _check_reads(spec: Storage, nodes: int, servers: int, gbit: float, link: Link) -> None:
    """Raise GpuyardError if the link in the file cannot carry the reads in the file."""
    if spec.read is None:
        return
    gbytes = min(nodes * spec.ports, servers * SERVER_PORTS) * gbit / 8
    if gbytes * 1e9 < spec.read:
        raise GpuyardError(
            f"{nodes * spec.ports} ports of machines and {servers * SERVER_PORTS} of storage servers on"
            f" {link.id} read {gbytes:,.1f} GB/s, but 'storage: read' is {spec.read / 1e9:,.1f} GB/s:"
            f" {spec.read / 1e9 - gbytes:,.1f} GB/s short"
        )


def _assume_read(cluster: Cluster) -> tuple[float, str]:
    need = storage_needs().get(_ASSUMED_NEED)
    if isinstance(cluster.machine, str):
        count = machines().get(cluster.machine).gpus
    else:
        count = cluster.machine.gpus
    read = cluster.nodes * count * need.read_bytes_per_second
    gpu = gpus().get(need.gpu).name
    return read, (
        f"reads of {need.read_bytes_per_second / 1e6:.0f} MB/s per GPU, as {need.model} on {gpu} in MLPerf"
        f" Storage ({need.date}); set 'storage: read' in the cluster file"
    )


def check_host_link(link: Link, key: str) -> Link:
    """Return the link, or raise UserMistake if it cannot leave a machine."""
    if link.kind not in {"ethernet", "infiniband"}:
        raise UserMistake(
            f"{key}: {link.id} is inside a machine; between machines, use ethernet or infiniband"
        )
    return link
