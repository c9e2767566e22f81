"""What would have happened with more GPUs, another network or another policy: changes in words, and what they make
of a simulation."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from gpuyard.catalog import ModelProfile, links
from gpuyard.errors import UserMistake, quoted
from gpuyard.jobs.curve import Curve
from gpuyard.jobs.policies import policy_of
from gpuyard.jobs.policies.base import Policy, Pool
from gpuyard.jobs.simulate.trace import Trace, TraceJob
from gpuyard.jobs.simulate.work import GpusByMachine, SteadyWork, packed_shape
from gpuyard.predict import Placement, predict, scenario_of
from gpuyard.specs import Cluster, Network, Workload
from gpuyard.units import parse_rate

Ratio = Callable[[GpusByMachine], float]
"""How many times as fast a job gets that runs on so many GPUs of each machine."""
Faster = Callable[[str, str], Ratio]
"""By the network, in words, and the workload; none is "" for jobs of which nobody says what they train."""
AS_IT_IS = "as it is"
EXAMPLES = "'add 8 gpus', 'remove 1 machine', 'network 25 Gbit/s' or policy=min-time"
_COUNT = re.compile(r"(add|remove)\s+([1-9][0-9]{0,4})\s+(gpus?|machines?|nodes?)")
_NETWORK = re.compile(r"network\s+(\S.*)")
_POLICY = re.compile(r"policy\s*=\s*(\S+)")


@dataclass(frozen=True)
class SimulationCase:
    """One thing to simulate."""

    name: str
    trace: Trace
    pool: Pool
    policy: Policy


@dataclass(frozen=True)
class Change:
    """What is otherwise than it was."""

    words: str
    gpus: int = 0
    """More than before, or fewer where negative."""
    machines: int = 0
    network: str | None = None
    """A rate or the name of a link."""
    policy: str | None = None

    def case(self, base: SimulationCase, faster: Faster) -> SimulationCase:
        """`faster` says what a network makes of a job that trains some workload."""
        trace = base.trace
        if self.network is not None:
            network = self.network
            trace = with_network(trace, base.pool, lambda workload: faster(network, workload))
        pool = _resized(base.pool, self.gpus + self.machines * max(base.pool.gpus_by_machine), self)
        policy = base.policy if self.policy is None else policy_of(self.policy)
        return SimulationCase(self.words, trace, pool, policy)


def parse_change(text: str) -> Change:
    """Several at once are divided by commas: "add 8 gpus, policy=min-time"."""
    change = Change(" ".join(text.split()))
    for part in text.split(","):
        written = " ".join(part.split())
        lower = written.lower()
        if match := _COUNT.fullmatch(lower):
            number = int(match[2]) * (1 if match[1] == "add" else -1)
            what = "gpus" if match[3].startswith("gpu") else "machines"
            change = replace(change, **{what: getattr(change, what) + number})
        elif match := _NETWORK.fullmatch(lower):
            change = replace(change, network=written[match.start(1) :])
        elif match := _POLICY.fullmatch(lower):
            change = replace(change, policy=match[1])
        else:
            raise UserMistake(f"--what-if: expected {EXAMPLES}, got {quoted(written)}")
    return change


def with_network(trace: Trace, pool: Pool, ratio_of: Callable[[str], Ratio]) -> Trace:
    """The same jobs with other speeds; those that stay on one machine are as fast as before."""
    machine = max(pool.gpus_by_machine)
    curves: dict[tuple[int, str], Curve] = {}

    def changed(job: TraceJob) -> TraceJob:
        if not isinstance(job.work, SteadyWork):
            raise UserMistake("the network of jobs with --batch adaptive can't be changed")
        key = id(job.work.speeds), job.workload
        if key not in curves:
            curves[key] = _faster(job.work.speeds, machine, ratio_of(job.workload))
        return replace(job, work=replace(job.work, speeds=curves[key]))

    return replace(trace, jobs=tuple(map(changed, trace.jobs)))


def _faster(curve: Curve, machine: int, ratio: Ratio) -> Curve:
    factors = [
        1.0 if gpus <= machine else ratio(packed_shape(gpus, machine))
        for gpus in range(len(curve.packed))
    ]

    def split(shape: GpusByMachine, racks: int) -> float:
        return curve.speed_on(shape, racks) * (ratio(shape) if len(shape) > 1 else 1.0)

    return Curve(
        curve.packed * np.array(factors),
        lambda shape: split(shape, 1),
        None if curve.across is None else lambda shape: split(shape, 2),
        curve.low,
        curve.high,
    )


def _resized(pool: Pool, gpus: int, change: Change) -> Pool:
    """Machines like the largest are added, the last of them with what is left; machines are removed from the end."""
    if gpus == 0:
        return pool
    if pool.gpus + gpus < 1:
        raise UserMistake(f"--what-if {quoted(change.words)}: there are {pool.gpus} GPUs only")
    if gpus > 0:
        more = packed_shape(gpus, max(pool.gpus_by_machine))
        last = max(pool.racks) + 1 if pool.racks else 0
        racks = None if pool.racks is None else pool.racks + (last,) * len(more)
        return Pool(pool.gpus_by_machine + more, racks)
    left = list(pool.gpus_by_machine)
    for at in reversed(range(len(left))):
        taken = min(left[at], -gpus)
        left[at] -= taken
        gpus += taken
    kept = [at for at, count in enumerate(left) if count]
    racks = None if pool.racks is None else tuple(pool.racks[at] for at in kept)
    return Pool(tuple(left[at] for at in kept), racks)


def network_ratio(
    workload: Workload, profile: ModelProfile, cluster: Cluster, network: Network
) -> Ratio:
    """How much faster this workload trains on that network than on the cluster's own, as the predictor has it."""
    if cluster.network is None:
        raise UserMistake(f"{cluster.name} has no network to be changed: name it in --cluster")
    before = scenario_of(workload, profile, cluster)
    after = scenario_of(workload, profile, cluster.model_copy(update={"network": network}))

    @cache
    def ratio(shape: GpusByMachine) -> float:
        placement = [Placement(sum(shape), len(shape), max(shape))]
        speeds = [predict(s, placement).predictions[0].samples_per_second for s in (before, after)]
        return speeds[1] / speeds[0]

    return ratio


def network_of(text: str, before: Network | None) -> Network:
    """A rate ("25 Gbit/s"; all else stays as it is) or a link of the catalog ("infiniband-hdr")."""
    if not text[:1].isdigit():
        return Network(link=links().get(text).id)
    like = before or Network.model_validate({"rate": text})
    return like.model_copy(update={"link": None, "rate": parse_rate(text), "rails": 1})
