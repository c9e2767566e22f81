"""Simulate changes: more GPUs, another network, or another policy, written in words."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from gpuyard.catalog import ModelProfile, links
from gpuyard.errors import UserMistake, quote
from gpuyard.jobs.simulate.trace import Trace, TraceJob
from gpuyard.jobs.simulate.work import GpusByMachine, SteadyWork, pack_gpus
from gpuyard.policies import get_policy
from gpuyard.policies.base import Policy
from gpuyard.policies.curve import Curve
from gpuyard.policies.views import Pool
from gpuyard.predictor import Placement, create_scenario, predict
from gpuyard.specs import Cluster, Network, Workload
from gpuyard.units import parse_rate

Speedup = Callable[[GpusByMachine], float]
"""The speed with the new network relative to the old one, for a job on these numbers of GPUs per machine."""
SpeedupLookup = Callable[[str, str], Speedup]
"""A function from a network (as text) and a workload, which is "" if the trace names none, to the speedup."""
AS_IT_IS = "as it is"
EXAMPLES = "'add 8 gpus', 'remove 1 machine', 'network 25 Gbit/s', or policy=min-time"
_COUNT = re.compile(r"(add|remove)\s+([1-9][0-9]{0,4})\s+(gpus?|machines?|nodes?)")
_NETWORK = re.compile(r"network\s+(\S.*)")
_POLICY = re.compile(r"policy\s*=\s*(\S+)")


@dataclass(frozen=True)
class SimulationCase:
    """The input of one simulation."""

    name: str
    trace: Trace
    pool: Pool
    policy: Policy


@dataclass(frozen=True)
class Change:
    """A change of machines, network, or policy."""

    text: str
    gpus: int = 0
    """Added GPUs; negative if they are removed."""
    machines: int = 0
    network: str | None = None
    """A rate or the name of a link."""
    policy: str | None = None

    def apply(self, base: SimulationCase, find_speedup: SpeedupLookup) -> SimulationCase:
        """Return the changed case."""
        trace = base.trace
        if self.network is not None:
            network = self.network
            trace = change_network(
                trace, base.pool, lambda workload: find_speedup(network, workload)
            )
        gpus = self.gpus + self.machines * max(base.pool.gpus_by_machine)
        pool = _resize_pool(base.pool, gpus, self)
        policy = base.policy if self.policy is None else get_policy(self.policy)
        return SimulationCase(self.text, trace, pool, policy)


def parse_change(text: str) -> Change:
    """Parse a change; several are separated by commas: "add 8 gpus, policy=min-time"."""
    change = Change(" ".join(text.split()))
    for item in text.split(","):
        part = " ".join(item.split())
        lower = part.lower()
        if match := _COUNT.fullmatch(lower):
            number = int(match[2]) * (1 if match[1] == "add" else -1)
            unit = "gpus" if match[3].startswith("gpu") else "machines"
            change = replace(change, **{unit: getattr(change, unit) + number})
        elif match := _NETWORK.fullmatch(lower):
            change = replace(change, network=part[match.start(1) :])
        elif match := _POLICY.fullmatch(lower):
            change = replace(change, policy=match[1])
        else:
            raise UserMistake(f"--what-if: expected {EXAMPLES}, got {quote(part)}")
    return change


def change_network(trace: Trace, pool: Pool, find_speedup: Callable[[str], Speedup]) -> Trace:
    """Change the speeds of jobs on several machines; `find_speedup` depends on the workload."""
    per_machine = max(pool.gpus_by_machine)
    curves: dict[tuple[int, str], Curve] = {}

    def change_job(job: TraceJob) -> TraceJob:
        if not isinstance(job.work, SteadyWork):
            raise UserMistake("--what-if network cannot be combined with --batch-choice adaptive")
        key = id(job.work.speeds), job.workload
        if key not in curves:
            curves[key] = _speed_up(job.work.speeds, per_machine, find_speedup(job.workload))
        return replace(job, work=replace(job.work, speeds=curves[key]))

    return replace(trace, jobs=tuple(map(change_job, trace.jobs)))


def _speed_up(curve: Curve, per_machine: int, speedup: Speedup) -> Curve:
    factors = [
        1.0 if gpus <= per_machine else speedup(pack_gpus(gpus, per_machine))
        for gpus in range(len(curve.packed))
    ]

    def split_speed(shape: GpusByMachine, racks: int) -> float:
        return curve.speed_on(shape, racks) * (speedup(shape) if len(shape) > 1 else 1.0)

    return Curve(
        curve.packed * np.array(factors),
        lambda shape: split_speed(shape, 1),
        None if curve.across is None else lambda shape: split_speed(shape, 2),
        curve.low,
        curve.high,
    )


def _resize_pool(pool: Pool, gpus: int, change: Change) -> Pool:
    """Add machines like the largest, the last one with the remainder; or remove machines from the end."""
    if gpus == 0:
        return pool
    if pool.gpus + gpus < 1:
        raise UserMistake(f"--what-if {quote(change.text)}: there are only {pool.gpus} GPUs")
    if gpus > 0:
        added = pack_gpus(gpus, max(pool.gpus_by_machine))
        new_rack = max(pool.racks) + 1 if pool.racks else 0
        racks = None if pool.racks is None else pool.racks + (new_rack,) * len(added)
        return Pool(pool.gpus_by_machine + added, racks)
    remaining = list(pool.gpus_by_machine)
    for machine in reversed(range(len(remaining))):
        removed = min(remaining[machine], -gpus)
        remaining[machine] -= removed
        gpus += removed
    kept = [machine for machine, count in enumerate(remaining) if count]
    racks = None if pool.racks is None else tuple(pool.racks[machine] for machine in kept)
    return Pool(tuple(remaining[machine] for machine in kept), racks)


def compare_networks(
    workload: Workload, profile: ModelProfile, cluster: Cluster, network: Network
) -> Speedup:
    """Predict how much faster the workload trains with that network than with the cluster's own."""
    if cluster.network is None:
        raise UserMistake(
            f"{cluster.name} has no network to change; name it in --on, like 4x8xa100-sxm4-80gb@10G"
        )
    before = create_scenario(workload, profile, cluster)
    after = create_scenario(workload, profile, cluster.model_copy(update={"network": network}))

    @cache
    def speedup(shape: GpusByMachine) -> float:
        placement = [Placement(sum(shape), len(shape), max(shape))]
        old, new = (
            predict(scenario, placement).predictions[0].samples_per_second
            for scenario in (before, after)
        )
        return new / old

    return speedup


def parse_network(text: str, before: Network | None) -> Network:
    """Parse a rate ("25 Gbit/s"; all else stays the same) or the id of a link ("infiniband-hdr")."""
    if not text[:1].isdigit():
        return Network(link=links().get(text).id)
    base = before or Network.model_validate({"rate": text})
    return base.model_copy(update={"link": None, "rate": parse_rate(text), "rails": 1})
