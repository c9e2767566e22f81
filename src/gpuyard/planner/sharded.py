"""Predict a model that is divided among GPUs: the fastest layout that fits, on every shape and number of machines.

Layouts and their memory depend only on the GPUs of one machine and the number of machines, so they are listed once for
all GPUs and networks; the time of all layouts that fit is computed in one table.
"""

import functools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gpuyard.catalog import Gpu
from gpuyard.catalog import gpus as gpus_table
from gpuyard.choices import LargePrecision
from gpuyard.errors import UserMistake
from gpuyard.planner.machine_shapes import MachineShape, find_same_wiring, load_fabric
from gpuyard.planner.throughput import Grid, Throughputs, node_counts
from gpuyard.predictor.constants import load_tuning
from gpuyard.predictor.explain.next_run import NextRun
from gpuyard.predictor.large.cluster import (
    ClusterColumns,
    choose_usual_precision,
    find_peak_flops,
    find_sixteen_bit_peak,
    list_inside_rates,
)
from gpuyard.predictor.large.constants import load_fit
from gpuyard.predictor.large.effects import has_evidence
from gpuyard.predictor.large.evaluation import (
    compute_layout_memory,
    compute_layout_step,
    list_layouts,
    needed_bytes,
    select_layout,
)
from gpuyard.predictor.large.interval import find_interval
from gpuyard.predictor.large.layout import Layout, LayoutColumns
from gpuyard.predictor.large.training import LargeTraining
from gpuyard.predictor.table import Floats, Integers, chunks
from gpuyard.predictor.transport import MachineLinks, Networks
from gpuyard.specs import Cluster, MachineSpec, Topology, Workload

_CHUNK_ROWS = 16_384  # pieces that stay in the processor's cache


@dataclass(frozen=True)
class _PlacedLayout:
    """The best layout of one shape on one number of machines, in one precision."""

    shape: int
    nodes: int
    precision: int  # index into the GPU's precisions
    layout: Layout
    tokens_per_second: float
    efficiency: float  # share of the step in which GPUs compute
    memory_bytes: float


@dataclass(frozen=True)
class ShardedTraining:
    """Trains a model divided among GPUs."""

    workload: Workload
    training: LargeTraining
    grid: Grid
    by_gpu: Mapping[str, tuple[LargePrecision, ...]]
    precision_given: bool = False
    gpus: int | None = None  # only this number of GPUs; None: every number of machines in the grid
    speeds: Mapping[str, float] = field(default_factory=dict)  # left by a power cap, by GPU

    def precisions(self, gpu: str) -> tuple[LargePrecision, ...]:
        """Return the precisions that are tried on a GPU."""
        return self.by_gpu.get(gpu, ())

    def describe_speed(self, gpu: str, precision: LargePrecision) -> tuple[str, str]:
        """Return where the speed comes from, and a caveat if nothing is published for this GPU."""
        known_gpu = gpus_table().get(gpu)
        if any(point.gpu == gpu for point in self.training.measured):
            return "measured: the workload's own figures", ""
        experts = self.training.shape.experts
        if has_evidence(load_fit(), known_gpu, precision, experts):
            return "published: formulas fitted to published runs of large models", ""
        return "roofline: formulas fitted to other GPUs", (
            f"No run of a {'model with experts' if experts else 'large model'} on {known_gpu.architecture} GPUs in "
            f"{precision} is published: the interval is wide."
        )

    def count_configurations(self, shape: MachineShape) -> int:
        return len(self._node_counts(shape)) * len(self.precisions(shape.gpu.id))

    def suggest_next_run(
        self, shape: MachineShape, precision: LargePrecision, predicted: Throughputs, row: int
    ) -> NextRun | None:
        """Return None: which smaller run would help most is not known for divided models."""
        del shape, precision, predicted, row
        return None

    def predict(self, shapes: Sequence[MachineShape]) -> Throughputs:
        """Predict all shapes on all numbers of machines on which some layout is even."""
        entries = [
            (n, count) for n, shape in enumerate(shapes) for count in self._node_counts(shape)
        ]
        return self._tabulate(self._find_best(shapes, entries), shapes)

    def add_where_needed(
        self, predicted: Throughputs, shapes: Sequence[MachineShape]
    ) -> Throughputs:
        """Add the fastest layout for the machines on which no setting with whole copies fits."""
        limits = np.array([shape.gpu.memory_bytes for shape in shapes])[predicted.shape]
        machines = predicted.shape * (int(predicted.nodes.max(initial=0)) + 1) + predicted.nodes
        fitting = np.unique(machines[predicted.memory_bytes <= limits])
        lacking = np.flatnonzero(~np.isin(machines, fitting))
        _, first = np.unique(machines[lacking], return_index=True)
        entries = [(int(predicted.shape[i]), int(predicted.nodes[i])) for i in lacking[first]]
        if not entries:
            return predicted
        added = self._tabulate(self._find_best(shapes, entries), shapes)
        order = np.argsort(np.concatenate([predicted.shape, added.shape]), kind="stable")
        columns = {
            name: np.concatenate([column, getattr(added, name)])[order]
            for name, column in vars(predicted).items()
            if name != "layouts"
        }
        return Throughputs(**columns, layouts=added.layouts)

    def explain_refusal(self, sizes: Iterable[int]) -> str:
        """Return why no layout works on machines of these numbers of GPUs, or an empty string if one does."""
        reason = ""
        for gpus in sorted(sizes, reverse=True):
            try:
                list_layouts(self.training, gpus, gpus)
            except UserMistake as problem:
                reason = reason or str(problem)
            else:
                return ""
        return reason

    def _node_counts(self, shape: MachineShape) -> tuple[int, ...]:
        if self.gpus is None:
            return node_counts(shape, self.grid)
        nodes, rest = divmod(self.gpus, shape.gpus)
        return (nodes,) if not rest and (nodes > 1) == (shape.network is not None) else ()

    def _find_best(
        self, shapes: Sequence[MachineShape], entries: Sequence[tuple[int, int]]
    ) -> list[_PlacedLayout]:
        groups: dict[tuple[int, int, LargePrecision], list[int]] = defaultdict(list)
        for number, nodes in entries:
            shape = shapes[number]
            for precision in self.precisions(shape.gpu.id):
                # PyTorch computes a lacking precision in fp32, but only whole copies are predicted so
                if _can_compute(shape.gpu, precision):
                    groups[shape.gpus, nodes, precision].append(number)
        best: list[_PlacedLayout] = []
        for (domain, nodes, precision), numbers in groups.items():
            training = replace(self.training, precision=precision)
            try:
                layouts = list_layouts(training, domain * nodes, domain)
            except UserMistake:  # nothing divides evenly among this number of GPUs
                continue
            kinds = [shapes[number] for number in numbers]
            speeds = np.array([self.speeds.get(kind.gpu.id, 1.0) for kind in kinds])
            chosen = _choose(training, layouts, kinds, nodes, speeds)
            for number, (index, rate, efficiency, memory) in zip(numbers, chosen, strict=True):
                rank = self.precisions(shapes[number].gpu.id).index(precision)
                best.append(
                    _PlacedLayout(
                        number, nodes, rank, select_layout(layouts, index), rate, efficiency, memory
                    )
                )
        return sorted(best, key=lambda placed: (placed.shape, placed.nodes, placed.precision))

    def _tabulate(
        self, best: Sequence[_PlacedLayout], shapes: Sequence[MachineShape]
    ) -> Throughputs:
        def column(values: list[float]) -> Floats:
            return np.array(values, dtype=float)

        spreads = [self._find_interval(shapes[placed.shape], placed) for placed in best]
        low, high, factor = column([v for row in spreads for v in row]).reshape(-1, 3).T
        gpus = np.array([placed.layout.gpus for placed in best], dtype=np.int64)
        batch = np.array([placed.layout.global_batch for placed in best], dtype=np.int64)
        tokens = column([placed.tokens_per_second for placed in best])
        rate = tokens * factor / self.training.length
        return Throughputs(
            shape=np.array([placed.shape for placed in best], dtype=np.int64),
            nodes=np.array([placed.nodes for placed in best], dtype=np.int64),
            batch_per_gpu=np.maximum(batch // np.maximum(gpus, 1), 1),
            remedy=np.full(len(best), self._no_remedy, dtype=np.int64),
            precision=np.array([placed.precision for placed in best], dtype=np.int64),
            gpus=gpus,
            samples_per_second=rate,
            low=rate * low,
            high=rate * high,
            scaling_efficiency=column([placed.efficiency for placed in best]),
            memory_bytes=column([placed.memory_bytes for placed in best]),
            update_samples=batch.astype(float),
            on_slow_network=rate,
            on_fast_network=rate,
            layout=np.arange(len(best), dtype=np.int64),
            layouts=tuple(placed.layout for placed in best),
        )

    @property
    def _no_remedy(self) -> int:
        return self.grid.remedies.index("none") if "none" in self.grid.remedies else 0

    def _find_interval(
        self, shape: MachineShape, placed: _PlacedLayout
    ) -> tuple[float, float, float]:
        precision = self.precisions(shape.gpu.id)[placed.precision]
        training = replace(self.training, precision=precision)
        machine = MachineSpec(gpu=shape.gpu.id, gpus=shape.gpus, topology=shape.topology)
        cluster = Cluster.model_construct(
            name=shape.gpu.id,
            nodes=placed.nodes,
            machine=machine,
            network=shape.network,
            storage=None,
        )
        return find_interval(training, cluster, shape.gpu, placed.layout)


def find_precisions(
    gpus: Sequence[Gpu], precisions: Sequence[LargePrecision]
) -> dict[str, tuple[LargePrecision, ...]]:
    """Return the precisions of each GPU that it can compute in; if none is given, its fastest usual one."""
    by_gpu: dict[str, tuple[LargePrecision, ...]] = {}
    for gpu in gpus:
        able = [p for p in precisions or (choose_usual_precision(gpu),) if _can_compute(gpu, p)]
        if able:
            by_gpu[gpu.id] = tuple(dict.fromkeys(able))
    return by_gpu


def _can_compute(gpu: Gpu, precision: LargePrecision) -> bool:
    try:
        find_peak_flops(gpu, precision)
    except UserMistake:
        return False
    return True


def _choose(
    training: LargeTraining,
    layouts: LayoutColumns,
    shapes: Sequence[MachineShape],
    nodes: int,
    speeds: Floats,
) -> Iterator[tuple[int, float, float, float]]:
    """Yield the best layout of each shape: its index, tokens per second, efficiency, and memory.

    If nothing fits, it is the layout that needs the least memory. `speeds` has the share of its computing speed that a
    power cap leaves a GPU of each shape.
    """
    needed = needed_bytes(compute_layout_memory(training, layouts).total)
    tried: list[Integers] = []
    for shape in shapes:
        fits = np.flatnonzero(needed <= shape.gpu.memory_bytes)
        tried.append(fits if len(fits) else np.array([int(needed.argmin())]))
    counts = np.array([len(rows) for rows in tried])
    layout = np.concatenate(tried)
    of_shape = np.repeat(np.arange(len(shapes)), counts)
    columns = _describe_shapes(shapes, nodes, training.precision)
    gpus = [shape.gpu for shape in shapes]
    total, computing = np.empty(len(layout)), np.empty(len(layout))
    for part in chunks(len(layout), _CHUNK_ROWS):
        rows = of_shape[part]
        step = compute_layout_step(
            training, layouts.take(layout[part]), columns.take(rows), [gpus[i] for i in rows]
        ).slow_compute(speeds[rows])
        total[part] = step.total
        computing[part] = step.compute + step.recompute + step.optimizer
    batch = np.broadcast_to(np.asarray(layouts.global_batch), (len(layouts),))[layout]
    rate = batch * training.length / total
    ends = np.cumsum(counts)
    for start, end in zip(ends - counts, ends, strict=True):
        at = start + int(rate[start:end].argmax())
        index = int(layout[at])
        yield index, float(rate[at]), float(computing[at] / total[at]), float(needed[index])


def _describe_shapes(shapes: Sequence[MachineShape], nodes: int, precision: str) -> ClusterColumns:
    """Return the rates of `nodes` machines of each shape."""
    fabrics = [load_fabric(shape.network) if shape.network else None for shape in shapes]
    between, hop = Networks.from_fabrics(fabrics).exchange_rates(
        np.full(len(shapes), float(nodes)), load_tuning()
    )
    per_machine = np.array([float(shape.gpus) for shape in shapes])

    def column(values: Iterator[float]) -> Floats:
        return np.fromiter(values, dtype=float, count=len(shapes))

    return ClusterColumns(
        gemm_flops_per_second=column(find_peak_flops(shape.gpu, precision) for shape in shapes),
        attention_flops_per_second=column(find_sixteen_bit_peak(shape.gpu) for shape in shapes),
        memory_bytes_per_second=column(shape.gpu.memory_bytes_per_second for shape in shapes),
        memory_bytes=column(float(shape.gpu.memory_bytes) for shape in shapes),
        domain=per_machine,
        inside=np.array(
            [_list_inside_rates(find_same_wiring(s.gpu), s.gpus, s.topology) for s in shapes]
        ),
        between_bytes_per_second=between / per_machine,
        hop_seconds=hop,
    )


@functools.cache
def _list_inside_rates(gpu: str, gpus: int, topology: Topology) -> tuple[float, ...]:
    links = MachineLinks.from_topology(gpus_table().get(gpu), gpus, topology)
    return tuple(list_inside_rates(links.pipe, gpus))
