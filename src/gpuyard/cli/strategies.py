"""The `--strategy` option's values."""

from typing import get_args

from gpuyard.errors import UnknownName
from gpuyard.specs import StrategyName


def parse_strategy(name: str) -> StrategyName:
    """The strategy of this name."""
    for strategy in get_args(StrategyName):
        if strategy == name:
            return strategy  # type: ignore[no-any-return]
    raise UnknownName("strategy", name, get_args(StrategyName))
