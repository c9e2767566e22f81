"""Rank GPUs for a workload by the speed of a single GPU, absolute and per dollar, rent, and watt."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from gpuyard.catalog import Gpu, ModelProfile, Price, prices
from gpuyard.catalog.prices import GpuListPrice, gpu_prices
from gpuyard.catalog.published import published_sources, single_gpu_rows
from gpuyard.catalog.published_rows import SingleGpuRow
from gpuyard.errors import UnknownName, UserMistake
from gpuyard.predictor import Calibration, predict_cluster
from gpuyard.specs import Cluster, MachineSpec, Precision, Workload
from gpuyard.specs.workload import KnownThroughput

SpeedBasis = Literal["measured", "published", "predicted"]


@dataclass(frozen=True)
class RankedGpu:
    """The speed of one GPU with the workload at one batch, and its prices.

    Speeds published for other batches are converted to this one with the GPU's compute line.
    """

    gpu: Gpu
    samples_per_second: float
    low: float
    high: float
    batch_per_gpu: float
    basis: SpeedBasis
    source: str
    precision: Precision
    precision_note: str
    fits: bool
    bought: GpuListPrice | None
    rented: Price | None
    """The instance with the lowest price per GPU and hour."""

    @property
    def usd(self) -> float | None:
        return self.bought.usd if self.bought else None

    @property
    def usd_per_hour(self) -> float | None:
        """The rent of one GPU of the instance."""
        return self.rented.usd_per_hour / self.rented.gpus if self.rented else None

    @property
    def per_thousand_usd(self) -> float | None:
        """Samples per second for each $1,000 of the GPU's price, without a machine."""
        return None if self.usd is None else self.samples_per_second / self.usd * 1000

    @property
    def samples_per_rented_usd(self) -> float | None:
        hourly = self.usd_per_hour
        return None if hourly is None else self.samples_per_second * 3600 / hourly

    @property
    def per_watt(self) -> float:
        return self.samples_per_second / self.gpu.board_watts


SORTS: dict[str, Callable[[RankedGpu], float | None]] = {
    "speed": lambda r: r.samples_per_second,
    "speed-per-dollar": lambda r: r.per_thousand_usd,
    "speed-per-rent": lambda r: r.samples_per_rented_usd,
    "speed-per-watt": lambda r: r.per_watt,
    "memory": lambda r: r.gpu.memory_gb,
}
"""The sort orders: largest first, then GPUs without the figure, and last GPUs without enough memory."""


def rank_gpus(
    workload: Workload,
    profile: ModelProfile,
    gpus: Iterable[Gpu],
    *,
    sort: str = "speed",
    clouds: Sequence[str] = (),
    calibration: Calibration | None = None,
) -> tuple[list[RankedGpu], list[str]]:
    """Return the GPUs, best first, and the ids of GPUs without a rate in the workload's precision or fp32."""
    if sort not in SORTS:
        raise UnknownName("order of GPUs", sort, SORTS)
    ranked: list[RankedGpu] = []
    unrated: list[str] = []
    for gpu in gpus:
        try:
            ranked.append(_evaluate_gpu(workload, profile, gpu, clouds, calibration))
        except UserMistake:
            unrated.append(gpu.id)
    figure = SORTS[sort]

    def sort_key(gpu: RankedGpu) -> tuple[bool, bool, float]:
        value = figure(gpu)
        return not gpu.fits, value is None, -(value or 0.0)

    return sorted(ranked, key=sort_key), unrated


def _evaluate_gpu(
    workload: Workload,
    profile: ModelProfile,
    gpu: Gpu,
    clouds: Sequence[str],
    calibration: Calibration | None,
) -> RankedGpu:
    cluster = Cluster(name=gpu.id, machine=MachineSpec(gpu=gpu.id, gpus=1))
    result = predict_cluster(workload, profile, cluster, (1,), calibration=calibration)
    basis: SpeedBasis = "measured" if result.compute_basis.startswith("measured") else "predicted"
    source = result.compute_basis
    published = _find_published(workload, gpu, result.precision) if basis == "predicted" else []
    if published:
        measured = workload.model_copy(update={"measured": tuple(map(_to_throughput, published))})
        result = predict_cluster(measured, profile, cluster, (1,))
        basis, source = "published", ", ".join(dict.fromkeys(row.series for row in published))
    (predicted,) = result.predictions
    return RankedGpu(
        gpu,
        predicted.samples_per_second,
        predicted.low,
        predicted.high,
        predicted.batch_per_gpu,
        basis,
        source,
        result.precision,
        result.precision_note,
        fits=predicted.fits is not False,
        bought=gpu_prices().get(gpu.id) if gpu.id in gpu_prices() else None,
        rented=_find_cheapest_rent(gpu, clouds),
    )


def _find_published(workload: Workload, gpu: Gpu, precision: Precision) -> list[SingleGpuRow]:
    """Return single-GPU figures for this model and precision from the newest table that has any."""
    rows = [
        row
        for row in single_gpu_rows()
        if (row.model, row.gpu, row.precision) == (workload.model_name, gpu.id, precision)
    ]
    newest = max((published_sources()[row.table].date for row in rows), default=None)
    return [row for row in rows if published_sources()[row.table].date == newest]


def _to_throughput(row: SingleGpuRow) -> KnownThroughput:
    return KnownThroughput(
        gpu=row.gpu,
        batch_per_gpu=max(1, round(row.batch_per_gpu)),
        samples_per_second=row.samples_per_second,
        precision=row.precision,
    )


def _find_cheapest_rent(gpu: Gpu, clouds: Sequence[str]) -> Price | None:
    rents = (
        price for price in prices() if price.gpu == gpu.id and (not clouds or price.cloud in clouds)
    )
    return min(rents, key=lambda price: price.usd_per_hour / price.gpus, default=None)
