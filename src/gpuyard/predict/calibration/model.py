"""Rows on one kind of hardware through the predictor's own step, with constants that a fit can move."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpuyard.predict.calibration.defaults import (
    default_overlap,
    default_platform,
    default_variation,
)
from gpuyard.predict.calibration.rows import Hardware, LineKey, TrainingRow
from gpuyard.predict.compute import ComputeLine
from gpuyard.predict.scenario import PlatformScenario
from gpuyard.predict.strategies import STRATEGIES
from gpuyard.predict.strategies.ddp import all_reduce
from gpuyard.predict.table import Configurations, Floats, Placement, StepTable, step_parts

Lines = Mapping[LineKey, tuple[float, float]]
_NO_LINE = ComputeLine(1.0, 1.0, "measured here", "filled in by the fit")


@dataclass(frozen=True)
class RowBlock:
    """Rows of one workload and strategy, as the table that the step model reckons with."""

    key: LineKey
    rows: tuple[TrainingRow, ...]
    table: StepTable

    def tabled(
        self, values: Mapping[str, float], fixed_seconds: float, seconds_per_sample: float
    ) -> StepTable:
        """With a line and those of `free_constants`; what is not there keeps its default."""
        table, traffic = self.table, self.table.traffic
        hides = traffic.strategy.calibrated

        def column(name: str, default: Floats) -> Floats:
            return np.full(len(self.rows), values[name]) if name in values else default

        return replace(
            table,
            fixed_seconds=np.full(len(self.rows), fixed_seconds),
            seconds_per_sample=np.full(len(self.rows), seconds_per_sample),
            inside_bytes_per_second=column("link_inside", table.inside_bytes_per_second),
            inside_latency_seconds=column("hop_latency", table.inside_latency_seconds),
            traffic=replace(
                traffic,
                launch_seconds=values.get("collective_launch", traffic.launch_seconds),
                backward_share=values.get("backward_share", traffic.backward_share),
                variation=values.get("step_variation", traffic.variation),
                overlap=values.get("overlap", traffic.overlap) if hides else traffic.overlap,
            ),
        )


@dataclass(frozen=True)
class Times:
    """Seconds of every row, in the order of the blocks."""

    step: Floats
    busy: Floats  # without exchange, of the slowest worker
    all_reduce: Floats


def compiled(hardware: Hardware, rows: Sequence[TrainingRow]) -> tuple[RowBlock, ...]:
    platform = default_platform(hardware)
    grouped: dict[tuple[LineKey, str], list[TrainingRow]] = {}
    for row in rows:
        grouped.setdefault((row.key, row.strategy), []).append(row)
    blocks = []
    for (key, _), members in grouped.items():
        first, strategy = members[0], STRATEGIES[members[0].strategy]
        scenario = PlatformScenario(
            first.workload,
            first.profile,
            # input is part of a measured step, as it is of a line that is fitted to it
            replace(platform, host_to_gpu_bytes_per_second=None, storage_bytes_per_second=None),
            _NO_LINE,
            strategy,
            overlap=default_overlap(hardware) if strategy.calibrated else None,
            variation=default_variation(hardware),
        )
        spots = [(Placement(row.workers, 1, row.workers), row.batch_per_worker) for row in members]
        blocks.append(RowBlock(key, tuple(members), scenario.table(Configurations.of(spots))))
    return tuple(blocks)


def times(blocks: Sequence[RowBlock], constants: Mapping[str, float], lines: Lines) -> Times:
    """What the step model says of every row."""
    step, busy, bare = [], [], []
    for block in blocks:
        table = block.tabled(constants, *lines[block.key])
        parts = step_parts(table)
        step.append(parts.step_seconds)
        busy.append(parts.compute_seconds + parts.straggler_seconds)
        size = np.asarray(table.traffic.buckets.total_bytes)
        bare.append(all_reduce(table, table.traffic.launch_seconds)(size))
    return Times(np.concatenate(step), np.concatenate(busy), np.concatenate(bare))
