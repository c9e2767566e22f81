"""The same GPUs in machines of different layout: what the layout costs a workload."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_args

from gpuyard.catalog import Gpu, ModelProfile
from gpuyard.errors import UnknownName
from gpuyard.predict.platform import platform_of
from gpuyard.predict.prediction import Prediction, predict_cluster
from gpuyard.specs import Cluster, MachineSpec, Topology, Workload


@dataclass(frozen=True)
class LayoutPrediction:
    """One layout with one number of GPUs."""

    layout: str
    all_reduce_bytes_per_second: float
    prediction: Prediction
    of_best: float  # samples/s over those of the best layout with as many GPUs

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def compare_layouts(
    workload: Workload,
    profile: ModelProfile,
    layouts: Sequence[str],
    gpu: Gpu,
    counts: Sequence[int],
    *,
    batch: int,
) -> list[LayoutPrediction]:
    """Every layout with every number of GPUs, in machines just large enough for the largest."""
    made: list[tuple[str, float, Prediction]] = []
    for layout in layouts:
        cluster = _machine(layout, gpu, max(counts))
        platform = platform_of(cluster)
        predicted = predict_cluster(workload, profile, cluster, counts, batches=(batch,))
        made += [
            (layout, platform.inside(p.gpus).bytes_per_second, p) for p in predicted.predictions
        ]
    best = {
        count: max(p.samples_per_second for _, _, p in made if p.gpus == count) for count in counts
    }
    ordered = sorted(made, key=lambda m: (counts.index(m[2].gpus), -m[2].samples_per_second))
    return [
        LayoutPrediction(layout, rate, p, p.samples_per_second / best[p.gpus])
        for layout, rate, p in ordered
    ]


def _machine(layout: str, gpu: Gpu, count: int) -> Cluster:
    for topology in get_args(Topology):
        if topology == layout:
            machine = MachineSpec(gpu=gpu.id, gpus=count, topology=topology)
            return Cluster(name=layout, machine=machine)
    raise UnknownName("topology preset", layout, get_args(Topology))
