"""Search what could be bought or rented, rank it for a goal, and say why. Pure: spec in, value out."""

from gpuyard.planner.result import Alternative, Binding, Choice, Goal, LeftOut, PlanResult, Siting
from gpuyard.planner.search import make_plan

__all__ = [
    "Alternative",
    "Binding",
    "Choice",
    "Goal",
    "LeftOut",
    "PlanResult",
    "Siting",
    "make_plan",
]
