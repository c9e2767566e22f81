"""How storage hangs on a room's machines: how many servers, on which network, with which ports."""

from dataclasses import dataclass

from gpuyard.catalog import Link, gpus, links, machines
from gpuyard.catalog.fabric import storage_needs, switches
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.facility.fabric import HostPorts, default_storage_servers
from gpuyard.specs import Cluster, Storage

SERVER_PORTS = 2
"""Of a storage server on a network of its own."""
_ASSUMED_NEED = "resnet50-h100"


@dataclass(frozen=True)
class StorageAttachment:
    """`ports` are those of the storage network; None where the servers share the network between
    machines, with a port each."""

    servers: int
    machine_ports: int
    ports: HostPorts | None
    assumed: tuple[str, ...] = ()
    servers_assumed: bool = False

    @property
    def shared(self) -> bool:
        return self.ports is None

    def hosts(self, nodes: int) -> tuple[int, ...]:
        """Whose each port is: machines are counted first, then storage servers."""
        owners = [node for node in range(nodes) for _ in range(self.machine_ports)]
        owners += [nodes + server for server in range(self.servers) for _ in range(SERVER_PORTS)]
        return tuple(owners)


def attach_storage(
    cluster: Cluster, ethernet_gbit: float | None, *, assume: bool
) -> StorageAttachment | None:
    """None without storage servers. Where each machine has one port of Ethernet to the others, that is
    `ethernet_gbit`, and storage shares it while it carries the reads."""
    spec = cluster.storage or Storage()
    servers, assumed = spec.servers, []
    guessed = servers is None
    if servers is None:
        servers = default_storage_servers(cluster.nodes) if assume and cluster.nodes > 1 else 0
        if servers:
            assumed.append(
                f"{servers} storage server{'s' if servers > 1 else ''}, one for every ten machines"
                " (set 'storage: servers' in the cluster file)"
            )
    if not servers:
        return None
    if spec.link is not None:
        link = between_hosts(links().get(spec.link), "storage.link")
        gbit = link.raw_bytes_per_second * 8 / 1e9
        _check(spec, cluster.nodes, servers, gbit, link)
        return StorageAttachment(
            servers, spec.ports, HostPorts(gbit, link.kind), tuple(assumed), guessed
        )
    if ethernet_gbit is not None and (
        spec.read is None or spec.read * 8e-9 <= min(cluster.nodes, servers) * ethernet_gbit
    ):
        assumed.append(
            "storage shares the network between machines (set 'storage: link' in the cluster file)"
        )
        return StorageAttachment(servers, 1, None, tuple(assumed), guessed)
    read = spec.read
    if read is None:
        read, why = _assumed_read(cluster)
        assumed.append(why)
    gbit = _slowest_enough(spec, cluster.nodes, servers, read)
    return StorageAttachment(
        servers, spec.ports, HostPorts(gbit, "ethernet"), tuple(assumed), guessed
    )


def _gbit_of_a_port(spec: Storage, nodes: int, servers: int, read: float) -> tuple[float, float]:
    """(machine's, server's) share of the reads on one of its ports."""
    return read * 8e-9 / (nodes * spec.ports), read * 8e-9 / (servers * SERVER_PORTS)


def _slowest_enough(spec: Storage, nodes: int, servers: int, read: float) -> float:
    machine, server = _gbit_of_a_port(spec, nodes, servers, read)
    sold = sorted(
        {
            s.port_gbit_per_second
            for s in switches()
            if s.kind == "ethernet" and not s.discontinued and not s.small
        }
    )
    for gbit in sold:
        if gbit >= max(machine, server):
            return gbit
    who, need = ("a machine", machine) if machine > server else ("a storage server", server)
    raise GpuyardError(
        f"to read {read / 1e9:,.0f} GB/s, each port of {who} must carry {need:,.0f} Gbit/s, and the"
        f" fastest Ethernet of the catalog has {sold[-1]:,.0f}: {need - sold[-1]:,.0f} Gbit/s short;"
        f" give more {'ports' if machine > server else 'servers'} in 'storage'"
    )


def _check(spec: Storage, nodes: int, servers: int, gbit: float, link: Link) -> None:
    """A link that the file names must carry the reads that the file names."""
    if spec.read is None:
        return
    have = min(nodes * spec.ports, servers * SERVER_PORTS) * gbit / 8
    if have * 1e9 < spec.read:
        raise GpuyardError(
            f"{nodes * spec.ports} ports of machines and {servers * SERVER_PORTS} of storage servers on"
            f" {link.id} read {have:,.1f} GB/s, and 'storage: read' is {spec.read / 1e9:,.1f} GB/s:"
            f" {spec.read / 1e9 - have:,.1f} GB/s short"
        )


def _assumed_read(cluster: Cluster) -> tuple[float, str]:
    each = storage_needs().get(_ASSUMED_NEED)
    if isinstance(cluster.machine, str):
        count = machines().get(cluster.machine).gpus
    else:
        count = cluster.machine.gpus
    read = cluster.nodes * count * each.read_bytes_per_second
    gpu = gpus().get(each.gpu).name
    return read, (
        f"reads of {each.read_bytes_per_second / 1e6:.0f} MB/s per GPU, {each.model} on {gpu} in MLPerf"
        f" Storage ({each.date}); set 'storage: read' in the cluster file"
    )


def between_hosts(link: Link, key: str) -> Link:
    """The link, if it can leave a machine."""
    if link.kind not in {"ethernet", "infiniband"}:
        raise UserMistake(
            f"{key}: {link.id} is inside a machine; between machines there is ethernet or infiniband"
        )
    return link
