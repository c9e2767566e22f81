"""The networks of a room: between machines, to the storage and for management, and their switches as
devices."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gpuyard.catalog import links, machines
from gpuyard.errors import GpuyardError
from gpuyard.facility.device import RackDevice
from gpuyard.facility.fabric import (
    FabricDesign,
    HostPorts,
    TypicalFloor,
    cheapest_fabric,
    management_network,
)
from gpuyard.facility.network.devices import TIERS, storage_device, switch_devices
from gpuyard.facility.network.storage_attachment import (
    StorageAttachment,
    attach_storage,
    between_hosts,
)
from gpuyard.specs import Cluster

Members = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class RoomNetwork:
    """Each is None where there is none: one machine alone needs no network. Hosts are the machines, and
    after them the storage servers, from 0."""

    compute: FabricDesign | None = None
    storage: FabricDesign | None = None
    management: FabricDesign | None = None
    management_ports: int = 0
    """Of each host; a switch has one."""
    storage_attachment: StorageAttachment | None = None
    devices: tuple[tuple[RackDevice, int], ...] = ()
    storage_hosts: tuple[int, ...] = field(default=(), repr=False)
    """The host of each port of the storage network."""
    served: dict[str, Members] = field(default_factory=dict, repr=False)
    """The hosts that each leaf serves, by the leaf's kind."""

    @property
    def assumed(self) -> tuple[str, ...]:
        return self.storage_attachment.assumed if self.storage_attachment is not None else ()

    @property
    def fabrics(self) -> dict[str, FabricDesign]:
        """Those that there are, by what they are for."""
        named = {
            "machines": self.compute,
            "storage": self.storage,
            "management": self.management,
        }
        return {name: fabric for name, fabric in named.items() if fabric is not None}

    def hosts_of_leaf(self, kind: str, leaf: int) -> Sequence[int]:
        return self.served[kind][leaf] if kind in self.served else ()

    def ports_for_management(self, device: RackDevice) -> int:
        """The management network's own switches are managed over their links."""
        if self.management is None or device.kind in TIERS["management"]:
            return 0
        return 1 if device.is_switch else self.management_ports


def network_for(
    cluster: Cluster,
    nodes_per_rack: int,
    per_row: int,
    *,
    office: bool = False,
    redundant: bool = False,
) -> RoomNetwork:
    """The cheapest fabrics of the catalog for the cluster's networks, on two feeds where they are to be
    redundant. Storage servers that the cluster does not name are assumed, but not in an office."""
    nodes = cluster.nodes
    between = machine_ports(cluster) if nodes > 1 else None
    single = between is not None and (between.kind, between.ports) == ("ethernet", 1)
    attached = attach_storage(
        cluster, between.gbit_per_second if between and single else None, assume=not office
    )
    if between is None and attached is None:
        return RoomNetwork()
    floor = TypicalFloor(nodes_per_rack=nodes_per_rack, racks_per_row=per_row)
    devices: list[tuple[RackDevice, int]] = []
    served: dict[str, Members] = {}
    compute = storage = None
    hosts: tuple[int, ...] = ()
    if between is not None:
        sharing = attached.servers if attached is not None and attached.shared else 0
        between = replace(between, redundant=redundant)
        compute = cheapest_fabric(between, nodes + sharing, floor)
        devices += switch_devices("machines", compute)
        served["leaf"] = _below(compute, None)
    if attached is not None:
        devices.append((storage_device(), attached.servers))
        if attached.ports is not None:
            hosts = attached.hosts(nodes)
            storage = cheapest_fabric(
                replace(attached.ports, redundant=redundant), len(hosts), floor
            )
            devices += switch_devices("storage", storage)
            served["storage leaf"] = _below(storage, hosts)
    management = None
    if cluster.management_ports:
        boxes = sum(count for device, count in devices if device.is_switch)
        every = nodes + (attached.servers if attached is not None else 0)
        management = management_network(
            every, boxes, floor, cluster.management_ports, redundant=redundant
        )
        devices += switch_devices("management", management)
    return RoomNetwork(
        compute=compute,
        storage=storage,
        management=management,
        management_ports=cluster.management_ports,
        storage_attachment=attached,
        devices=tuple(devices),
        storage_hosts=hosts,
        served=served,
    )


def _below(fabric: FabricDesign, hosts: Sequence[int] | None) -> Members:
    """The hosts of each leaf; without `hosts` the fabric's own machines."""
    below: list[set[int]] = [set() for _ in range(fabric.shape.leaves)]
    for node, _, leaf in fabric.wiring.endpoints:
        below[leaf].add(node if hosts is None else hosts[node])
    return tuple(tuple(sorted(members)) for members in below)


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
