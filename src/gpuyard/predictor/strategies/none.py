"""Jobs that run side by side and exchange nothing, as in some published tables."""

import numpy as np

from gpuyard.predictor import constants as c
from gpuyard.predictor.constants import Constant, Tuning
from gpuyard.predictor.strategies.base import SecondsBySize, Strategy
from gpuyard.predictor.table import StepTable


class NoExchange(Strategy):
    """Independent jobs without any exchange or waiting."""

    name = "none"
    options = frozenset({"compress"})  # has no effect
    unsupported_option = "independent jobs exchange nothing: {} needs ddp or horovod"
    synchronous = False

    def bucket_caps(self, cap_bytes: float | None) -> tuple[float, ...]:
        return (float("inf"),)

    def bucket_seconds(self, table: StepTable) -> SecondsBySize:
        return lambda _: np.zeros_like(table.nodes)

    def overlap(self, tuning: Tuning) -> Constant:
        return c.overlap(tuning.overlap_inside)

    def overlap_between(self, tuning: Tuning) -> Constant:
        return c.overlap_between(tuning.overlap_between)

    def slowdowns(self, tuning: Tuning) -> tuple[Constant, ...]:
        return ()
