"""Search machines to buy or rent, rank them for a goal, and explain the choice. Pure: spec in, value out."""

from gpuyard.planner.choice import Choice
from gpuyard.planner.result import (
    Alternative,
    BindingConstraint,
    Exclusion,
    Goal,
    LocationCost,
    PlanResult,
)
from gpuyard.planner.search import find_cheapest_rental, make_plan

__all__ = [
    "Alternative",
    "BindingConstraint",
    "Choice",
    "Exclusion",
    "Goal",
    "LocationCost",
    "PlanResult",
    "find_cheapest_rental",
    "make_plan",
]
