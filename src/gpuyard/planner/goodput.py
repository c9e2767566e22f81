"""The goodput of a training on a cluster: interruptions of its machines, checkpoints of its model, and its storage."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuyard.catalog import Gpu, Price, prices
from gpuyard.catalog.fabric import StorageOption, storage_options
from gpuyard.economics.goodput import Goodput, MeanTime, compute_goodput
from gpuyard.economics.interruption_rates import find_failures, find_spot_interruptions
from gpuyard.errors import UserMistake
from gpuyard.facilities.storage import CHECKPOINT_BYTES_PER_PARAMETER
from gpuyard.hardware.clusters import resolve_machine
from gpuyard.predictor.platform import find_network
from gpuyard.specs import Cluster

RESTART_SECONDS = 600.0
"""Assumed time from an interruption to the first step, without reading the checkpoint.

PyTorch notices a hanging NCCL collective after 10 minutes by default; a crash is noticed sooner, but processes must
also start again.
"""
_MIN_WRITE_SECONDS = 1.0  # to collect and serialize even a small model
_HOPELESS_GOODPUT = 0.1
_DEFAULT_STORAGE, _OWN_DRIVE = "lustre-nvme", "local-nvme"
_MACHINES_PER_UNIT = 16  # of the default storage
_INTERVALS, _LARGEST = 41, 16_384  # points and GPUs of the curves
_INTERVAL_RANGE = 16.0  # the curve spans this factor to either side of the best interval
Interval = tuple[float, float, float]
"""The expected value and both ends of its 90% interval."""


@dataclass(frozen=True)
class Checkpoints:
    """The size of a checkpoint, and the time that it and a restart take."""

    size_bytes: float
    write_seconds: float
    restart_seconds: float  # including reading the checkpoint
    storage: str  # empty if the time is given


@dataclass(frozen=True)
class GoodputResult:
    """The goodput of one training on one cluster, and how it depends on the interval and the GPUs."""

    workload: str
    cluster: str
    gpu: str
    gpus: int
    nodes: int
    checkpoints: Checkpoints
    per_gpu: MeanTime
    goodput: Goodput
    price: Price | None
    spot_price: Price | None
    spot: Goodput | None
    by_interval: tuple[tuple[float, Goodput], ...]  # seconds
    by_gpus: tuple[tuple[int, Goodput], ...]
    useful: Interval | None  # days without any loss

    @property
    def useful_days(self) -> float | None:
        """Days without any loss."""
        return None if self.useful is None else self.useful[0]

    @property
    def days(self) -> Interval | None:
        """Expected days, the fewest, and the most."""
        return None if self.useful is None else _stretch(self.useful, self.goodput)

    @property
    def usd_per_useful_hour(self) -> float | None:
        """On demand, for all GPUs."""
        return _usd(self.price, self.gpus, self.goodput, spot=False)

    @property
    def spot_usd_per_useful_hour(self) -> float | None:
        return _usd(self.spot_price, self.gpus, self.spot, spot=True)

    @property
    def spot_saving(self) -> float | None:
        """The share of the dollars that spot saves after all restarts; negative if it costs more."""
        full, spot = self.usd_per_useful_hour, self.spot_usd_per_useful_hour
        if full is None or spot is None or self.spot_fails:
            return None
        return 1 - spot / full

    @property
    def spot_fails(self) -> bool:
        """True if interruptions hardly leave the job the time to restart."""
        return self.spot is not None and self.spot.share < _HOPELESS_GOODPUT

    def as_json(self) -> dict[str, Any]:
        days = self.days
        hourly, spot_hourly = self.usd_per_useful_hour, self.spot_usd_per_useful_hour
        return {
            "workload": self.workload, "cluster": self.cluster, "gpu": self.gpu,
            "gpus": self.gpus, "nodes": self.nodes,
            **self.goodput.as_json(),
            "checkpoint_bytes": self.checkpoints.size_bytes,
            "storage": self.checkpoints.storage,
            "gpu_hours_between_interruptions": self.per_gpu.hours,
            "gpu_hours_low": self.per_gpu.low, "gpu_hours_high": self.per_gpu.high,
            "basis": self.per_gpu.basis,
            "useful_days": self.useful_days,
            "days": days and days[0], "days_low": days and days[1], "days_high": days and days[2],
            "price": self.price and self.price.id,
            "usd_per_useful_hour": hourly,
            **_total_usd("usd", hourly, self.goodput, self.useful),
            "spot": None if self.spot is None else {
                "price": self.spot_price and self.spot_price.id,
                "basis": self.spot.mean_time.basis,
                "usd_per_useful_hour": spot_hourly,
                **_total_usd("usd", spot_hourly, self.spot, self.useful),
                "saving": self.spot_saving, **self.spot.as_json(),
            },
            "by_interval": [
                {"checkpoint_every_seconds": seconds, "goodput": point.share,
                 "goodput_low": point.low, "goodput_high": point.high}
                for seconds, point in self.by_interval
            ],
            "by_gpus": [{"gpus": gpus, **point.as_json()} for gpus, point in self.by_gpus],
        }  # fmt: skip


def _stretch(useful: Interval, goodput: Goodput) -> Interval:
    """Return days with losses; the fewest have the highest goodput."""
    return useful[0] / goodput.share, useful[1] / goodput.high, useful[2] / goodput.low


def _total_usd(
    name: str, usd_per_useful_hour: float | None, goodput: Goodput, useful: Interval | None
) -> dict[str, float | None]:
    names = (name, f"{name}_low", f"{name}_high")
    if usd_per_useful_hour is None or useful is None:
        return dict.fromkeys(names)
    hourly = usd_per_useful_hour * goodput.share
    days = _stretch(useful, goodput)
    return {key: 24 * hourly * value for key, value in zip(names, days, strict=True)}


def _usd(price: Price | None, gpus: int, goodput: Goodput | None, *, spot: bool) -> float | None:
    hourly = None if price is None else price.spot_usd_per_hour if spot else price.usd_per_hour
    if price is None or hourly is None or goodput is None:
        return None
    return hourly / price.gpus * gpus * goodput.stretch


def estimate_goodput(
    workload: str,
    cluster: Cluster,
    *,
    gpus: int | None = None,
    checkpoint_bytes: float,
    checkpoint_seconds: float | None = None,
    restart_seconds: float | None = None,
    interval_seconds: float | None = None,
    storage: str | None = None,
    gpu_hours: float | None = None,
    instance: Price | None = None,
    useful_days: Interval | None = None,
) -> GoodputResult:
    """Estimate goodput; what is not given comes from publications, the catalog, and named assumptions."""
    gpu, machine = resolve_machine(cluster)
    most = cluster.nodes * machine.gpus
    count = gpus or most
    if count > most:
        raise UserMistake(f"{cluster.name} has only {most} GPUs, not {count}")
    nodes = -(-count // machine.gpus)
    per_gpu = find_failures(gpu)
    if gpu_hours is not None:
        per_gpu = MeanTime(gpu_hours, gpu_hours, gpu_hours, "given")
    checkpoints = plan_checkpoints(
        cluster,
        nodes,
        checkpoint_bytes,
        storage=storage,
        write_seconds=checkpoint_seconds,
        restart_seconds=restart_seconds,
    )
    times = {
        "checkpoint_seconds": checkpoints.write_seconds,
        "restart_seconds": checkpoints.restart_seconds,
    }
    failures = per_gpu.divide(count)
    goodput = compute_goodput(failures, **times, interval_seconds=interval_seconds)
    price, spot_price = find_prices(gpu, machine.gpus, instance)
    spot = None
    if spot_price is not None:
        reclaimed = find_spot_interruptions(spot_price).divide(nodes)
        spot = compute_goodput(failures.join(reclaimed), **times, interval_seconds=interval_seconds)
    best = compute_goodput(failures, **times).interval_seconds
    intervals = np.geomspace(best / _INTERVAL_RANGE, best * _INTERVAL_RANGE, _INTERVALS)
    return GoodputResult(
        workload, cluster.name, gpu.id, count, nodes, checkpoints, per_gpu, goodput,
        price, spot_price, spot,
        by_interval=tuple(
            (seconds, compute_goodput(failures, **times, interval_seconds=seconds))
            for seconds in map(float, intervals)
        ),
        by_gpus=tuple(
            (number, compute_goodput(per_gpu.divide(number), **times))
            for number in _list_counts(count)
        ),
        useful=useful_days,
    )  # fmt: skip


@dataclass(frozen=True)
class InstanceLosses:
    """The goodput of a job on all GPUs of one instance, on demand and on spot."""

    gpus: int
    goodput: Goodput
    spot: Goodput | None
    spot_usd_per_useful_hour: float | None


def estimate_instance_losses(price: Price, gpu: Gpu) -> InstanceLosses:
    """Estimate a job with checkpoints of a minute and restarts of ten."""
    spot = None
    if price.spot_usd_per_hour is not None:
        spot = estimate_run_goodput(gpu, price.gpus, spot=find_spot_interruptions(price))
    return InstanceLosses(
        price.gpus,
        estimate_run_goodput(gpu, price.gpus),
        spot,
        _usd(price, price.gpus, spot, spot=True),
    )


def estimate_run_goodput(
    gpu: Gpu,
    gpus: int,
    *,
    checkpoint_seconds: float = 60.0,
    restart_seconds: float = RESTART_SECONDS,
    spot: MeanTime | None = None,
) -> Goodput:
    """Return the goodput of a run if only its GPUs are known; `spot` is the mean time between its reclaims."""
    failures = find_failures(gpu).divide(gpus)
    return compute_goodput(
        failures if spot is None else failures.join(spot),
        checkpoint_seconds=checkpoint_seconds,
        restart_seconds=restart_seconds,
    )


def plan_checkpoints(
    cluster: Cluster,
    nodes: int,
    size_bytes: float,
    *,
    storage: str | None = None,
    write_seconds: float | None = None,
    restart_seconds: float | None = None,
) -> Checkpoints:
    """Return how long a checkpoint takes on the cluster's storage, on the named one, or on an assumed one."""
    own = cluster.storage
    write = None if own is None else own.write or own.read
    read = None if own is None else own.read or own.write
    label = "the cluster's storage"
    if storage is not None or write is None or read is None:
        option, built = _choose_storage(storage, cluster, nodes)
        total = built * (nodes if option.kind == "local" else 1)
        write, read = total * option.write_bytes_per_second, total * option.read_bytes_per_second
        each = " per machine" if nodes > 1 else ""
        label = f"{built} × {option.id}" if option.kind != "local" else f"{option.id}{each}"
        label += "" if storage is not None else " (assumed)"
    restart = RESTART_SECONDS if restart_seconds is None else restart_seconds
    return Checkpoints(
        size_bytes,
        max(_MIN_WRITE_SECONDS, size_bytes / write) if write_seconds is None else write_seconds,
        restart + size_bytes / read,
        label if write_seconds is None else "",
    )


def _choose_storage(name: str | None, cluster: Cluster, nodes: int) -> tuple[StorageOption, int]:
    """Parse "lustre-nvme" or "4xlustre-nvme"; without a name, assume one unit per 16 machines.

    A machine alone has its own drive.
    """
    if name is None and cluster.nodes == 1 and find_network(cluster) is None:
        return storage_options().get(_OWN_DRIVE), 1
    if name is None:
        option = storage_options().get(_DEFAULT_STORAGE)
        return option, min(option.max_units, math.ceil(nodes / _MACHINES_PER_UNIT))
    number, times, rest = name.partition("x")
    counted = bool(times) and number.isdigit() and int(number) > 0
    option = storage_options().get(rest if counted else name)
    units = int(number) if counted else 1
    if units > option.max_units:
        raise UserMistake(
            f"--storage: {option.id} has at most {option.max_units} units, got {units}"
        )
    return option, units


def find_prices(
    gpu: Gpu, per_machine: int, instance: Price | None
) -> tuple[Price | None, Price | None]:
    """Return the cheapest on-demand price of a machine with this GPU, and the spot price to compare it with.

    Both are of one instance if it has both, because other clouds are also cheaper for other reasons.
    """
    if instance is not None:
        return instance, instance if instance.spot_usd_per_hour else None
    offered = [
        price for price in prices()
        if price.gpu == gpu.id and price.gpus >= min(per_machine, 8)
    ]  # fmt: skip
    if not offered:
        return None, None
    with_spot = [price for price in offered if price.spot_usd_per_hour]
    cheapest = min(with_spot or offered, key=lambda price: price.usd_per_hour / price.gpus)
    return cheapest, cheapest if with_spot else None


def checkpoint_bytes_of(parameters: float) -> float:
    """Return the size of a checkpoint of weights and Adam's moments in fp32."""
    return CHECKPOINT_BYTES_PER_PARAMETER * parameters


def _list_counts(count: int) -> Sequence[int]:
    """Return numbers of GPUs around this one, from 8 to at least 16,384."""
    powers = [2**power for power in range(3, max(_LARGEST, 4 * count).bit_length())]
    return sorted({*powers, count})
