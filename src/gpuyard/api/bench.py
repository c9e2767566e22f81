"""`gy.bench`: every short measurement of training and of hardware."""

from gpuyard.api import hardware_bench, training_bench
from gpuyard.api.parameters import with_parameters

collectives = with_parameters(hardware_bench.collectives)
links = with_parameters(hardware_bench.links)
storage = with_parameters(hardware_bench.storage)
sweep = with_parameters(training_bench.sweep)
train = with_parameters(training_bench.train)

__all__ = ["collectives", "links", "storage", "sweep", "train"]
