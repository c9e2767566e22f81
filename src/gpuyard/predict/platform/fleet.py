"""Many kinds of machines on many networks at once, for predictions by the hundred thousand."""

from dataclasses import dataclass

from gpuyard.predict.constants import Constant
from gpuyard.predict.table import Floats, Integers, Links, Rows
from gpuyard.specs import Dataset


@dataclass(frozen=True)
class Fleet:
    """One entry a spot: a number of machines of one kind on one network, all GPUs of them used. It has
    neither storage nor cores that could be short, and nothing was measured on it."""

    nodes: Floats
    gpus_per_node: Floats
    of_spots: Links

    def rows(self, spot: Integers, batch_per_gpu: Floats) -> Rows:
        return Rows(self.nodes[spot], self.gpus_per_node[spot], batch_per_gpu, spot=spot)

    def constant(self, default: Constant) -> Constant:
        return default

    def links(self, rows: Rows, dataset: Dataset | None) -> Links:  # noqa: ARG002
        """What each row gets."""
        if rows.spot is None:
            raise ValueError("rows of a fleet say which of its spots they are about")
        return self.of_spots.take(rows.spot)
