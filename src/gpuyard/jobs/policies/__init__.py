"""One object a policy: who gets how many GPUs. The live queue and the simulator ask the object, never which one it is."""

from gpuyard.errors import UnknownName, UserMistake
from gpuyard.jobs.policies.base import Allocation, JobView, Policy, Pool, QueuePolicy
from gpuyard.jobs.policies.explore_then_focus import ExploreThenFocus
from gpuyard.jobs.policies.fair_share import FairShare
from gpuyard.jobs.policies.fifo import Fifo
from gpuyard.jobs.policies.max_jobs import MaxJobs
from gpuyard.jobs.policies.min_time import MinTime
from gpuyard.jobs.policies.optimus import Optimus
from gpuyard.jobs.policies.shortest_first import ShortestFirst
from gpuyard.jobs.policies.tiresias import Tiresias

_EVERY: tuple[Policy, ...] = (
    Fifo(),
    ShortestFirst(),
    FairShare(),
    MinTime(),
    MaxJobs(),
    ExploreThenFocus(),
    Tiresias(),
    Optimus(),
)
POLICIES: dict[str, Policy] = {policy.name: policy for policy in _EVERY}


def policy_of(name: str, *, explore_gpu_s: float | None = None) -> Policy:
    """By its name; `explore_gpu_s` is what each trial has before one is chosen, under a policy that tries them."""
    if name not in POLICIES:
        raise UnknownName("policy", name, POLICIES)
    if explore_gpu_s is not None:
        if name != ExploreThenFocus.name:
            raise UserMistake(
                f"{name} tries nothing first: --explore is for {ExploreThenFocus.name}"
            )
        return ExploreThenFocus(explore_gpu_s)
    return POLICIES[name]


__all__ = ["POLICIES", "Allocation", "JobView", "Policy", "Pool", "QueuePolicy", "policy_of"]
