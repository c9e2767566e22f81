"""The ranks of a sweep's worker count: what each is told in common, and how they are started."""

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from gpuyard.measure.training.job import RankJob
from gpuyard.measure.training.sweep import Sweep
from gpuyard.run.launch import Environment
from gpuyard.run.protocol import Refusal
from gpuyard.run.ranks import run_ranks

Event = TypeVar("Event")
TRAINING_WORKER = "gpuyard.measure.training.worker"


def told_all(sweep: Sweep, rank: int, processes: int, directory: Path) -> dict[str, Any]:
    """What a `RankJob` takes from the sweep."""
    return {
        "workload": sweep.workload,
        "strategy": sweep.strategy,
        "device": sweep.device,
        "rank": rank,
        "processes": processes,
        "directory": str(directory),
        "seconds_per_point": sweep.seconds_per_point,
        "cores": sweep.cores_by_worker[rank],
        "seed": sweep.seed,
        "dilation": sweep.place.dilation,
    }


def run_where_planned(
    sweep: Sweep,
    jobs: Sequence[RankJob],
    *,
    parse: Callable[[bytes], Event | Refusal],
    worker: str = TRAINING_WORKER,
    environment: Environment = lambda _rank: {},
) -> Generator[Event, None, None]:
    """Start them in the sweep's place by its launcher."""
    return run_ranks(
        sweep.place,
        jobs,
        parse=parse,
        worker=worker,
        launcher=sweep.launcher,
        environment=environment,
    )
