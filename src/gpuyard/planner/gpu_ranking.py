"""Rank GPUs for a workload by the speed of a single GPU, absolute and per dollar, rent, and watt."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from gpuyard.catalog import Gpu, ModelProfile, Price, prices
from gpuyard.catalog.prices import GpuListPrice, gpu_prices
from gpuyard.errors import UnknownName, UserMistake
from gpuyard.predictor import predict_cluster
from gpuyard.predictor.calibration.document import Calibration
from gpuyard.specs import Cluster, MachineSpec, Precision, Workload

SpeedBasis = Literal["measured", "published", "predicted"]
_BASES: dict[str, SpeedBasis] = {
    "measured here": "measured",
    "measured": "measured",
    "published": "published",
}


@dataclass(frozen=True)
class RankedGpu:
    """The speed of one GPU with the workload at one batch, as `predict` gives it, and its prices."""

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
    caveat: str = ""

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
    basis, _, source = result.compute_basis.partition(": ")
    (predicted,) = result.predictions
    return RankedGpu(
        gpu,
        predicted.samples_per_second,
        predicted.low,
        predicted.high,
        predicted.batch_per_gpu,
        _BASES.get(basis, "predicted"),
        source,
        result.precision,
        result.precision_note,
        fits=predicted.fits is not False,
        bought=gpu_prices().get(gpu.id) if gpu.id in gpu_prices() else None,
        rented=_find_cheapest_rent(gpu, clouds),
        caveat=result.evidence_note,
    )


def _find_cheapest_rent(gpu: Gpu, clouds: Sequence[str]) -> Price | None:
    rents = (
        price for price in prices() if price.gpu == gpu.id and (not clouds or price.cloud in clouds)
    )
    return min(rents, key=lambda price: price.usd_per_hour / price.gpus, default=None)
