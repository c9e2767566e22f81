"""The effect of a machine's topology on training, and a comparison of layouts with the same GPUs."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, get_args

from gpuyard.catalog import Gpu, ModelProfile
from gpuyard.errors import UnknownName
from gpuyard.hardware.graph import MachineGraph
from gpuyard.hardware.rings import (
    MAX_EXACT_GPUS,
    AllReduce,
    estimate_all_reduce,
    find_best_gpus,
    find_worst_gpus,
)
from gpuyard.predictor.platform import create_platform
from gpuyard.predictor.predicted import Prediction
from gpuyard.predictor.prediction import predict_cluster
from gpuyard.predictor.transport import RING_NAMES, ring_rate
from gpuyard.specs import Cluster, MachineSpec, Topology, Workload
from gpuyard.units import format_byte_rate

_NOTABLE_RATIO = 1.10  # best against worst choice
_CHOICES = (2, 4)


@dataclass(frozen=True)
class GpuChoice:
    """The best and the worst GPUs for a job of one size."""

    count: int
    best: AllReduce
    worst: AllReduce

    @property
    def ratio(self) -> float:
        return ring_rate(self.best) / ring_rate(self.worst)


@dataclass(frozen=True)
class TopologySummary:
    """All-reduce bandwidths by job size, choices of GPUs, and a verdict."""

    all_reduces: tuple[AllReduce, ...]  # the best for 2, 4, 8, … and for all GPUs
    choices: tuple[GpuChoice, ...]
    verdict: str


def summarize_topology(graph: MachineGraph) -> TopologySummary:
    """Summarize what a machine's wiring means for jobs on it."""
    total = len(graph.gpus)
    sizes = sorted(
        {size for size in (2, 4, 8, 16) if size < total} | ({total} if total > 1 else set())
    )
    searched = total <= MAX_EXACT_GPUS  # in larger machines the first GPUs represent all
    reduces = tuple(
        find_best_gpus(graph, size, rate=ring_rate)
        if searched and size < total
        else estimate_all_reduce(graph, graph.gpus[:size])
        for size in sizes
    )
    choices = tuple(
        GpuChoice(
            count,
            find_best_gpus(graph, count, rate=ring_rate),
            find_worst_gpus(graph, count, rate=ring_rate),
        )
        for count in _CHOICES
        if searched and count < total
    )
    return TopologySummary(reduces, choices, _describe_topology(graph, reduces, choices))


def _describe_topology(
    graph: MachineGraph, reduces: Sequence[AllReduce], choices: Sequence[GpuChoice]
) -> str:
    if not graph.gpus:
        return "This machine has no GPU."
    if not reduces:
        return "This machine has one GPU: nothing is exchanged inside it."
    sentences = [_describe_whole(graph, reduces)]
    sentences += [
        f"For {choice.count} GPUs, use {name_gpus(choice.best.gpus)} "
        f"({format_byte_rate(ring_rate(choice.best))}), not {name_gpus(choice.worst.gpus)} "
        f"({format_byte_rate(ring_rate(choice.worst))}): {choice.ratio:.1f} times as fast."
        for choice in choices
        if choice.ratio >= _NOTABLE_RATIO
    ]
    if any(reduce.staged for reduce in reduces):
        sentences.append(
            "These GPUs have no peer-to-peer access over PCIe: their exchange is staged through host memory. Published "
            "rates of such machines differ more than tenfold; measure yours with gpuyard bench collectives."
        )
    return " ".join(sentences)


def _describe_whole(graph: MachineGraph, reduces: Sequence[AllReduce]) -> str:
    """Compare the all-reduce over all GPUs with the largest part of the machine that is faster."""
    whole = reduces[-1]
    rate = format_byte_rate(ring_rate(whole))
    total = len(graph.gpus)
    faster = [r for r in reduces[:-1] if ring_rate(r) >= _NOTABLE_RATIO * ring_rate(whole)]
    by_socket = _gpus_by_socket(graph)
    if whole.kind == "socket" and faster:
        part = faster[-1]
        names = [name_gpus(group, word="") for group in by_socket]
        pairs = any(" and " in name for name in names)
        groups = ", and GPUs ".join(names) + "," if pairs else " and ".join(names)
        return (
            f"GPUs {groups} are on different sockets: an all-reduce over all {total} runs at {rate}, "
            f"within {len(part.gpus)} at {format_byte_rate(ring_rate(part))}; pin jobs of up to "
            f"{len(part.gpus)} GPUs to one socket."
        )
    if faster:
        part = faster[-1]
        return (
            f"An all-reduce over all {total} GPUs runs at {rate}, over {name_gpus(part.gpus)} at "
            f"{format_byte_rate(ring_rate(part))}."
        )
    return (
        f"An all-reduce over all {total} GPUs runs at {rate} over {RING_NAMES[whole.kind]}; "
        "fewer GPUs are no faster."
    )


def _gpus_by_socket(graph: MachineGraph) -> list[tuple[str, ...]]:
    keyed = sorted(graph.gpus, key=graph.find_socket)
    return [tuple(group) for _, group in groupby(keyed, key=graph.find_socket)]


def name_gpus(gpus: Sequence[str], word: str = "GPUs ") -> str:
    """Format names, e.g. ("GPU0", "GPU1", "GPU2", "GPU5") as "GPUs 0-2 and 5"."""
    numbers = [int(gpu.removeprefix("GPU")) for gpu in gpus if gpu.removeprefix("GPU").isdigit()]
    if len(numbers) != len(gpus):
        return ", ".join(gpus)
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    shown = [
        str(number) if len(run) < 3 else f"{run[0]}-{run[-1]}"
        for run in runs
        for number in (run if len(run) < 3 else run[:1])
    ]
    joined = shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
    return f"{word}{joined}"


@dataclass(frozen=True)
class LayoutPrediction:
    """The prediction for one layout with one number of GPUs."""

    layout: str
    all_reduce_bytes_per_second: float
    prediction: Prediction
    of_best: float  # samples/s relative to the best layout with as many GPUs

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
    """Predict every layout with every number of GPUs, in machines just large enough for the largest."""
    rows: list[tuple[str, float, Prediction]] = []
    for layout in layouts:
        cluster = _create_cluster(layout, gpu, max(counts))
        platform = create_platform(cluster)
        result = predict_cluster(workload, profile, cluster, counts, batches=(batch,))
        rows += [(layout, platform.inside(p.gpus).bytes_per_second, p) for p in result.predictions]
    best = {
        count: max(p.samples_per_second for _, _, p in rows if p.gpus == count) for count in counts
    }
    ordered = sorted(rows, key=lambda row: (counts.index(row[2].gpus), -row[2].samples_per_second))
    return [
        LayoutPrediction(layout, rate, p, p.samples_per_second / best[p.gpus])
        for layout, rate, p in ordered
    ]


def _create_cluster(layout: str, gpu: Gpu, count: int) -> Cluster:
    for topology in get_args(Topology):
        if topology == layout:
            machine = MachineSpec(gpu=gpu.id, gpus=count, topology=topology)
            return Cluster(name=layout, machine=machine)
    raise UnknownName("topology preset", layout, get_args(Topology))
