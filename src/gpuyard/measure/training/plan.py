"""Plans a training sweep: the points to measure, where they run, and the keys under which they are stored."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from gpuyard import files
from gpuyard.catalog import ModelProfile, gpus
from gpuyard.choices import Launcher
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.hardware.product_names import find_catalog_gpu
from gpuyard.measure.record import discover_testbed, hash_key
from gpuyard.measure.training.records import SyntheticGpu
from gpuyard.measure.training.size import check_fits
from gpuyard.measure.training.strategies import (
    check_division,
    check_launcher,
    check_remedy,
    check_strategy,
)
from gpuyard.measure.training.sweep import Sweep, SweepPoint
from gpuyard.predictor import estimate_compute_line
from gpuyard.predictor.compute import default_precision
from gpuyard.run.places import LocalMachine, Place
from gpuyard.run.protocol import RankDevice
from gpuyard.specs import ExchangeOptions, Precision, Workload
from gpuyard.specs.exchange import RecordedStrategy
from gpuyard.workloads.code_trust import check_allowed, code_digest, user_code
from gpuyard.workloads.profiles import catalog_profile, profile_model
from gpuyard.workloads.resolve import require_torch

_MAX_POINTS = 10_000


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
    """Plan a sweep, and check everything that can be checked before a process starts.

    Without `check_memory` the caller checks that the points fit into memory.
    """
    require_torch()
    workers, batches = sorted(set(workers)), sorted(set(batches))
    if not workers or not batches or workers[0] < 1 or batches[0] < 1:
        raise UserMistake("a sweep needs at least one worker count and one batch size, 1 or more")
    if not (math.isfinite(seconds_per_point) and seconds_per_point > 0):
        raise UserMistake(f"expected a time per point above 0 s, got {seconds_per_point} s")
    check_point_count(len(workers) * len(batches))
    remedy, place = remedy or ExchangeOptions(), place or LocalMachine()
    testbed = discover_testbed()
    profile = catalog_profile(workload)
    emulated = None if gpu is None else gpus().get(gpu).id
    synthetic = build_synthetic_gpu(workload, profile, emulated) if emulated and profile else None
    device = "cpu" if emulated else device or ("cuda" if all(place.gpus_by_node) else "cpu")
    precision = workload.precision or _choose_default_precision(profile, device, emulated, place)
    # gpuyard's training loop sends gradients in fp32, whatever framework the workload names
    updates = {"precision": precision, "framework": None, "gradient_dtype": None}
    workload = workload.model_copy(update=updates)
    if strategy == "horovod" and place.why_no_horovod is not None:
        raise UserMistake(place.why_no_horovod)
    check_strategy(
        strategy,
        precision=precision if precision and emulated is None else "fp32",
        device=device,
        gpus=len(testbed.gpus),
    )
    if device == "cuda" and (missing := place.missing_gpus(workers[-1])) is not None:
        raise UserMistake(missing)
    check_remedy(remedy, strategy, synthetic=emulated is not None)
    check_division(workload, strategy, workers)
    over_nodes = place.rendezvous_point is not None
    launcher = launcher or ("torchrun" if strategy == "ddp" and over_nodes else "direct")
    check_launcher(launcher, strategy)
    cores_by_worker = place.cores_by_worker(workers[-1], computing=emulated is None)
    common: dict[str, Any] = {
        "workload": workload.model_dump(mode="json"),
        "code": [code_digest(r, workload) for r in user_code(workload)],
        "data": _is_dataset_present(workload),
        "strategy": strategy,
        "device": device,
        "seconds_per_point": seconds_per_point,
        "cores_each": len(cores_by_worker[0]),
        "seed": seed,
        "host": testbed.fingerprint(),
        "torch": testbed.torch,
        "gpuyard": testbed.gpuyard,
        # added only if set, so that the keys of stored plain points stay valid
        **({} if remedy.is_default else {"remedy": remedy.model_dump(mode="json")}),
        **_describe_emulated_gpu(emulated, synthetic),
        **({} if place.identity() is None else {"place": place.identity()}),
        **({} if repeat == 0 else {"repeat": repeat}),
    }
    sweep = Sweep(
        workload=workload,
        strategy=cast("RecordedStrategy", strategy),
        device=device,
        seconds_per_point=seconds_per_point,
        cores_by_worker=cores_by_worker,
        seed=seed,
        testbed=testbed,
        points=tuple(SweepPoint(w, b, _point_key(common, w, b)) for w in workers for b in batches),
        remedy=remedy,
        gpu=emulated,
        synthetic=synthetic,
        place=place,
        repeat=repeat,
        launcher=cast("Launcher", launcher),
    )
    if check_memory and profile is not None:
        check_fits(sweep, profile)
    return sweep


def check_point_count(count: int) -> None:
    """Raise UserMistake if a sweep has more points than can be planned and listed."""
    if count > _MAX_POINTS:
        raise UserMistake(
            f"a sweep can have at most {_MAX_POINTS:,} points, and this one has {count:,}"
        )


def _choose_default_precision(
    profile: ModelProfile | None, device: RankDevice, emulated: str | None, place: Place
) -> Precision | None:
    """Return PyTorch's default precision on this device, so that the record states it.

    Return None if it depends on the profile of a user's own model.
    """
    names = [name for node in place.gpus_by_node for name in node] if device == "cuda" else []
    gpu = gpus().get(emulated) if emulated else find_catalog_gpu(names[0]) if names else None
    if gpu is None or gpu.tf32_tflops is None:
        return "fp32"
    return None if profile is None else default_precision(profile, gpu)


def complete_sweep(sweep: Sweep) -> Sweep:
    """Fill in what a plan leaves open because it would have to run a user's own model.

    Raise CodeNotAllowed if the user's code may not run, even if nothing is open.
    """
    check_allowed(sweep.workload)
    emulated = sweep.gpu if sweep.synthetic is None else None
    if emulated is None and sweep.workload.precision is not None:
        return sweep
    try:
        profile = profile_model(sweep.workload)
    except GpuyardError:
        if emulated is not None:
            raise
        # a model that cannot be profiled may still train
        return sweep.replace_precision("fp32")
    precision = sweep.workload.precision or _choose_default_precision(
        profile, sweep.device, sweep.gpu, sweep.place
    )
    complete = sweep.replace_precision(precision)
    if emulated is None:
        return complete
    return replace(complete, synthetic=build_synthetic_gpu(sweep.workload, profile, emulated))


def _describe_emulated_gpu(gpu: str | None, synthetic: SyntheticGpu | None) -> dict[str, Any]:
    # the times of a user's own model follow from its code, which is a separate part of the key
    if gpu is None:
        return {}
    return {"synthetic": {"gpu": gpu} if synthetic is None else synthetic.model_dump(mode="json")}


def build_synthetic_gpu(workload: Workload, profile: ModelProfile, gpu: str) -> SyntheticGpu:
    """Estimate how long a catalog GPU computes this workload."""
    line = estimate_compute_line(workload, profile, gpus().get(gpu))
    return SyntheticGpu(
        gpu=gpu,
        fixed_seconds=line.fixed_seconds,
        seconds_per_sample=line.seconds_per_sample,
        basis=line.basis,
        source=line.source,
    )


def _point_key(common: Mapping[str, Any], workers: int, batch: int) -> str:
    return hash_key({**common, "workers": workers, "batch_per_worker": batch})


def _is_dataset_present(workload: Workload) -> bool:
    if workload.dataset is None or workload.dataset.source != "spoken-digits":
        return True
    return files.dataset_directory("spoken-digits").is_dir()
