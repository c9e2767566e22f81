"""What figures of several GPUs say about a plan's shapes: each shape as the cluster that `gpuyard predict` would
be asked about, and its rows by what was measured."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gpuyard.catalog import ModelProfile
from gpuyard.planner.throughput import EXCHANGES, Grid, Lines, Shape, Throughputs, predict_shapes
from gpuyard.predict import (
    STRATEGIES,
    Calibration,
    Placement,
    PlatformScenario,
    platform_of,
)
from gpuyard.predict.compute import at_precision
from gpuyard.predict.interval import Reach
from gpuyard.predict.stacks.measured import measured_points, rates, updated
from gpuyard.predict.stacks.posterior import Posterior
from gpuyard.predict.table import Floats, Integers
from gpuyard.specs import Cluster, MachineSpec, Precision, Workload
from gpuyard.specs.plan import RemedyName


@dataclass(frozen=True)
class Trained:
    """All that a prediction of a shape is made from but the shape."""

    workload: Workload
    profile: ModelProfile
    lines: Lines
    grid: Grid
    calibration: Calibration | None = None

    def on(self, shape: Shape, precision: Precision, remedy: RemedyName) -> PlatformScenario:
        """As a plan predicts it: nobody knows its storage and its cores. A figure of several machines says nothing
        about a network unless it names the one that it was measured on."""
        machine = MachineSpec(gpu=shape.gpu.id, gpus=shape.gpus, topology=shape.topology)
        nodes = 1 if shape.network is None else max(2, *self.grid.nodes)
        cluster = Cluster(name=shape.gpu.id, nodes=nodes, machine=machine, network=shape.network)
        trained = at_precision(self.workload, self.profile, precision)
        figures = tuple(known for known in trained.measured if known.nodes == 1 or known.network)
        return PlatformScenario(
            workload=trained.model_copy(update={"dataset": None, "measured": figures}),
            profile=self.profile,
            platform=platform_of(cluster),
            line=self.lines[shape.gpu.id][precision],
            strategy=STRATEGIES[self.grid.strategy],
            exchange=EXCHANGES[remedy],
            cluster=cluster,
            calibration=self.calibration,
        )

    def predict(self, shapes: Sequence[Shape]) -> Throughputs:
        """All shapes at once, then again those of which figures of several GPUs are known, by these."""
        predicted = predict_shapes(self.workload, self.profile, shapes, self.lines, self.grid)
        columns = {
            name: getattr(predicted, name).copy()
            for name in ("samples_per_second", "low", "high", "scaling_efficiency")
        }
        for shape, precision, remedy, rows in self._alike(predicted, shapes):
            found = self._by_figures(predicted, shape, self.on(shape, precision, remedy), rows)
            for name, values in zip(columns, found, strict=False):  # none where nothing is known
                columns[name][rows] = values
        rate = columns["samples_per_second"]
        return replace(predicted, **columns, on_slow_network=rate, on_fast_network=rate)

    def _alike(
        self, predicted: Throughputs, shapes: Sequence[Shape]
    ) -> Iterator[tuple[Shape, Precision, RemedyName, Integers]]:
        """Rows of one shape, precision and remedy, where anybody has measured several of its GPUs."""
        starts = np.searchsorted(predicted.shape, np.arange(len(shapes) + 1))
        for number, shape in enumerate(shapes):
            if shape.gpu.id not in self._measured:
                continue
            rows = np.arange(starts[number], starts[number + 1])
            for rank, precision in enumerate(self.lines[shape.gpu.id]):
                for code, remedy in enumerate(self.grid.remedies):
                    same = (predicted.precision[rows] == rank) & (predicted.remedy[rows] == code)
                    if same.any():
                        yield shape, precision, remedy, rows[same]

    @cached_property
    def _measured(self) -> set[str]:
        hardware = self.calibration.hardware if self.calibration else ()
        given = {known.gpu for known in self.workload.measured if known.gpus > 1}
        return given | {entry.processor for entry in hardware if entry.points}

    @staticmethod
    def _by_figures(
        predicted: Throughputs, shape: Shape, scenario: PlatformScenario, rows: Integers
    ) -> tuple[Floats, ...]:
        """Rates, both ends and efficiencies; nothing where no figure is about such machines."""
        if not measured_points(scenario):
            return ()
        spots = [
            (Placement(int(nodes) * shape.gpus, int(nodes), shape.gpus), int(batch))
            for nodes, batch in zip(
                predicted.nodes[rows], predicted.batch_per_gpu[rows], strict=True
            )
        ]
        rate, gpus = predicted.samples_per_second[rows], predicted.gpus[rows]
        reach = Reach(np.log(rate / predicted.low[rows]), np.log(predicted.high[rows] / rate))
        seconds = gpus * predicted.batch_per_gpu[rows] / rate
        known = updated(scenario, spots, Posterior(np.log(seconds), reach))
        if known is None:
            return ()
        found, alone = known
        rate = rates(found, spots)
        return rate, *found.reach.ends(rate), rate / (gpus * alone)
