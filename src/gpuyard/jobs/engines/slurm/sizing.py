"""The number of GPUs that a job with a range requests: the queue's policy chooses it from the job's scaling curve."""

import math
from dataclasses import dataclass

import numpy as np

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.jobs.engines.slurm.script.launch import count_torchrun_words
from gpuyard.jobs.job import Job
from gpuyard.policies import JobView, Policy, Pool
from gpuyard.policies.curve import Curve, StepParts
from gpuyard.slurm.nodes import PartitionNodes
from gpuyard.specs import Cluster
from gpuyard.units import format_count, format_per_second

UNKNOWN_SECONDS = 3600.0
"""The assumed duration of a job about which nothing is known."""
_NEARLY_BEST = 0.99
_NORMAL_90 = 1.645  # 90% of a normal distribution lie within this many standard deviations.


@dataclass(frozen=True)
class JobShape:
    """A number of nodes, and the GPUs on each."""

    min_nodes: int
    nodes: int
    gpus_per_node: int

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node


@dataclass(frozen=True)
class SpeedEstimate:
    """The speed of a job on the GPUs that it requests, according to its scaling curve."""

    samples_per_second: float
    low: float
    high: float
    """The true speed is between `low` and `high` times the estimate with 90% probability."""
    samples: float | None
    policy: str
    rationale: str
    """Why it requests this number of GPUs; empty if there was no choice."""
    parts: StepParts | None = None

    def seconds(self, factor: float = 1.0) -> float | None:
        """Return the duration of the whole job at `factor` times the speed."""
        return None if self.samples is None else self.samples / self.samples_per_second / factor

    def finish_probability(self, seconds: float) -> float | None:
        """Return the probability that the job finishes in this time, for a log-normal speed."""
        expected = self.seconds()
        if expected is None:
            return None
        if seconds <= 0:
            return 0.0
        sigma = math.log(self.high / self.low) / (2 * _NORMAL_90)
        if sigma == 0:
            return float(expected <= seconds)
        return 0.5 * math.erfc(math.log(expected / seconds) / sigma / math.sqrt(2))


def list_shapes(job: Job, nodes: PartitionNodes) -> list[JobShape]:
    """List the shapes that the cluster has, most GPUs first, each on as few nodes as possible; raise if there is none.

    Any command but torchrun runs once per node, so it gets several nodes only if it asks for them.
    """
    spec = job.spec
    is_torchrun = count_torchrun_words(list(spec.command)) > 0
    shapes = []
    for gpus in range(spec.gpus.max, spec.gpus.min - 1, -1):
        for count in (spec.nodes,) if spec.nodes else range(1, gpus + 1 if is_torchrun else 2):
            each = gpus // count
            if gpus % count == 0 and nodes.count_nodes(each) >= count:
                shapes.append(JobShape(spec.nodes or math.ceil(spec.gpus.min / each), count, each))
                break
    if shapes:
        return shapes
    max_nodes = spec.nodes or (None if is_torchrun else 1)
    where = "" if max_nodes is None else f" on {format_count(max_nodes, 'node')}"
    raise UserMistake(
        f"Slurm cannot provide {spec.gpus} GPUs{where}: its partition has {len(nodes.gpus or ())} nodes, with up "
        f"to {max(nodes.gpus or (), default=0)} GPUs each"
        + ("" if spec.nodes or is_torchrun else "; to use several nodes, set `nodes`")
    )


def choose_shape(
    job: Job, nodes: PartitionNodes, cluster: str, policy: Policy
) -> tuple[JobShape, SpeedEstimate | None]:
    """Choose the shape to request; without a known curve, the largest that the cluster has."""
    if nodes.gpus is None:
        nodes = _describe_nodes(job) or nodes
    shapes = list_shapes(job, nodes)
    if job.spec.workload is None:
        return shapes[0], None
    curve, samples, basis = load_curve(job, nodes, cluster)
    if curve is None:
        return shapes[0], None
    speeds = {shape: speed_on_nodes(curve, shape.nodes, shape.gpus_per_node) for shape in shapes}
    speeds = {shape: speed for shape, speed in speeds.items() if speed > 0}
    if not speeds:
        return shapes[0], None
    gpus = _allocate_gpus(job, nodes, speeds, samples, policy)
    largest, smallest = next(iter(speeds)), list(speeds)[-1]
    best = next((shape for shape in speeds if shape.gpus <= gpus), smallest)
    speed = speeds[best]
    rationale = ""
    if len(shapes) > 1:
        best = JobShape(best.nodes, best.nodes, best.gpus_per_node)
        others = "".join(
            f"; {format_per_second(speeds[shape])} with {shape.gpus}"
            for shape in (largest, smallest)
            if shape.gpus != best.gpus
        )
        unknown = len(shapes) - len(speeds)
        missing = (
            f"; no curve is known for {format_count(unknown, 'other size')}" if unknown else ""
        )
        rationale = (
            f"{format_count(best.gpus, 'GPU')} of {job.spec.gpus}, chosen by {policy.name} from the job's curve "
            f"({basis}): {format_per_second(speed)} samples/s{others}{missing}"
        )
    parts = curve.parts.get(best.gpus)
    return best, SpeedEstimate(speed, curve.low, curve.high, samples, policy.name, rationale, parts)


def read_cluster_description(job: Job) -> Cluster | None:
    """Read the cluster that `slurm.cluster` in the job file describes."""
    from gpuyard.hardware.clusters import read_cluster

    name = job.spec.slurm.cluster if job.spec.slurm else None
    return None if name is None else read_cluster(name)


def _describe_nodes(job: Job) -> PartitionNodes | None:
    """Return the nodes that the job file describes, for a dry run without Slurm."""
    from gpuyard.hardware.clusters import resolve_machine

    cluster = read_cluster_description(job)
    return (
        None
        if cluster is None
        else PartitionNodes((resolve_machine(cluster)[1].gpus,) * cluster.nodes)
    )


def speed_on_nodes(curve: Curve, nodes: int, gpus_per_node: int) -> float:
    """Return the samples per second on these nodes; 0 if the curve does not cover them."""
    if nodes * gpus_per_node > curve.max_gpus:
        return 0.0
    try:
        return curve.speed_on([gpus_per_node] * nodes)
    except GpuyardError:  # The nodes have more GPUs than slurm.cluster describes.
        return 0.0


def load_curve(
    job: Job, nodes: PartitionNodes, cluster: str
) -> tuple[Curve | None, float | None, str]:
    """Return the predicted curve, corrected by the reports of jobs on this cluster; the job's samples; and the basis."""
    from gpuyard.jobs.work_estimate import estimate_work

    machines = read_cluster_description(job) or _guess_cluster(nodes, job)
    try:
        work = estimate_work(
            job.spec, gpu=None, gpus=job.spec.gpus.max, cluster=machines, slurm=cluster
        )
    except UserMistake:
        raise
    except GpuyardError:
        return None, None, ""
    return work.curve, work.samples, work.basis


def _guess_cluster(nodes: PartitionNodes, job: Job) -> Cluster | None:
    """Describe one node by Slurm's name for its GPUs; the network between nodes is unknown."""
    from gpuyard.hardware.clusters import read_cluster
    from gpuyard.hardware.product_names import find_catalog_gpu

    requested = job.spec.slurm.gpu_type if job.spec.slurm else None
    gpu_types = {requested} if requested else set(nodes.gpu_types)
    gpu = find_catalog_gpu(gpu_types.pop()) if len(gpu_types) == 1 else None
    if gpu is None or not nodes.gpus:
        return None
    try:
        return read_cluster(f"{max(nodes.gpus)}x{gpu.id}")
    except GpuyardError:
        return None


def _allocate_gpus(
    job: Job,
    nodes: PartitionNodes,
    speeds: dict[JobShape, float],
    samples: float | None,
    policy: Policy,
) -> int:
    """Let the policy choose among the free GPUs or, if too few are free, among all."""
    max_gpus, min_gpus = max(shape.gpus for shape in speeds), min(shape.gpus for shape in speeds)
    packed = np.zeros(max_gpus + 1)
    for shape, speed in speeds.items():
        packed[shape.gpus] = speed
    best = max(speeds.values())
    view = JobView(
        id=job.uuid,
        curve=Curve(packed),
        remaining_work=samples or UNKNOWN_SECONDS * best,
        requested_gpus=min(s.gpus for s, speed in speeds.items() if speed >= _NEARLY_BEST * best),
        min_gpus=min_gpus,
        max_gpus=max_gpus,
        submitted_s=job.submitted,
        deadline_s=job.deadline,
        priority=job.spec.priority,
    )
    pool = Pool(nodes.gpus or (max_gpus,))
    # GPUs in use are jobs that cannot be stopped.
    others = [
        JobView(f"node {i}", Curve.rigid(used), UNKNOWN_SECONDS, used, used, used, allocation=((i, used),))
        for i, used in enumerate(nodes.used[: len(nodes.gpus or ())])
        if used
    ]  # fmt: skip
    for jobs in ([*others, view], [view]):
        gpus = policy.allocate(jobs, pool, job.submitted).get(job.uuid, 0)
        if gpus >= min_gpus:
            return gpus
    return min_gpus
