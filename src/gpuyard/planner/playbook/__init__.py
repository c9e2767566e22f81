"""Where a team stands, where it should run, and what comes next, by a table of rules."""

from gpuyard.planner.playbook.advice import Advice, Figures, Team, advise, team_of

__all__ = ["Advice", "Figures", "Team", "advise", "team_of"]
