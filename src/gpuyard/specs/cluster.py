"""A cluster: machines, the fabric between them, and the storage that feeds them."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from gpuyard.specs.base import BytesPerSecond, GpuName, LinkName, MachineName, Moment, Name, Spec

Topology = Literal[
    "workstation",
    "dual-socket",
    "dual-root",
    "single-root",
    "cascaded",
    "nvlink-hybrid-cube-mesh",
    "nvlink-pairs",
    "nvswitch",
    "full-mesh",
    "torus",
    "consumer",
]
Protocol = Literal["tcp", "rdma"]


class MachineSpec(Spec):
    """One host: which GPUs, how many, and how they hang together."""

    gpu: GpuName
    gpus: Annotated[
        int, Field(gt=0, le=72, description="GPUs in one machine, or in one NVLink domain")
    ]
    topology: Topology = "workstation"
    socket_link: Annotated[
        LinkName | None,
        Field(description="between the CPUs; that of the GPU's years if left out"),
    ] = None
    cores: Annotated[
        int | None, Field(gt=0, le=4096, description="CPU cores of one machine, for input workers")
    ] = None
    peer_to_peer: Annotated[
        bool,
        Field(
            description="false: GPUs can't reach each other's memory (NCCL_P2P_DISABLE=1, many virtual machines), so "
            "that all goes through the host's"
        ),
    ] = True


class Network(Spec):
    """The fabric between machines: a catalog link, or a rate."""

    link: LinkName | None = None
    rate: Annotated[BytesPerSecond | None, Field(description="of one port, one direction")] = None
    latency: Moment | None = None
    rails: Annotated[int, Field(gt=0, le=1000, description="ports of this link a machine")] = 1
    protocol: Protocol | None = None
    per_flow: Annotated[
        BytesPerSecond | None, Field(description="cap on one TCP flow, as public clouds have")
    ] = None
    flows: Annotated[
        int, Field(gt=0, le=1_000_000, description="flows opened between two machines")
    ] = 1
    oversubscription: Annotated[float, Field(ge=1, le=1000)] = 1.0

    @model_validator(mode="after")
    def _one_of_both(self) -> "Network":
        if (self.link is None) == (self.rate is None):
            raise ValueError("a network has either 'link' or 'rate'")
        return self


class Storage(Spec):
    """Where the samples are read from; shared by all nodes. A room is designed with its servers and
    the network to them."""

    read: Annotated[
        BytesPerSecond | None, Field(description="of all nodes together; no limit if left out")
    ] = None
    servers: Annotated[
        int | None, Field(ge=0, le=10_000, description="one for ten nodes if left out; 0: none")
    ] = None
    link: Annotated[
        LinkName | None, Field(description="of the storage network; by 'read' if left out")
    ] = None
    ports: Annotated[int, Field(gt=0, le=16, description="of each machine on that network")] = 1


def named_or_described(value: Any) -> str:
    # told apart by hand, so that a mistake inside is reported once and not for both readings
    return "named" if isinstance(value, str) else "described"


class Cluster(Spec):
    """Machines of one kind and what joins them."""

    name: Name
    nodes: Annotated[int, Field(gt=0, le=100_000)] = 1
    machine: Annotated[
        Annotated[MachineSpec, Tag("described")] | Annotated[MachineName, Tag("named")],
        Discriminator(named_or_described),
        Field(description="a catalog machine, or its GPUs and topology"),
    ]
    network: Network | None = None
    nodes_per_rack: Annotated[
        int | None,
        Field(
            gt=0,
            le=1000,
            description="machines at one switch: jobs are kept in one rack where they can be, and there the network is "
            "not oversubscribed",
        ),
    ] = None
    storage: Storage | None = None
    management_ports: Annotated[
        int,
        Field(
            ge=0, le=8, description="of each machine on the management network; 0: there is none"
        ),
    ] = 2

    @model_validator(mode="after")
    def _network_between_nodes(self) -> "Cluster":
        # a named machine brings the network cards that the catalog knows
        if self.nodes > 1 and self.network is None and not isinstance(self.machine, str):
            raise ValueError("a cluster of more than one node needs a 'network'")
        return self
