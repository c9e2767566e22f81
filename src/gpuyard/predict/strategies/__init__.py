"""One object a strategy: how gradients are grouped, what their exchange takes, what it needs and allows.

Whoever makes a prediction asks the object, and never which one it is.
"""

from gpuyard.errors import UnknownName
from gpuyard.predict.strategies.base import Strategy
from gpuyard.predict.strategies.dataparallel import DataParallel
from gpuyard.predict.strategies.ddp import Ddp
from gpuyard.predict.strategies.horovod import Horovod
from gpuyard.predict.strategies.none import NoExchange
from gpuyard.predict.strategies.parameter_server import DistributedReplicated, ParameterServer

STRATEGIES: dict[str, Strategy] = {
    strategy.name: strategy
    for strategy in (
        Ddp(),
        Horovod(),
        ParameterServer(),
        DataParallel(),
        DistributedReplicated(),
        NoExchange(),
    )
}
"""Those that users name are `specs.StrategyName`; the others are only in published tables."""


def strategy_of(name: str) -> Strategy:
    """By its name."""
    if name not in STRATEGIES:
        raise UnknownName("strategy", name, STRATEGIES)
    return STRATEGIES[name]


__all__ = ["STRATEGIES", "Strategy", "strategy_of"]
