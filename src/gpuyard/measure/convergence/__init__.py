"""Training to an accuracy: epochs with checkpoints that a killed run goes on from, bit for bit."""

from gpuyard.measure.convergence.job import EpochDone
from gpuyard.measure.convergence.plan import FitPlan, plan_fit
from gpuyard.measure.convergence.run import FitResult, run_fit

__all__ = ["EpochDone", "FitPlan", "FitResult", "plan_fit", "run_fit"]
