"""A training sweep as a value: what would run, where, and under which keys it is stored."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from gpuyard import __version__, paths
from gpuyard.catalog import gpus
from gpuyard.errors import UserMistake
from gpuyard.measure.host import Host, this_host, torch_version
from gpuyard.measure.training.measurement import Measurement, SyntheticGpu
from gpuyard.measure.training.strategies import check_launcher, check_remedy, check_strategy
from gpuyard.predict import compute_line
from gpuyard.run.launch import Launcher
from gpuyard.run.places import Here, Place
from gpuyard.run.protocol import Device
from gpuyard.specs import ExchangeOptions, StrategyName, Workload
from gpuyard.workloads import profile_of
from gpuyard.workloads.resolve import code_digest, require_torch


@dataclass(frozen=True)
class Point:
    """One measurement to make; the key is the same for the same run on the same machine."""

    workers: int
    batch_per_worker: int
    key: str


@dataclass(frozen=True)
class Sweep:
    """What would run. Every worker has the same number of cores, so that speeds compare."""

    workload: Workload
    strategy: StrategyName
    device: Device
    seconds_per_point: float
    cores_by_worker: tuple[tuple[int, ...], ...]
    seed: int
    host: Host
    points: tuple[Point, ...]
    remedy: ExchangeOptions
    synthetic: SyntheticGpu | None
    place: Place
    repeat: int
    launcher: Launcher

    def describe(self) -> dict[str, Any]:
        """For `--dry-run` and programs."""
        return {
            "workload": self.workload.name,
            "model": self.workload.model,
            "strategy": self.strategy,
            "launcher": self.launcher,
            "remedy": self.remedy.model_dump(),
            "gpu": self.synthetic.gpu if self.synthetic else None,
            "device": self.device,
            "seconds_per_point": self.seconds_per_point,
            "cores_by_worker": [list(cores) for cores in self.cores_by_worker],
            "seed": self.seed,
            "host": self.host.host,
            "place": self.place.record(len(self.cores_by_worker)).model_dump(),
            "ranks": self.place.describe_seats(len(self.cores_by_worker)),
            "repeat": self.repeat,
            "points": [
                {"workers": p.workers, "batch_per_worker": p.batch_per_worker, "key": p.key}
                for p in self.points
            ],
        }


@dataclass(frozen=True)
class SweepEvent:
    """What a progress bar shows; `fraction` is of this point, `left_seconds` for all the rest."""

    point: Point
    state: str  # "stored", "started", "running", "finished" or "rejected"
    fraction: float
    left_seconds: float
    measurement: Measurement | None = None
    reason: str = ""


def plan_sweep(
    workload: Workload,
    workers: Sequence[int],
    batches: Sequence[int],
    *,
    strategy: str = "ddp",
    seconds_per_point: float = 3.0,
    device: Device | None = None,
    seed: int = 0,
    remedy: ExchangeOptions | None = None,
    gpu: str | None = None,
    place: Place | None = None,
    repeat: int = 0,
    launcher: str | None = None,
) -> Sweep:
    """Check everything that can be checked before a process starts."""
    require_torch()
    workers, batches = sorted(set(workers)), sorted(set(batches))
    if not workers or not batches or workers[0] < 1 or batches[0] < 1:
        raise UserMistake("a sweep needs at least one worker count and one batch size, 1 or more")
    if not (math.isfinite(seconds_per_point) and seconds_per_point > 0):
        raise UserMistake(f"{seconds_per_point} is not a time for one point; it must be above 0 s")
    remedy, place = remedy or ExchangeOptions(), place or Here()
    host = this_host()
    synthetic = _synthetic(workload, gpu) if gpu is not None else None
    device = "cpu" if synthetic else device or ("cuda" if all(place.gpus_by_node) else "cpu")
    check_strategy(
        strategy,
        precision=workload.precision if synthetic is None else "fp32",
        device=device,
        gpus=len(host.gpus),
    )
    if device == "cuda" and (missing := place.missing_gpus(workers[-1])) is not None:
        raise UserMistake(missing)
    check_remedy(remedy, strategy, synthetic=synthetic is not None)
    if strategy == "horovod" and place.why_no_horovod is not None:
        raise UserMistake(place.why_no_horovod)
    over_nodes = place.meeting is not None
    launcher = launcher or ("torchrun" if strategy == "ddp" and over_nodes else "direct")
    check_launcher(launcher, strategy)
    cores_by_worker = place.cores_by_worker(workers[-1], computing=synthetic is None)
    common: dict[str, Any] = {
        "workload": workload.model_dump(mode="json"),
        "code": [code_digest(r) for r in _references(workload)],
        "data": _data_is_here(workload),
        "strategy": strategy,
        "device": device,
        "seconds_per_point": seconds_per_point,
        "cores_each": len(cores_by_worker[0]),
        "seed": seed,
        "host": host.fingerprint(),
        "torch": torch_version(),
        "gpuyard": __version__,
        # only what is there: plain points have the keys that they always had
        **({} if remedy.plain else {"remedy": remedy.model_dump(mode="json")}),
        **({} if synthetic is None else {"synthetic": synthetic.model_dump(mode="json")}),
        **({} if place.identity() is None else {"place": place.identity()}),
        **({} if repeat == 0 else {"repeat": repeat}),
    }
    return Sweep(
        workload=workload,
        strategy=cast("StrategyName", strategy),
        device=device,
        seconds_per_point=seconds_per_point,
        cores_by_worker=cores_by_worker,
        seed=seed,
        host=host,
        points=tuple(Point(w, b, _key(common, w, b)) for w in workers for b in batches),
        remedy=remedy,
        synthetic=synthetic,
        place=place,
        repeat=repeat,
        launcher=cast("Launcher", launcher),
    )


def _synthetic(workload: Workload, gpu: str) -> SyntheticGpu:
    line = compute_line(workload, profile_of(workload), gpus().get(gpu))
    return SyntheticGpu(
        gpu=gpu,
        fixed_seconds=line.fixed_seconds,
        seconds_per_sample=line.seconds_per_sample,
        basis=line.basis,
        source=line.source,
    )


def _key(common: Mapping[str, Any], workers: int, batch: int) -> str:
    document = {**common, "workers": workers, "batch_per_worker": batch}
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _references(workload: Workload) -> list[str]:
    named = [workload.model, workload.dataset.source if workload.dataset else ""]
    return [reference for reference in named if ":" in reference]


def _data_is_here(workload: Workload) -> bool:
    if workload.dataset is None or workload.dataset.source != "spoken-digits":
        return True
    return paths.dataset_directory("spoken-digits").is_dir()
