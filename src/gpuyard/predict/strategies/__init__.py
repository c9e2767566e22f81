"""One object a strategy: how gradients are grouped, what their exchange takes, what it needs and allows.

Whoever makes a prediction asks the object, and never which one it is.
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
"""Those that users name are `specs.StrategyName`; the others are only in published tables."""

__all__ = ["STRATEGIES", "Strategy"]
