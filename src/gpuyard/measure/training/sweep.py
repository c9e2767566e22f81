"""A training sweep as a value: what would run, where, and under which keys it is stored."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from gpuyard import files
from gpuyard.catalog import ModelProfile, gpus
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.hardware.product_names import catalog_gpu
from gpuyard.measure.progress import ProgressUpdate
from gpuyard.measure.record import Testbed, key_of, this_testbed
from gpuyard.measure.training.records import Measurement, SyntheticGpu, place_words
from gpuyard.measure.training.size import refuse_unfit
from gpuyard.measure.training.strategies import check_launcher, check_remedy, check_strategy
from gpuyard.predict import compute_line
from gpuyard.predict.compute import default_precision
from gpuyard.run.launch import Launcher
from gpuyard.run.places import Here, Place
from gpuyard.run.protocol import RankDevice
from gpuyard.specs import ExchangeOptions, Precision, StrategyName, Workload
from gpuyard.units import format_bit_rate
from gpuyard.workloads.own_code import check_allowed, code_digest, code_of
from gpuyard.workloads.profiles import catalog_profile, profile_of
from gpuyard.workloads.resolve import require_torch

_MOST_POINTS = 10_000


@dataclass(frozen=True)
class SweepPoint:
    """One measurement to make; the key is the same for the same run on the same machine."""

    workers: int
    batch_per_worker: int
    key: str


@dataclass(frozen=True)
class Sweep:
    """What would run. Every worker has the same number of cores, so that speeds compare."""

    workload: Workload
    strategy: StrategyName
    device: RankDevice
    seconds_per_point: float
    cores_by_worker: tuple[tuple[int, ...], ...]
    seed: int
    testbed: Testbed
    points: tuple[SweepPoint, ...]
    remedy: ExchangeOptions
    gpu: str | None
    synthetic: SyntheticGpu | None
    """None too where `gpu` is emulated for a user's own model, whose code a plan doesn't run."""
    place: Place
    repeat: int
    launcher: Launcher

    def describe(self, stored: Collection[str] | None = None) -> dict[str, Any]:
        """For `--dry-run` and programs; with the keys of what is stored, each point says whether it is."""
        return {
            "workload": self.workload.name,
            "model": self.workload.model,
            "strategy": self.strategy,
            "launcher": self.launcher,
            "remedy": self.remedy.model_dump(),
            "gpu": self.gpu,
            "device": self.device,
            "seconds_per_point": self.seconds_per_point,
            "cores_by_worker": [list(cores) for cores in self.cores_by_worker],
            "seed": self.seed,
            "host": self.testbed.host,
            "place": self.place.record(len(self.cores_by_worker)).model_dump(),
            "ranks": self.place.describe_seats(len(self.cores_by_worker)),
            "repeat": self.repeat,
            "points": [
                {
                    "workers": p.workers,
                    "batch_per_worker": p.batch_per_worker,
                    "key": p.key,
                    **({} if stored is None else {"stored": p.key in stored}),
                }
                for p in self.points
            ],
        }

    def job_fields(self) -> dict[str, Any]:
        """What every rank is told about it, whatever it is there for."""
        return {
            "workload": self.workload,
            "strategy": self.strategy,
            "device": self.device,
            "seconds_per_point": self.seconds_per_point,
            "seed": self.seed,
            "dilation": self.place.dilation,
        }

    def with_precision(self, precision: Precision | None) -> "Sweep":
        return replace(self, workload=self.workload.model_copy(update={"precision": precision}))

    @property
    def title(self) -> str:
        on = f"synthetic {self.gpu}" if self.gpu else self.device
        remedy = "" if self.remedy.plain else f" with {self.remedy.label}"
        place = self.place.record(len(self.cores_by_worker))
        where = "" if place.kind == "here" else f", {place_words(place)}"
        precision = f"{self.workload.precision}, " if self.workload.precision else ""
        return f"{self.workload.name}: {precision}{self.strategy}{remedy} on {on}{where}"

    @property
    def label(self) -> str:
        """What tells it from the other sweeps of a sweep file."""
        rate = self.place.record(1).link_bytes_per_second
        parts = (
            self.workload.name,
            "" if self.strategy == "ddp" else self.strategy,
            "" if rate is None else format_bit_rate(rate),
            "" if self.remedy.plain else self.remedy.label,
            f"again ({self.repeat})" if self.repeat else "",
        )
        return ", ".join(part for part in parts if part)

    def point_label(self, point: SweepPoint) -> str:
        workers = f"{point.workers} worker{'s' if point.workers > 1 else ''}"
        return f"{self.label}: {workers}, batch {point.batch_per_worker}"

    @property
    def used_cores(self) -> list[int]:
        """Of this machine, by the most workers."""
        return self.used_cores_of(len(self.cores_by_worker))

    def used_cores_of(self, workers: int) -> list[int]:
        return [core for cores in self.cores_by_worker[:workers] for core in cores]


PointState = Literal["stored", "started", "running", "finished", "rejected"]


@dataclass(frozen=True)
class SweepEvent:
    """What happened to one point, and how far all sweeps are."""

    sweep: Sweep
    point: SweepPoint
    state: PointState
    progress: ProgressUpdate
    measurement: Measurement | None = None


def plan_sweep(
    workload: Workload,
    workers: Sequence[int],
    batches: Sequence[int],
    *,
    strategy: str = "ddp",
    seconds_per_point: float = 3.0,
    device: RankDevice | None = None,
    seed: int = 0,
    remedy: ExchangeOptions | None = None,
    gpu: str | None = None,
    place: Place | None = None,
    repeat: int = 0,
    launcher: str | None = None,
    check_memory: bool = True,
) -> Sweep:
    """Check everything that can be checked before a process starts; without `check_memory` the caller asks what fits."""
    require_torch()
    workers, batches = sorted(set(workers)), sorted(set(batches))
    if not workers or not batches or workers[0] < 1 or batches[0] < 1:
        raise UserMistake("a sweep needs at least one worker count and one batch size, 1 or more")
    if not (math.isfinite(seconds_per_point) and seconds_per_point > 0):
        raise UserMistake(f"expected a time per point above 0 s, got {seconds_per_point} s")
    check_points(len(workers) * len(batches))
    remedy, place = remedy or ExchangeOptions(), place or Here()
    testbed = this_testbed()
    profile = catalog_profile(workload)
    emulated = None if gpu is None else gpus().get(gpu).id
    synthetic = synthetic_gpu(workload, profile, emulated) if emulated and profile else None
    device = "cpu" if emulated else device or ("cuda" if all(place.gpus_by_node) else "cpu")
    precision = workload.precision or _usual_precision(profile, device, emulated, place)
    # our own loops send gradients in fp32 whatever the workload's usual software does
    usual = {"precision": precision, "framework": None, "gradient_dtype": None}
    workload = workload.model_copy(update=usual)
    check_strategy(
        strategy,
        precision=precision if precision and emulated is None else "fp32",
        device=device,
        gpus=len(testbed.gpus),
    )
    if device == "cuda" and (missing := place.missing_gpus(workers[-1])) is not None:
        raise UserMistake(missing)
    check_remedy(remedy, strategy, synthetic=emulated is not None)
    if strategy == "horovod" and place.why_no_horovod is not None:
        raise UserMistake(place.why_no_horovod)
    over_nodes = place.meeting is not None
    launcher = launcher or ("torchrun" if strategy == "ddp" and over_nodes else "direct")
    check_launcher(launcher, strategy)
    cores_by_worker = place.cores_by_worker(workers[-1], computing=emulated is None)
    common: dict[str, Any] = {
        "workload": workload.model_dump(mode="json"),
        "code": [code_digest(r, workload) for r in code_of(workload)],
        "data": _data_is_here(workload),
        "strategy": strategy,
        "device": device,
        "seconds_per_point": seconds_per_point,
        "cores_each": len(cores_by_worker[0]),
        "seed": seed,
        "host": testbed.fingerprint(),
        "torch": testbed.torch,
        "gpuyard": testbed.gpuyard,
        # only what is there: plain points have the keys that they always had
        **({} if remedy.plain else {"remedy": remedy.model_dump(mode="json")}),
        **_of_gpu(emulated, synthetic),
        **({} if place.identity() is None else {"place": place.identity()}),
        **({} if repeat == 0 else {"repeat": repeat}),
    }
    sweep = Sweep(
        workload=workload,
        strategy=cast("StrategyName", strategy),
        device=device,
        seconds_per_point=seconds_per_point,
        cores_by_worker=cores_by_worker,
        seed=seed,
        testbed=testbed,
        points=tuple(SweepPoint(w, b, _key(common, w, b)) for w in workers for b in batches),
        remedy=remedy,
        gpu=emulated,
        synthetic=synthetic,
        place=place,
        repeat=repeat,
        launcher=cast("Launcher", launcher),
    )
    if check_memory and profile is not None:
        refuse_unfit(sweep, profile)
    return sweep


def check_points(count: int) -> None:
    """Each is a value, a row of the listing and seconds of somebody's time."""
    if count > _MOST_POINTS:
        raise UserMistake(
            f"{count:,} points are too many for one sweep, {_MOST_POINTS:,} is the most"
        )


def _usual_precision(
    profile: ModelProfile | None, device: RankDevice, emulated: str | None, place: Place
) -> Precision | None:
    """What PyTorch computes in there without a setting. It is decided here, so that a record says it.

    None: that follows from the profile of a user's own model.
    """
    names = [name for there in place.gpus_by_node for name in there] if device == "cuda" else []
    gpu = gpus().get(emulated) if emulated else catalog_gpu(names[0]) if names else None
    if gpu is None or gpu.tf32_tflops is None:
        return "fp32"
    return None if profile is None else default_precision(profile, gpu)


def completed(sweep: Sweep) -> Sweep:
    """With what a plan leaves open as it would have to run a user's own model.

    Raises CodeNotAllowed where that is not allowed, whether anything is open or not.
    """
    check_allowed(sweep.workload)
    emulated = sweep.gpu if sweep.synthetic is None else None
    if emulated is None and sweep.workload.precision is not None:
        return sweep
    try:
        profile = profile_of(sweep.workload)
    except GpuyardError:
        if emulated is not None:
            raise
        # what it computes can't be said, though it may train
        return sweep.with_precision("fp32")
    precision = sweep.workload.precision or _usual_precision(
        profile, sweep.device, sweep.gpu, sweep.place
    )
    found = sweep.with_precision(precision)
    if emulated is None:
        return found
    return replace(found, synthetic=synthetic_gpu(sweep.workload, profile, emulated))


def _of_gpu(gpu: str | None, synthetic: SyntheticGpu | None) -> dict[str, Any]:
    # of a user's own model the times follow from its code, which has its own part in the key
    if gpu is None:
        return {}
    return {"synthetic": {"gpu": gpu} if synthetic is None else synthetic.model_dump(mode="json")}


def synthetic_gpu(workload: Workload, profile: ModelProfile, gpu: str) -> SyntheticGpu:
    """How long it computes."""
    line = compute_line(workload, profile, gpus().get(gpu))
    return SyntheticGpu(
        gpu=gpu,
        fixed_seconds=line.fixed_seconds,
        seconds_per_sample=line.seconds_per_sample,
        basis=line.basis,
        source=line.source,
    )


def _key(common: Mapping[str, Any], workers: int, batch: int) -> str:
    return key_of({**common, "workers": workers, "batch_per_worker": batch})


def _data_is_here(workload: Workload) -> bool:
    if workload.dataset is None or workload.dataset.source != "spoken-digits":
        return True
    return files.dataset_directory("spoken-digits").is_dir()
