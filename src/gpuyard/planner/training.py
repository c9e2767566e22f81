"""The ways to train a plan's workload on each machine: a whole copy on every GPU, or a model divided among them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, cast

import numpy as np

from gpuyard.catalog import ModelProfile
from gpuyard.choices import LargePrecision
from gpuyard.planner.machine_shapes import MachineShape
from gpuyard.planner.sharded import ShardedTraining
from gpuyard.planner.throughput import (
    EXCHANGES,
    ComputeLineTable,
    Grid,
    Throughputs,
    count_configurations,
    predict_shapes,
)
from gpuyard.predictor import STRATEGIES, Placement, PlatformScenario, create_platform
from gpuyard.predictor import predict as predict_placements
from gpuyard.predictor.calibration.document import Calibration
from gpuyard.predictor.compute import change_workload_precision
from gpuyard.predictor.explain.next_run import NextRun, find_next_run
from gpuyard.predictor.interval import PredictionInterval
from gpuyard.predictor.software_stacks.evidence import (
    find_measured_points,
    posterior_rates,
    update_prediction,
)
from gpuyard.predictor.software_stacks.posterior import Posterior
from gpuyard.predictor.table import Floats, Integers
from gpuyard.specs import Cluster, MachineSpec, Precision, Workload
from gpuyard.specs.plan_candidates import RemedyName


class Training(Protocol):
    """The questions of a plan to a way to train."""

    @property
    def workload(self) -> Workload: ...
    @property
    def grid(self) -> Grid: ...
    @property
    def precision_given(self) -> bool: ...
    def precisions(self, gpu: str) -> tuple[LargePrecision, ...]: ...
    def describe_speed(self, gpu: str, precision: LargePrecision) -> tuple[str, str]: ...
    def count_configurations(self, shape: MachineShape) -> int: ...
    def predict(self, shapes: Sequence[MachineShape]) -> Throughputs: ...
    def suggest_next_run(
        self, shape: MachineShape, precision: LargePrecision, predicted: Throughputs, row: int
    ) -> NextRun | None: ...


@dataclass(frozen=True)
class DataParallel:
    """Trains a whole copy of the model on every GPU: everything except the shape that a prediction needs.

    If a machine lacks the memory in every setting and the model's shape is known, `sharded` divides the model.
    """

    workload: Workload
    profile: ModelProfile
    lines: ComputeLineTable
    grid: Grid
    calibration: Calibration | None = None
    precision_given: bool = False
    sharded: "ShardedTraining | None" = None

    def precisions(self, gpu: str) -> tuple[LargePrecision, ...]:
        """Return the precisions that are tried on a GPU."""
        return tuple(self.lines.get(gpu, ()))

    def describe_speed(self, gpu: str, precision: LargePrecision) -> tuple[str, str]:
        """Return where the speed of one GPU comes from, and a caveat if nothing is published for it."""
        line = self.lines[gpu][cast("Precision", precision)]
        return f"{line.basis}: {line.source}", line.caveat

    def count_configurations(self, shape: MachineShape) -> int:
        return count_configurations(shape, self.lines, self.grid)

    def suggest_next_run(
        self, shape: MachineShape, precision: LargePrecision, predicted: Throughputs, row: int
    ) -> NextRun | None:
        """Suggest the smaller run that would narrow a prediction most."""
        if predicted.layout[row] >= 0:
            return None
        remedy = self.grid.remedies[predicted.remedy[row]]
        scenario = self.create_scenario(shape, cast("Precision", precision), remedy)
        placements = scenario.platform.placements([int(predicted.gpus[row])])
        result = predict_placements(scenario, placements, [int(predicted.batch_per_gpu[row])])
        return find_next_run(scenario, result.predictions[0])

    def create_scenario(
        self, shape: MachineShape, precision: Precision, remedy: RemedyName
    ) -> PlatformScenario:
        """Create the scenario of one shape, without storage and CPU cores, which a plan does not know.

        Figures of several machines count only if they name the network they were measured on.
        """
        machine = MachineSpec(gpu=shape.gpu.id, gpus=shape.gpus, topology=shape.topology)
        nodes = 1 if shape.network is None else max(2, *self.grid.nodes)
        cluster = Cluster(name=shape.gpu.id, nodes=nodes, machine=machine, network=shape.network)
        workload = change_workload_precision(self.workload, self.profile, precision)
        figures = tuple(f for f in workload.measured if f.nodes == 1 or f.network)
        return PlatformScenario(
            workload=workload.model_copy(update={"dataset": None, "measured": figures}),
            profile=self.profile,
            platform=create_platform(cluster),
            line=self.lines[shape.gpu.id][precision],
            strategy=STRATEGIES[self.grid.strategy],
            exchange=EXCHANGES[remedy],
            cluster=cluster,
            calibration=self.calibration,
        )

    def predict(self, shapes: Sequence[MachineShape]) -> Throughputs:
        """Predict all shapes at once, then update those that have figures for several GPUs."""
        predicted = predict_shapes(self.workload, self.profile, shapes, self.lines, self.grid)
        columns = {
            name: getattr(predicted, name).copy()
            for name in ("samples_per_second", "low", "high", "scaling_efficiency")
        }
        for shape, precision, remedy, rows in self._group_rows(predicted, shapes):
            scenario = self.create_scenario(shape, precision, remedy)
            updated = self._apply_figures(predicted, shape, scenario, rows)
            for name, values in zip(columns, updated, strict=False):  # empty without figures
                columns[name][rows] = values
        rate = columns["samples_per_second"]
        predicted = replace(predicted, **columns, on_slow_network=rate, on_fast_network=rate)
        return self.sharded.add_where_needed(predicted, shapes) if self.sharded else predicted

    def _group_rows(
        self, predicted: Throughputs, shapes: Sequence[MachineShape]
    ) -> Iterator[tuple[MachineShape, Precision, RemedyName, Integers]]:
        """Group the rows of GPUs with figures for several of them by shape, precision, and remedy."""
        starts = np.searchsorted(predicted.shape, np.arange(len(shapes) + 1))
        for number, shape in enumerate(shapes):
            if shape.gpu.id not in self._measured_gpus:
                continue
            rows = np.arange(starts[number], starts[number + 1])
            for rank, precision in enumerate(self.lines[shape.gpu.id]):
                for code, remedy in enumerate(self.grid.remedies):
                    same = (predicted.precision[rows] == rank) & (predicted.remedy[rows] == code)
                    if same.any():
                        yield shape, precision, remedy, rows[same]

    @cached_property
    def _measured_gpus(self) -> set[str]:
        hardware = self.calibration.hardware if self.calibration else ()
        in_workload = {figure.gpu for figure in self.workload.measured if figure.gpus > 1}
        return in_workload | {entry.processor for entry in hardware if entry.points}

    @staticmethod
    def _apply_figures(
        predicted: Throughputs, shape: MachineShape, scenario: PlatformScenario, rows: Integers
    ) -> tuple[Floats, ...]:
        """Return rates, both interval ends, and efficiencies; nothing if no figure applies to such machines."""
        if not find_measured_points(scenario):
            return ()
        configurations = [
            (Placement(int(nodes) * shape.gpus, int(nodes), shape.gpus), int(batch))
            for nodes, batch in zip(
                predicted.nodes[rows], predicted.batch_per_gpu[rows], strict=True
            )
        ]
        rate, gpus = predicted.samples_per_second[rows], predicted.gpus[rows]
        interval = PredictionInterval(
            np.log(rate / predicted.low[rows]), np.log(predicted.high[rows] / rate)
        )
        seconds = gpus * predicted.batch_per_gpu[rows] / rate
        updated = update_prediction(scenario, configurations, Posterior(np.log(seconds), interval))
        if updated is None:
            return ()
        posterior, single_gpu_rate = updated
        rate = posterior_rates(posterior, configurations)
        return rate, *posterior.interval.bounds(rate), rate / (gpus * single_gpu_rate)
