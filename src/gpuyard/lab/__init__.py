"""An emulated cluster on this host: a network namespace for each node, and links shaped to any rate."""

from gpuyard.lab.lab import (
    Lab,
    Node,
    down,
    find,
    labs,
    remove_orphans,
    set_rates,
    temporary,
    unreadable,
    up,
)
from gpuyard.lab.network import check_can_make_labs, processes_in
from gpuyard.lab.plan import (
    DEFAULT_NAME,
    LabPlan,
    NodePlan,
    overload,
    plan_from_text,
    plan_lab,
)
from gpuyard.lab.resize import resize
from gpuyard.lab.state import Health, LabState

__all__ = [
    "DEFAULT_NAME",
    "Health",
    "Lab",
    "LabPlan",
    "LabState",
    "Node",
    "NodePlan",
    "check_can_make_labs",
    "down",
    "find",
    "labs",
    "overload",
    "plan_from_text",
    "plan_lab",
    "processes_in",
    "remove_orphans",
    "resize",
    "set_rates",
    "temporary",
    "unreadable",
    "up",
]
