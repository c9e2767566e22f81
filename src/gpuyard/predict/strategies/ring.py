"""What DistributedDataParallel and Horovod have in common: gradients are all-reduced."""

from typing import ClassVar

import numpy as np

from gpuyard.predict import constants as c
from gpuyard.predict.all_reduce import SecondsBySize, all_reduce, hierarchical
from gpuyard.predict.constants import Constant
from gpuyard.predict.strategies import remedies as offered
from gpuyard.predict.strategies.base import Strategy
from gpuyard.predict.table import Table
from gpuyard.predict.tuning import Tuning


class Ring(Strategy):
    """One process a GPU. Whether it is a ring or a tree, the library chooses."""

    options = frozenset({"accumulate", "bucket_mb", "compress", "hierarchical", "local_sgd"})
    calibrated = True
    remedies: ClassVar[tuple[offered.Proposals, ...]] = (
        offered.half_precision,
        offered.accumulation,
        offered.local_sgd,
        offered.power_sgd,
        offered.hierarchical,
        offered.bucket_size,
    )

    def bucket_seconds(self, table: Table) -> SecondsBySize:
        launch = table.traffic.launch_seconds
        flat = all_reduce(table, launch)
        if not table.traffic.hierarchical:
            return flat
        levels = hierarchical(table, launch)
        return lambda size_bytes: np.minimum(flat(size_bytes), levels(size_bytes))

    def overlap(self, tuning: Tuning) -> Constant:
        return c.overlap(tuning.overlap_inside)

    def overlap_between(self, tuning: Tuning) -> Constant:
        return c.overlap_between(tuning.overlap_between)
