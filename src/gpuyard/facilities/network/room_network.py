"""The networks of a room, between machines, to the storage, and for management, with their switches as devices."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gpuyard.catalog import links, machines
from gpuyard.errors import GpuyardError
from gpuyard.facilities.device import RackDevice
from gpuyard.facilities.fabric import (
    FabricDesign,
    HostPorts,
    TypicalFloor,
    design_management_network,
    find_cheapest_fabric,
)
from gpuyard.facilities.network.devices import TIERS, build_storage_device, build_switch_devices
from gpuyard.facilities.network.storage_attachment import (
    StorageAttachment,
    attach_storage,
    check_host_link,
)
from gpuyard.specs import Cluster

LeafHosts = tuple[tuple[int, ...], ...]
"""The hosts that each leaf serves."""


@dataclass(frozen=True)
class RoomNetwork:
    """The networks of a room; None for a network that the room does not need.

    Hosts are numbered from 0: first the machines, then the storage servers.
    """

    compute: FabricDesign | None = None
    storage: FabricDesign | None = None
    management: FabricDesign | None = None
    management_ports: int = 0
    """The management ports of each host; a switch has one."""
    storage_attachment: StorageAttachment | None = None
    devices: tuple[tuple[RackDevice, int], ...] = ()
    storage_port_hosts: tuple[int, ...] = field(default=(), repr=False)
    """The host of each port on the storage network."""
    leaf_hosts: dict[str, LeafHosts] = field(default_factory=dict, repr=False)
    """The hosts of each leaf, by the leaf's kind."""

    @property
    def assumptions(self) -> tuple[str, ...]:
        return self.storage_attachment.assumptions if self.storage_attachment is not None else ()

    @property
    def fabrics(self) -> dict[str, FabricDesign]:
        """The existing networks by name."""
        named = {
            "machines": self.compute,
            "storage": self.storage,
            "management": self.management,
        }
        return {name: fabric for name, fabric in named.items() if fabric is not None}

    def get_leaf_hosts(self, kind: str, leaf: int) -> Sequence[int]:
        return self.leaf_hosts[kind][leaf] if kind in self.leaf_hosts else ()

    def count_management_ports(self, device: RackDevice) -> int:
        """Return a device's management ports; management switches are managed over their own links."""
        if self.management is None or device.kind in TIERS["management"]:
            return 0
        return 1 if device.is_switch else self.management_ports


def design_networks(
    cluster: Cluster,
    nodes_per_rack: int,
    per_row: int,
    *,
    office: bool = False,
    redundant: bool = False,
) -> RoomNetwork:
    """Design the cheapest fabrics in the catalog for the cluster's networks.

    `redundant` requires switches that two feeds can power. If the cluster file does not set the number of
    storage servers, some are assumed, except in an office.
    """
    nodes = cluster.nodes
    machine_ports = find_machine_ports(cluster) if nodes > 1 else None
    ethernet_gbit = None
    if machine_ports and (machine_ports.kind, machine_ports.ports) == ("ethernet", 1):
        ethernet_gbit = machine_ports.gbit_per_second
    attachment = attach_storage(cluster, ethernet_gbit, assume=not office)
    if machine_ports is None and attachment is None:
        return RoomNetwork()
    floor = TypicalFloor(nodes_per_rack=nodes_per_rack, racks_per_row=per_row)
    devices: list[tuple[RackDevice, int]] = []
    leaf_hosts: dict[str, LeafHosts] = {}
    compute = storage = None
    storage_port_hosts: tuple[int, ...] = ()
    if machine_ports is not None:
        sharing = attachment.servers if attachment is not None and attachment.shared else 0
        machine_ports = replace(machine_ports, redundant=redundant)
        compute = find_cheapest_fabric(machine_ports, nodes + sharing, floor)
        devices += build_switch_devices("machines", compute)
        leaf_hosts["leaf"] = _list_leaf_hosts(compute, range(nodes + sharing))
    if attachment is not None:
        devices.append((build_storage_device(), attachment.servers))
        if attachment.ports is not None:
            storage_port_hosts = attachment.list_port_hosts(nodes)
            storage_ports = replace(attachment.ports, redundant=redundant)
            storage = find_cheapest_fabric(storage_ports, len(storage_port_hosts), floor)
            devices += build_switch_devices("storage", storage)
            leaf_hosts["storage leaf"] = _list_leaf_hosts(storage, storage_port_hosts)
    management = None
    if cluster.management_ports:
        switch_count = sum(count for device, count in devices if device.is_switch)
        hosts = nodes + (attachment.servers if attachment is not None else 0)
        management = design_management_network(
            hosts, switch_count, floor, cluster.management_ports, redundant=redundant
        )
        devices += build_switch_devices("management", management)
    return RoomNetwork(
        compute=compute,
        storage=storage,
        management=management,
        management_ports=cluster.management_ports,
        storage_attachment=attachment,
        devices=tuple(devices),
        storage_port_hosts=storage_port_hosts,
        leaf_hosts=leaf_hosts,
    )


def _list_leaf_hosts(fabric: FabricDesign, hosts: Sequence[int]) -> LeafHosts:
    """Return the hosts of each leaf; `hosts` maps the fabric's nodes to hosts."""
    by_leaf: list[set[int]] = [set() for _ in range(fabric.shape.leaves)]
    for node, _, leaf in fabric.wiring.endpoints:
        by_leaf[leaf].add(hosts[node])
    return tuple(tuple(sorted(members)) for members in by_leaf)


def find_machine_ports(cluster: Cluster) -> HostPorts:
    """Return the ports of each machine, from the cluster's network or from the machine's cards in the catalog."""
    network = cluster.network
    if network is not None and network.rate is not None:
        gbit = network.rate * 8 / 1e9
        return HostPorts(gbit, "ethernet", network.rails, network.oversubscription)
    if network is not None and network.link is not None:
        link, ports = check_host_link(links().get(network.link), "network.link"), network.rails
    else:
        machine = machines().get(str(cluster.machine))
        if machine.nic_link is None:
            raise GpuyardError(
                f"{machine.name} has no network card in the catalog; set 'network' in the cluster file"
            )
        link, ports = links().get(machine.nic_link), machine.nics
    oversubscription = network.oversubscription if network else 1.0
    return HostPorts(link.raw_bytes_per_second * 8 / 1e9, link.kind, ports, oversubscription)
