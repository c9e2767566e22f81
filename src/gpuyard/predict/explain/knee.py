"""How many GPUs are worth adding: the knee of a scaling curve.

What added GPUs bring is reckoned in GPUs: from j to k GPUs, (T(k) − T(j)) / ((k − j) · T(1)) with the
samples a second T. It is 1 where scaling is perfect. The knee is the largest k for which this is at
least the threshold from *every* smaller j, so neither a dip (the first step out of a machine) nor
the recovery after it is taken for the whole curve. That k is where T(k) − threshold · k · T(1) is
largest.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuyard.predict.table import Floats, Placement, place
from gpuyard.units import format_number, format_share

DEFAULT_THRESHOLD = 0.5
_MOST_NODE_COUNTS = 256


@dataclass(frozen=True)
class Knee:
    """Where adding GPUs stops to be worth it."""

    threshold: float
    gpus: int
    samples_per_second: float
    scaling_efficiency: float
    most_gpus: int  # that were looked at
    beyond: float | None  # what the GPUs between the knee and most_gpus would bring, each

    def is_past(self, gpus: int) -> bool:
        """Whether some of so many GPUs are not worth adding: the one rule for explanations and verdicts."""
        return gpus > self.gpus

    @property
    def sentence(self) -> str:
        """Where it is, and what the rest of the cluster would bring."""
        wanted = f"a GPU is worth adding if it brings at least {format_share(self.threshold)} of what one does alone"
        if self.beyond is None:
            return f"The knee is beyond the cluster: {wanted}, and all {self.gpus} GPUs do."
        brings = f"{format_share(self.beyond)} each" if self.beyond > 0 else "nothing"
        many = "1 GPU" if self.gpus == 1 else f"{self.gpus} GPUs"
        return (
            f"The knee is at {many} ({format_number(self.samples_per_second)} samples/s): {wanted}, and "
            f"the other {self.most_gpus - self.gpus} of the cluster's {self.most_gpus} would bring {brings}."
        )


def find_knee(
    gpus: Sequence[int], samples_per_second: Floats, threshold: float = DEFAULT_THRESHOLD
) -> Knee:
    """The knee of a curve that starts at one GPU; the counts grow."""
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
        most_gpus=int(counts[-1]),
        beyond=float((in_gpus[-1] - in_gpus[at]) / added) if added else None,
    )


def placements_to_try(
    nodes: int, gpus_in_machine: int, gpus_per_node: int | None = None
) -> tuple[Placement, ...]:
    """One GPU, two and so on up to a full machine, then full machines: all numbers of them that
    a cluster offers, or as many as can be looked at, evenly spread in the logarithm."""
    per_node = gpus_per_node or gpus_in_machine
    steps = np.geomspace(1, nodes, _MOST_NODE_COUNTS) if nodes > _MOST_NODE_COUNTS else ()
    machines = np.unique(np.rint(steps)).astype(int).tolist() if len(steps) else range(1, nodes + 1)
    counts = [*range(1, per_node), *(int(n) * per_node for n in machines)]
    return tuple(
        # fewer than are taken of each machine fit into one
        place(count, nodes, gpus_in_machine, per_node if count % per_node == 0 else None)
        for count in counts
    )
