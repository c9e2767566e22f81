"""Search what could be bought or rented, rank it for a goal, and say why. Pure: spec in, value out."""

from gpuyard.planner.playbook import Advice, Team, advise, team_of
from gpuyard.planner.result import Alternative, Binding, Choice, Goal, LeftOut, PlanResult
from gpuyard.planner.search import make_plan, plan_workload

__all__ = [
    "Advice",
    "Alternative",
    "Binding",
    "Choice",
    "Goal",
    "LeftOut",
    "PlanResult",
    "Team",
    "advise",
    "make_plan",
    "plan_workload",
    "team_of",
]
