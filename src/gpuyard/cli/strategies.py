"""The `--strategy` option's values."""

from typing import get_args

from gpuyard.errors import UnknownName
from gpuyard.specs import Strategy


def parse_strategy(name: str) -> Strategy:
    """The strategy of this name."""
    for strategy in get_args(Strategy):
        if strategy == name:
            return strategy  # type: ignore[no-any-return]
    raise UnknownName("strategy", name, get_args(Strategy))
