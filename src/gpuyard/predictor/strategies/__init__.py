"""Strategies of data-parallel training, one object each.

A strategy knows how gradients are grouped, how long their exchange takes, and what it needs and supports. Callers use
this interface and never check which strategy it is.
"""

from gpuyard.predictor.strategies.base import Strategies, Strategy
from gpuyard.predictor.strategies.dataparallel import DataParallel
from gpuyard.predictor.strategies.ddp import Ddp
from gpuyard.predictor.strategies.horovod import Horovod
from gpuyard.predictor.strategies.none import NoExchange
from gpuyard.predictor.strategies.parameter_server import DistributedReplicated, ParameterServer

STRATEGIES = Strategies(
    Ddp(), Horovod(), ParameterServer(), DataParallel(), DistributedReplicated(), NoExchange()
)
"""Users can name those in `specs.StrategyName`; the others occur only in published tables."""

__all__ = ["STRATEGIES", "Strategy"]
