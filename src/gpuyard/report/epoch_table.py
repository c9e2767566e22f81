"""Epoch times as a table: a row for each batch size, a column for each configuration."""

from dataclasses import dataclass

from gpuyard.study.result import Basis, WorkloadResult


@dataclass(frozen=True)
class EpochColumn:
    """One configuration."""

    platform: str
    gpus: int
    basis: Basis


@dataclass(frozen=True)
class EpochTable:
    """Seconds by batch size, None where there are none."""

    columns: tuple[EpochColumn, ...]
    rows: tuple[tuple[int, tuple[float | None, ...]], ...]


def epoch_table(workload: WorkloadResult) -> EpochTable:
    """Turn the list of epoch times on its side."""
    cells = {
        (e.batch_per_gpu, EpochColumn(e.platform, e.gpus, e.basis)): e.seconds
        for e in workload.epoch_times
    }
    columns = tuple(dict.fromkeys(column for _, column in cells))
    return EpochTable(
        columns,
        tuple(
            (batch, tuple(cells.get((batch, column)) for column in columns))
            for batch in sorted({batch for batch, _ in cells})
        ),
    )
