"""How many GPUs a job with a range asks Slurm for: as its curve and the queue's policy have it, when it is submitted."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.jobs.curve import Curve
from gpuyard.jobs.engines.slurm.commands import PartitionNodes
from gpuyard.jobs.engines.slurm.script.launch import words_of_torchrun
from gpuyard.jobs.job import Job
from gpuyard.jobs.policies import JobView, Policy, Pool
from gpuyard.specs import Cluster
from gpuyard.units import counted, format_per_second

_AS_GOOD_AS_BEST = 0.99
UNKNOWN_SECONDS = 3600.0  # a job of which nothing is known is taken to last so long
_NORMAL_90 = 1.645  # standard deviations to each side that 90 % are within


@dataclass(frozen=True)
class JobShape:
    """Nodes, and GPUs of each."""

    fewest_nodes: int
    nodes: int
    gpus_per_node: int

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node


@dataclass(frozen=True)
class Speed:
    """What the curve says of a job on the GPUs that it asks for."""

    samples_per_second: float
    low: float
    high: float
    """The true speed is between these times as much, with 90 % probability."""
    samples: float | None
    policy: str
    words: str
    """Why so many GPUs; empty where there was nothing to choose."""

    def document(self) -> dict[str, Any]:
        return asdict(self)

    def seconds(self, factor: float = 1.0) -> float | None:
        """That all of it takes, at so many times the speed."""
        return None if self.samples is None else self.samples / self.samples_per_second / factor

    def chance_within(self, seconds: float) -> float | None:
        """That it takes no longer: the logarithm of the speed is taken to be normal."""
        expected = self.seconds()
        if expected is None:
            return None
        if seconds <= 0:
            return 0.0
        sigma = math.log(self.high / self.low) / (2 * _NORMAL_90)
        if sigma == 0:
            return float(expected <= seconds)
        return 0.5 * math.erfc(math.log(expected / seconds) / sigma / math.sqrt(2))


def shapes(job: Job, nodes: PartitionNodes) -> list[JobShape]:
    """That this cluster could give, the most GPUs first, each number on its fewest nodes. Raises where there is none.

    What is not torchrun would be run once on each node, so it gets several only if it asks for them.
    """
    spec = job.spec
    spreads = words_of_torchrun(list(spec.command)) > 0
    found = []
    for gpus in range(spec.gpus.max, spec.gpus.min - 1, -1):
        for count in (spec.nodes,) if spec.nodes else range(1, gpus + 1 if spreads else 2):
            if gpus % count == 0 and nodes.with_gpus(gpus // count) >= count:
                each = gpus // count
                fewest = spec.nodes or math.ceil(spec.gpus.min / each)
                found.append(JobShape(fewest, count, each))
                break
    if found:
        return found
    there = nodes.gpus or ()
    asked = spec.nodes or (None if spreads else 1)
    on = "" if asked is None else " on one node" if asked == 1 else f" on {asked} nodes"
    raise UserMistake(
        f"Slurm can't give {spec.gpus} GPUs{on}: its partition has {len(there)} nodes, with up to "
        f"{max(there, default=0)} GPUs each"
        + ("" if spec.nodes or spreads else "; for several nodes, say how many: nodes")
    )


def chosen(
    job: Job, nodes: PartitionNodes, cluster: str, policy: Policy
) -> tuple[JobShape, Speed | None]:
    """The shape to ask for; where the job's curve is not known, the most GPUs that the cluster has for it."""
    if nodes.gpus is None:
        nodes = _described(job) or nodes
    possible = shapes(job, nodes)
    if job.spec.workload is None:
        return possible[0], None
    curve, samples, basis = known_curve(job, nodes, cluster)
    speeds = (
        {}
        if curve is None
        else {one: speed_of_shape(curve, one.nodes, one.gpus_per_node) for one in possible}
    )
    speeds = {one: speed for one, speed in speeds.items() if speed > 0}
    if curve is None or not speeds:
        return possible[0], None
    gpus = _dealt(job, nodes, speeds, samples, policy)
    best = next((one for one in speeds if one.gpus <= gpus), list(speeds)[-1])
    words = ""
    if len(possible) > 1:
        best = JobShape(best.nodes, best.nodes, best.gpus_per_node)
        others = [one for one in (next(iter(speeds)), list(speeds)[-1]) if one.gpus != best.gpus]
        compared = "".join(
            f"; with {one.gpus} it would be {format_per_second(speeds[one])}" for one in others
        )
        unknown = len(possible) - len(speeds)
        more = f"; of {counted(unknown, 'other size')} no curve is known" if unknown else ""
        words = (
            f"{counted(best.gpus, 'GPU')} of {job.spec.gpus}, chosen by {policy.name} from the job's curve "
            f"({basis}): {format_per_second(speed_of_shape(curve, best.nodes, best.gpus_per_node))} samples/s{compared}{more}"
        )
    return best, Speed(
        speed_of_shape(curve, best.nodes, best.gpus_per_node),
        curve.low,
        curve.high,
        samples,
        policy.name,
        words,
    )


def machines_of(job: Job) -> Cluster | None:
    """What the job file says of the cluster's machines, network and racks."""
    from gpuyard.hardware.clusters import read_cluster

    named = job.spec.slurm.cluster if job.spec.slurm else None
    return None if named is None else read_cluster(named)


def _described(job: Job) -> PartitionNodes | None:
    """Where Slurm was not asked: the nodes that the job file describes."""
    from gpuyard.hardware.clusters import machine_of

    machines = machines_of(job)
    if machines is None:
        return None
    return PartitionNodes((machine_of(machines)[1].gpus,) * machines.nodes)


def speed_of_shape(curve: Curve, nodes: int, gpus_per_node: int) -> float:
    """0 where the curve says nothing of it."""
    if nodes * gpus_per_node > curve.most_gpus:
        return 0.0
    try:
        return curve.speed_on([gpus_per_node] * nodes)
    except GpuyardError:  # nodes with more GPUs than slurm.cluster describes
        return 0.0


def known_curve(
    job: Job, nodes: PartitionNodes, cluster: str
) -> tuple[Curve | None, float | None, str]:
    """The curve on these nodes: predicted, and corrected by what jobs on this cluster have reported."""
    from gpuyard.jobs.known_work import known_work

    machines = machines_of(job) or _like(nodes, job)
    try:
        known = known_work(
            job.spec, gpu=None, gpus=job.spec.gpus.max, cluster=machines, slurm=cluster
        )
    except UserMistake:
        raise
    except GpuyardError:
        return None, None, ""
    return known.curve, known.samples, known.basis


def _like(nodes: PartitionNodes, job: Job) -> Cluster | None:
    """One node as Slurm names its GPUs; nobody says what joins several."""
    from gpuyard.hardware.clusters import read_cluster
    from gpuyard.hardware.product_names import catalog_gpu

    named = job.spec.slurm.gpu_type if job.spec.slurm else None
    kinds = {named} if named else set(nodes.kinds)
    gpu = catalog_gpu(kinds.pop()) if len(kinds) == 1 else None
    if gpu is None or not nodes.gpus:
        return None
    try:
        return read_cluster(f"{max(nodes.gpus)}x{gpu.id}")
    except GpuyardError:
        return None


def _dealt(
    job: Job,
    nodes: PartitionNodes,
    speeds: dict[JobShape, float],
    samples: float | None,
    policy: Policy,
) -> int:
    """GPUs as the policy deals them among those that are free now; where none are, among all."""
    most, least = max(one.gpus for one in speeds), min(one.gpus for one in speeds)
    packed = np.zeros(most + 1)
    for one, speed in speeds.items():
        packed[one.gpus] = speed
    curve = Curve(packed)
    best = max(speeds.values())
    view = JobView(
        id=job.uuid,
        curve=curve,
        remaining_work=samples or UNKNOWN_SECONDS * best,
        asked_gpus=min(one.gpus for one, s in speeds.items() if s >= _AS_GOOD_AS_BEST * best),
        least_gpus=least,
        most_gpus=most,
        submitted_s=job.submitted,
        deadline_s=job.deadline,
        priority=job.spec.priority,
    )
    there = nodes.gpus or (most,)
    pool = Pool(there)
    for jobs in ([*_busy(there, nodes.used), view], [view]):
        given = policy.allocate(jobs, pool, job.submitted).get(job.uuid, 0)
        if given >= least:
            return given
    return least


def _busy(gpus: Sequence[int], used: Sequence[int]) -> list[JobView]:
    """What others have of each node, as a job that nobody can stop."""
    return [
        JobView(
            f"node {at}", Curve.rigid(taken), UNKNOWN_SECONDS, taken, taken, taken,
            allocation=((at, taken),),
        )
        for at, (_, taken) in enumerate(zip(gpus, used, strict=False))
        if taken
    ]  # fmt: skip
