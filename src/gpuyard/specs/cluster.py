"""A cluster: machines, the fabric between them, and the storage that feeds them."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, PrivateAttr, Tag, model_validator

from gpuyard.choices import Topology
from gpuyard.specs.base import (
    BytesPerSecond,
    GpuName,
    LinkName,
    MachineName,
    Name,
    ShortDuration,
    Spec,
    Watts,
)

Protocol = Literal["tcp", "rdma"]


class MachineSpec(Spec):
    """A machine: its GPUs, how many it has, and how they are connected."""

    gpu: Annotated[GpuName, Field(description="catalog GPU")]
    gpus: Annotated[
        int,
        Field(
            gt=0,
            le=72,
            description="number of GPUs in one machine, or in one NVLink domain: 1 to 72",
        ),
    ]
    topology: Annotated[Topology, Field(description="how the GPUs are connected")] = "workstation"
    socket_link: Annotated[
        LinkName | None,
        Field(
            description="catalog link between the CPUs, like `upi-16`; default: the usual one when the GPU was "
            "released"
        ),
    ] = None
    cores: Annotated[
        int | None,
        Field(
            gt=0,
            le=4096,
            description="number of CPU cores per machine, which its input workers share; default: no limit",
        ),
    ] = None
    peer_to_peer: Annotated[
        bool,
        Field(
            description="whether GPUs can access each other's memory; `false` for `NCCL_P2P_DISABLE=1` and in "
            "many virtual machines and containers, so that transfers go through host memory, and "
            "not over NVLink"
        ),
    ] = True


class Network(Spec):
    """The fabric between machines, as a catalog link or a rate."""

    link: Annotated[LinkName | None, Field(description="catalog link; either this or `rate`")] = (
        None
    )
    rate: Annotated[
        BytesPerSecond | None, Field(description="rate of one port in one direction")
    ] = None
    latency: Annotated[
        ShortDuration | None,
        Field(description="latency of one hop; default: that of the link or protocol"),
    ] = None
    rails: Annotated[
        int, Field(gt=0, le=1000, description="number of ports of this link per machine")
    ] = 1
    protocol: Annotated[
        Protocol | None, Field(description="protocol; default: the link's; `tcp` for a rate")
    ] = None
    per_flow: Annotated[
        BytesPerSecond | None, Field(description="limit per TCP flow, as in public clouds")
    ] = None
    flows: Annotated[
        int, Field(gt=0, le=1_000_000, description="number of flows between two machines")
    ] = 1
    oversubscription: Annotated[
        float,
        Field(
            ge=1, le=1000, description="ratio of the ports' bandwidth to the fabric's, 1 or more"
        ),
    ] = 1.0

    @model_validator(mode="after")
    def _check_link_or_rate(self) -> "Network":
        if (self.link is None) == (self.rate is None):
            raise ValueError("a network needs either 'link' or 'rate'")
        return self


class Storage(Spec):
    """The storage of samples and checkpoints. `gpuyard facility` places its servers and network."""

    read: Annotated[
        BytesPerSecond | None,
        Field(description="read rate of all nodes together; default: no limit"),
    ] = None
    write: Annotated[
        BytesPerSecond | None,
        Field(description="write rate of all nodes together, for checkpoints; default: 'read'"),
    ] = None
    servers: Annotated[
        int | None,
        Field(
            ge=0,
            le=10_000,
            description="number of storage servers, for the room; `0`: drives in the machines; default: one per"
            " ten nodes; none for one node or in an office",
        ),
    ] = None
    link: Annotated[
        LinkName | None,
        Field(
            description="catalog link of a separate storage network, for the room; default: fast enough for `read`"
        ),
    ] = None
    ports: Annotated[
        int,
        Field(
            gt=0,
            le=16,
            description="number of ports per machine on the storage network, for the room",
        ),
    ] = 1


def get_reference_tag(value: Any) -> str:
    """Return which member of a union to validate, so that a mistake is reported once and not for both members."""
    return "named" if isinstance(value, str) else "described"


class Cluster(Spec):
    """Machines of one kind and the network between them."""

    name: Annotated[Name, Field(description="name in tables and reports")]
    nodes: Annotated[int, Field(gt=0, le=100_000, description="number of machines")] = 1
    machine: Annotated[
        Annotated[MachineSpec, Tag("described")] | Annotated[MachineName, Tag("named")],
        Discriminator(get_reference_tag),
        Field(description="name of a catalog machine, or the next keys"),
    ]
    network: Annotated[
        Network | None,
        Field(description="network between machines; required for more than one node"),
    ] = None
    nodes_per_rack: Annotated[
        int | None,
        Field(
            gt=0,
            le=1000,
            description="number of machines per switch; jobs stay in one rack if they fit, and there "
            "`network.oversubscription` does not apply; predictions of one configuration don't use "
            "it; default: one rack",
        ),
    ] = None
    storage: Annotated[
        Storage | None, Field(description="storage that samples are read from; default: no limit")
    ] = None
    power_cap: Annotated[
        Watts | None,
        Field(gt=0, description="power limit of each GPU, like `300 W`; default: its rated power"),
    ] = None
    management_ports: Annotated[
        int,
        Field(
            ge=0,
            le=8,
            description="number of ports per machine on the management network, for the room; `0`: no such "
            "network",
        ),
    ] = 2
    _note: str = PrivateAttr("")

    @property
    def note(self) -> str:
        """A sentence about what a short form left open and gpuyard chose; empty for a cluster file."""
        return self._note

    def copy_with_note(self, note: str) -> "Cluster":
        """Return a copy with this note."""
        copy = self.model_copy()
        copy._note = note
        return copy

    @model_validator(mode="after")
    def _check_network(self) -> "Cluster":
        # a catalog machine comes with network cards
        if self.nodes > 1 and self.network is None and not isinstance(self.machine, str):
            raise ValueError("a cluster of more than one node needs a 'network'")
        return self
