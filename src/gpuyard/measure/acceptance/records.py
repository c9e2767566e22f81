"""The record of an acceptance run: what each node has and does, and what was found wrong."""

from typing import Annotated, Literal

from pydantic import Field

from gpuyard.measure.record import BenchRecord, RecordPart
from gpuyard.run.places.place import RunPlace

Phase = Literal["inventory", "alone", "pairs", "all", "training"]
Grade = Literal["pass", "warn", "fail"]
GpuSource = Literal["nvidia-smi", "slurm", "device nodes", "none"]
PHASES: tuple[Phase, ...] = ("inventory", "alone", "pairs", "all", "training")


class GpuFacts(RecordPart):
    """One GPU of a node. None: the source does not say it."""

    name: str | None = None
    memory_bytes: int | None = None
    lanes: int | None = None
    max_lanes: int | None = None
    max_generation: int | None = None
    max_clock_mhz: int | None = None
    nvlinks: int | None = None
    slowdowns: Annotated[
        tuple[str, ...], Field(description="reasons why the hardware lowers its clock")
    ] = ()
    uncorrected_errors: Annotated[
        int | None, Field(description="uncorrectable memory errors since the driver started")
    ] = None


class Disk(RecordPart):
    """A disk of a node."""

    name: str
    bytes: int


class Nic(RecordPart):
    """A network interface that is up."""

    name: str
    bits_per_second: float | None


class Inventory(RecordPart):
    """The parts and the software of one node, as the node itself reports them."""

    boot_id: Annotated[str, Field(description="the same for nodes that share a machine")] = ""
    cpu_model: str
    cores: int
    memory_bytes: int
    kernel: str
    os: str
    gpuyard: str
    torch: str
    driver: str | None = None
    gpus: tuple[GpuFacts, ...] = ()
    gpu_source: GpuSource = "none"
    torch_gpus: Annotated[
        tuple[str, ...], Field(description="names of the GPUs that torch can use")
    ] = ()
    disks: tuple[Disk, ...] = ()
    nics: tuple[Nic, ...] = ()
    virtual_machine: str | None = None
    iommu: str | None = None
    acs_bridges: Annotated[
        int | None, Field(description="PCIe bridges that send GPU-to-GPU traffic through the CPU")
    ] = None


class GemmWindow(RecordPart):
    """Matrix products on the node's cores for a fraction of a second."""

    flops_per_second: Annotated[float, Field(description="over the time that passed")]
    undisturbed_flops_per_second: Annotated[
        float,
        Field(
            description="over the CPU time that it got, less what a CPU quota took: the rate without other programs"
        ),
    ]
    other_share: Annotated[
        float | None, Field(description="share of the node's cores that other programs used")
    ] = None
    throttled_share: Annotated[
        float | None, Field(description="share of the time in which a CPU quota stopped it")
    ] = None
    quota_share: Annotated[float, Field(description="share of the cores that quotas leave")] = 1.0


class GpuRate(RecordPart):
    """The rate of matrix products on one GPU."""

    gpu: str
    flops_per_second: float


class GpuLinkRate(RecordPart):
    """The rate of one link of a node's GPUs, and the rate that its machine graph expects."""

    link: str
    bytes_per_second: float
    expected_bytes_per_second: float | None


class NodeSpeed(RecordPart):
    """One measurement of one node alone."""

    shared_machine: Annotated[
        bool, Field(description="other nodes use the same machine, so CPU time was counted")
    ] = False
    gemm: tuple[GemmWindow, ...]
    memory_bytes_per_second: float
    storage_write_bytes_per_second: float | None = None
    storage_read_bytes_per_second: float | None = None
    storage_note: str = ""
    gpu_gemm: tuple[GpuRate, ...] = ()
    gpu_links: tuple[GpuLinkRate, ...] = ()

    @property
    def gemm_flops_per_second(self) -> float:
        """The rate of the best window; on a machine that several nodes share, without other programs."""
        if self.shared_machine:
            return max(window.undisturbed_flops_per_second for window in self.gemm)
        return max(window.flops_per_second for window in self.gemm)


class Attempt(RecordPart):
    """The speeds of nodes that were measured in one go, by name."""

    speeds: dict[str, NodeSpeed]
    references: Annotated[
        tuple[str, ...], Field(description="nodes that the others are compared with; empty: all")
    ] = ()


class PairRate(RecordPart):
    """The rates between two nodes, by index, in each direction; the best of several messages."""

    a: int
    b: int
    forward: Annotated[float, Field(description="bytes per second from a to b")]
    backward: Annotated[float, Field(description="bytes per second from b to a")]

    @property
    def slower(self) -> float:
        return min(self.forward, self.backward)


class Check(RecordPart):
    """One finding: what was judged, at which node, and how."""

    phase: Phase
    subject: str
    grade: Grade
    text: str
    node: Annotated[str | None, Field(description="None: the cluster as a whole")] = None
    ratio: Annotated[float | None, Field(description="measured over expected")] = None
    lost_share: Annotated[
        float, Field(description="share of the cluster that a job on all nodes loses, at most")
    ] = 0.0
    next_step: str = ""


class NodeReport(RecordPart):
    """One node: its grade is the worst of its findings."""

    name: str
    grade: Grade
    findings: tuple[Check, ...] = ()
    inventory: Inventory | None = None
    gemm_flops_per_second: float | None = None
    memory_bytes_per_second: float | None = None
    storage_read_bytes_per_second: float | None = None
    link_bytes_per_second: Annotated[
        float | None, Field(description="best rate to or from another node, the slower direction")
    ] = None


class WholeCluster(RecordPart):
    """The all-reduce over all nodes, and its prediction."""

    ranks: int
    bytes: int
    bus_bytes_per_second: float
    expected_seconds: float
    seconds: float
    ratio: float
    bench: Annotated[str, Field(description="id of the stored collectives bench")]


class TrainingStep(RecordPart):
    """The training step over all nodes, and its prediction."""

    workload: str
    gpu: Annotated[str | None, Field(description="catalog GPU that was emulated; None: real")]
    workers: int
    batch_per_worker: int
    samples_per_second: float
    predicted: float
    low: float
    high: float
    measurement: Annotated[str, Field(description="id of the stored measurement")]


class ClusterPrice(RecordPart):
    """The price of the whole cluster, and where it comes from."""

    usd_per_hour: float
    basis: str


class Acceptance(BenchRecord):
    """The record of an acceptance run."""

    kind: Literal["acceptance"] = "acceptance"
    cluster: str
    place: RunPlace
    accepted: bool
    nodes: tuple[NodeReport, ...]
    findings: Annotated[
        tuple[Check, ...], Field(description="findings about the cluster as a whole")
    ] = ()
    pairs: tuple[PairRate, ...] = ()
    expected_link_bytes_per_second: float | None = None
    whole: WholeCluster | None = None
    training: TrainingStep | None = None
    price: ClusterPrice | None = None
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def all_findings(self) -> tuple[Check, ...]:
        return (*(check for node in self.nodes for check in node.findings), *self.findings)

    def faulty(self, grade: Grade = "fail") -> list[str]:
        """Return the names of the nodes with this grade."""
        return [node.name for node in self.nodes if node.grade == grade]

    def usd_per_day(self, check: Check) -> float | None:
        """Return what a finding costs per day in jobs on all nodes, at most; None without a price."""
        if self.price is None or not check.lost_share:
            return None
        return 24 * self.price.usd_per_hour * check.lost_share
