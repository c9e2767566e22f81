"""An emulated cluster on this host: a network namespace for each node, and links shaped to any rate."""

from gpuyard.lab.lab import Lab, Node, down, find, labs, remove_orphans, temporary, up
from gpuyard.lab.plan import LabPlan, NodePlan, plan_from_text, plan_lab

__all__ = [
    "Lab",
    "LabPlan",
    "Node",
    "NodePlan",
    "down",
    "find",
    "labs",
    "plan_from_text",
    "plan_lab",
    "remove_orphans",
    "temporary",
    "up",
]
