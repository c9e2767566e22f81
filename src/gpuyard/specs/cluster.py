"""A cluster: machines, the fabric between them, and the storage that feeds them."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, PrivateAttr, Tag, model_validator

from gpuyard.specs.base import (
    BytesPerSecond,
    GpuName,
    LinkName,
    MachineName,
    Name,
    ShortDuration,
    Spec,
)

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
    """A machine: its GPUs, how many it has, and how they are connected."""

    gpu: GpuName
    gpus: Annotated[
        int, Field(gt=0, le=72, description="GPUs in one machine, or in one NVLink domain")
    ]
    topology: Topology = "workstation"
    socket_link: Annotated[
        LinkName | None,
        Field(
            description="link between the CPUs; default: the usual one when the GPU was released"
        ),
    ] = None
    cores: Annotated[
        int | None, Field(gt=0, le=4096, description="CPU cores per machine, for input workers")
    ] = None
    peer_to_peer: Annotated[
        bool,
        Field(
            description="false: GPUs cannot access each other's memory (NCCL_P2P_DISABLE=1, many virtual machines), "
            "so transfers go through host memory"
        ),
    ] = True


class Network(Spec):
    """The fabric between machines, as a catalog link or a rate."""

    link: LinkName | None = None
    rate: Annotated[
        BytesPerSecond | None, Field(description="rate of one port in one direction")
    ] = None
    latency: ShortDuration | None = None
    rails: Annotated[int, Field(gt=0, le=1000, description="ports of this link per machine")] = 1
    protocol: Protocol | None = None
    per_flow: Annotated[
        BytesPerSecond | None, Field(description="limit per TCP flow, as in public clouds")
    ] = None
    flows: Annotated[
        int, Field(gt=0, le=1_000_000, description="flows opened between two machines")
    ] = 1
    oversubscription: Annotated[float, Field(ge=1, le=1000)] = 1.0

    @model_validator(mode="after")
    def _check_link_or_rate(self) -> "Network":
        if (self.link is None) == (self.rate is None):
            raise ValueError("a network needs either 'link' or 'rate'")
        return self


class Storage(Spec):
    """The storage that all nodes read samples from. `gpuyard facility` places its servers and network."""

    read: Annotated[
        BytesPerSecond | None,
        Field(description="read rate of all nodes together; default: no limit"),
    ] = None
    servers: Annotated[
        int | None,
        Field(ge=0, le=10_000, description="storage servers; default: one per ten nodes"),
    ] = None
    link: Annotated[
        LinkName | None,
        Field(description="link of the storage network; default: fast enough for 'read'"),
    ] = None
    ports: Annotated[
        int, Field(gt=0, le=16, description="ports per machine on the storage network")
    ] = 1


def get_reference_tag(value: Any) -> str:
    """Return which member of a union to validate, so that a mistake is reported once and not for both members."""
    return "named" if isinstance(value, str) else "described"


class Cluster(Spec):
    """Machines of one kind and the network between them."""

    name: Name
    nodes: Annotated[int, Field(gt=0, le=100_000)] = 1
    machine: Annotated[
        Annotated[MachineSpec, Tag("described")] | Annotated[MachineName, Tag("named")],
        Discriminator(get_reference_tag),
        Field(description="catalog machine, or its GPUs and topology"),
    ]
    network: Network | None = None
    nodes_per_rack: Annotated[
        int | None,
        Field(
            gt=0,
            le=1000,
            description="machines per switch: jobs stay in one rack if they fit, and within a rack the network is not "
            "oversubscribed",
        ),
    ] = None
    storage: Storage | None = None
    management_ports: Annotated[
        int,
        Field(
            ge=0,
            le=8,
            description="ports per machine on the management network; 0: no such network",
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
