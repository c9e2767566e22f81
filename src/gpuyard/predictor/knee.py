"""The knee of a scaling curve: how many GPUs are worth adding.

The gain of added GPUs is measured in GPUs: from j to k GPUs it is (T(k) − T(j)) / ((k − j) · T(1)), where T is the
number of samples per second. It is 1 for perfect scaling. The knee is the largest k for which the gain is at least
the threshold from *every* smaller j. So neither a dip (at the first step out of a machine) nor the recovery after it
counts as the whole curve. This k maximizes T(k) − threshold · k · T(1).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuyard.predictor.placement import Placement, place
from gpuyard.predictor.table import Floats
from gpuyard.units import format_number, format_share

DEFAULT_THRESHOLD = 0.5
_MAX_NODE_COUNTS = 256


@dataclass(frozen=True)
class Knee:
    """The number of GPUs beyond which adding more is not worth it."""

    threshold: float
    gpus: int
    samples_per_second: float
    scaling_efficiency: float
    max_gpus: int  # largest number considered
    beyond: float | None  # mean gain of each GPU between the knee and max_gpus

    def is_past(self, gpus: int) -> bool:
        """Return whether this many GPUs include some that are not worth adding."""
        return gpus > self.gpus

    @property
    def sentence(self) -> str:
        """A sentence about the knee and the gain from the rest of the cluster."""
        rule = f"a GPU is worth adding if it gains at least {format_share(self.threshold)} of a single GPU's rate"
        if self.beyond is None:
            return f"The knee is beyond the cluster: {rule}, and all {self.gpus} GPUs do."
        gain = f"{format_share(self.beyond)} each" if self.beyond > 0 else "nothing"
        gpus = "1 GPU" if self.gpus == 1 else f"{self.gpus} GPUs"
        return (
            f"The knee is at {gpus} ({format_number(self.samples_per_second)} samples/s): {rule}, and "
            f"the other {self.max_gpus - self.gpus} of the cluster's {self.max_gpus} would gain {gain}."
        )


def find_knee(
    gpus: Sequence[int], samples_per_second: Floats, threshold: float = DEFAULT_THRESHOLD
) -> Knee:
    """Find the knee of a curve that starts at one GPU, with increasing numbers of GPUs."""
    if not gpus or gpus[0] != 1:
        raise ValueError("a scaling curve starts at one GPU")
    counts = np.asarray(gpus, dtype=float)
    in_gpus = samples_per_second / samples_per_second[0]
    surplus = in_gpus - threshold * counts
    at = len(counts) - 1 - int(np.argmax(surplus[::-1]))
    added = counts[-1] - counts[at]
    return Knee(
        threshold=threshold,
        gpus=int(counts[at]),
        samples_per_second=float(samples_per_second[at]),
        scaling_efficiency=float(in_gpus[at] / counts[at]),
        max_gpus=int(counts[-1]),
        beyond=float((in_gpus[-1] - in_gpus[at]) / added) if added else None,
    )


def list_knee_placements(
    nodes: int, gpus_in_machine: int, gpus_per_node: int | None = None
) -> tuple[Placement, ...]:
    """List placements from one GPU to a full machine, then of full machines.

    A large cluster is sampled at numbers of machines that are evenly spaced on a log scale.
    """
    per_node = gpus_per_node or gpus_in_machine
    steps = np.geomspace(1, nodes, _MAX_NODE_COUNTS) if nodes > _MAX_NODE_COUNTS else ()
    machines = np.unique(np.rint(steps)).astype(int).tolist() if len(steps) else range(1, nodes + 1)
    counts = [*range(1, per_node), *(int(n) * per_node for n in machines)]
    return tuple(
        # a partial machine is always a single one
        place(count, nodes, gpus_in_machine, per_node if count % per_node == 0 else None)
        for count in counts
    )
