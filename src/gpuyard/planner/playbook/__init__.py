"""Where a team stands, where it should run, and what comes next, by a table of rules."""

from gpuyard.planner.playbook.advice import Advice, Figures, PlanAnswer, Team, advise, team_of

__all__ = ["Advice", "Figures", "PlanAnswer", "Team", "advise", "team_of"]
