"""Un-choke: what each remedy brings on the configuration that is choked, and what it does to the loss."""

from gpuyard.measure.relief.named import CANDIDATES, foreseen_gains
from gpuyard.measure.relief.plan import ReliefPlan, plan_relief
from gpuyard.measure.relief.records import ReliefResult, Relieved
from gpuyard.measure.relief.run import run_relief

__all__ = [
    "CANDIDATES",
    "ReliefPlan",
    "ReliefResult",
    "Relieved",
    "foreseen_gains",
    "plan_relief",
    "run_relief",
]
