"""Does storage starve the GPUs? MLPerf Storage's method: real reads, computing replaced by a sleep."""

from gpuyard.measure.storage.plan import StoragePlan, plan_storage
from gpuyard.measure.storage.records import StorageBench, Trial
from gpuyard.measure.storage.run import run_storage

__all__ = ["StorageBench", "StoragePlan", "Trial", "plan_storage", "run_storage"]
