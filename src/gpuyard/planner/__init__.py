"""Search machines to buy or rent, rank them for a goal, and explain the choice. Pure: spec in, value out."""

from gpuyard.planner.result import (
    Alternative,
    BindingConstraint,
    Choice,
    Exclusion,
    Goal,
    LocationCost,
    PlanResult,
)
from gpuyard.planner.search import make_plan

__all__ = [
    "Alternative",
    "BindingConstraint",
    "Choice",
    "Exclusion",
    "Goal",
    "LocationCost",
    "PlanResult",
    "make_plan",
]
