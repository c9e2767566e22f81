"""Strategies of data-parallel training, one object each.

A strategy knows how gradients are grouped, how long their exchange takes, and what it needs and supports. Callers use
this interface and never check which strategy it is.
"""

from gpuyard.predict.strategies.base import Strategies, Strategy
from gpuyard.predict.strategies.dataparallel import DataParallel
from gpuyard.predict.strategies.ddp import Ddp
from gpuyard.predict.strategies.horovod import Horovod
from gpuyard.predict.strategies.none import NoExchange
from gpuyard.predict.strategies.parameter_server import DistributedReplicated, ParameterServer

STRATEGIES = Strategies(
    Ddp(), Horovod(), ParameterServer(), DataParallel(), DistributedReplicated(), NoExchange()
)
"""Users can name those in `specs.StrategyName`; the others occur only in published tables."""

__all__ = ["STRATEGIES", "Strategy"]
