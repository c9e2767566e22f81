"""Policies decide how many GPUs each job gets: one object per policy, used by the live queue and the simulator."""

from gpuyard.errors import UnknownName, UserMistake
from gpuyard.policies.base import Policy, QueuePolicy
from gpuyard.policies.explore_then_focus import ExploreThenFocus
from gpuyard.policies.fair_share import FairShare
from gpuyard.policies.fifo import Fifo
from gpuyard.policies.max_jobs import MaxJobs
from gpuyard.policies.min_time import MinTime
from gpuyard.policies.optimus import Optimus
from gpuyard.policies.shortest_first import ShortestFirst
from gpuyard.policies.tiresias import Tiresias
from gpuyard.policies.views import Allocation, JobView, Pool

_ALL: tuple[Policy, ...] = (
    Fifo(),
    ShortestFirst(),
    FairShare(),
    MinTime(),
    MaxJobs(),
    ExploreThenFocus(),
    Tiresias(),
    Optimus(),
)
POLICIES: dict[str, Policy] = {policy.name: policy for policy in _ALL}


def get_policy(name: str, *, explore_gpu_s: float | None = None) -> Policy:
    """Return the policy with this name; `explore_gpu_s` is the GPU time of each trial for explore-then-focus."""
    if name not in POLICIES:
        raise UnknownName("policy", name, POLICIES)
    if explore_gpu_s is not None:
        if name != ExploreThenFocus.name:
            raise UserMistake(f"--explore is only for {ExploreThenFocus.name}, not for {name}")
        return ExploreThenFocus(explore_gpu_s)
    return POLICIES[name]


__all__ = ["POLICIES", "Allocation", "JobView", "Policy", "Pool", "QueuePolicy", "get_policy"]
