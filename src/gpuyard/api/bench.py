"""`gy.bench`: every short measurement of training and of hardware."""

from gpuyard.api.hardware_bench import collectives, links, storage
from gpuyard.api.training_bench import sweep, train

__all__ = ["collectives", "links", "storage", "sweep", "train"]
