"""Everything about the speed of a running training: its verdict, throughput, MFU, prediction, and the cost of the gap."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from gpuyard.jobs.verdict import Expectation, Verdict, judge
from gpuyard.reporting.ranks import RankWindow
from gpuyard.units import format_number, format_usd

if TYPE_CHECKING:
    from gpuyard.catalog import Gpu, ModelProfile
    from gpuyard.jobs.job import ExpectedSpeed
    from gpuyard.specs import Workload

_HOURS_PER_DAY = 24
_SAMPLES_TOLERANCE = 0.02


@dataclass(frozen=True)
class TrainingPrice:
    """The price of all machines of a training, and where it comes from."""

    usd_per_hour: float
    basis: str


@dataclass(frozen=True)
class GapCost:
    """The cost of a slow training, for as long as it stays as slow as now."""

    lost_share: float
    gpu_hours_per_day: float | None  # None without GPUs
    usd_per_day: float | None
    basis: str = ""

    @property
    def sentence(self) -> str:
        """Return e.g. "It costs $38.10 a day (on-demand price of 4 × a10g at aws, 2026-05-04)."."""
        if self.usd_per_day is not None:
            return f"It costs {format_usd(self.usd_per_day)} a day ({self.basis})."
        if self.gpu_hours_per_day is not None:
            return f"It costs {format_number(self.gpu_hours_per_day)} GPU-hours a day."
        return f"It costs {format_number(_HOURS_PER_DAY * self.lost_share)} hours of each day."


@dataclass(frozen=True)
class JudgedRun:
    """A training's verdict with its figures; None if they are unknown."""

    verdict: Verdict
    expected: Expectation | None
    samples_per_second: float | None
    mfu: float | None
    gap: GapCost | None

    @property
    def remarks(self) -> list[str]:
        """Return the sentences that follow the verdict: the cost, and a silence of some ranks."""
        verdict = self.verdict
        silence = None if verdict.stuck else verdict.silence
        return [item.sentence for item in (self.gap, silence) if item is not None]

    @property
    def expected_samples_per_second(self) -> tuple[float, float] | None:
        """The predicted interval of the throughput."""
        rate, expected = self.samples_per_second, self.expected
        if rate is None or expected is None:
            return None
        samples = rate * self.verdict.step_seconds
        return samples / expected.high_seconds, samples / expected.low_seconds

    def document(self) -> dict[str, Any]:
        """Return the JSON form."""
        low, high = self.expected_samples_per_second or (None, None)
        verdict, expected = self.verdict, self.expected
        return {
            "normal": verdict.normal,
            "sentence": verdict.sentence,
            "step_seconds": verdict.step_seconds,
            "expected_low_seconds": expected and expected.low_seconds,
            "expected_high_seconds": expected and expected.high_seconds,
            "samples_per_second": self.samples_per_second,
            "expected_low_samples_per_second": low,
            "expected_high_samples_per_second": high,
            "share_of_expected": verdict.share_of_expected,
            "mfu": self.mfu,
            "cost": None if self.gap is None else {**asdict(self.gap), "sentence": self.gap.sentence},
            "causes": [asdict(cause) for cause in verdict.causes],
            "drift": verdict.drift and asdict(verdict.drift),
            "silence": verdict.silence and asdict(verdict.silence),
        }  # fmt: skip


def judge_run(
    windows: Sequence[RankWindow],
    expected: Expectation | None = None,
    *,
    ideal_seconds: float | None = None,
    price: TrainingPrice | None = None,
    on_gpus: bool = False,
    now: float | None = None,
) -> JudgedRun | None:
    """Judge the ranks' reports; None before the warm-up has ended.

    `ideal_seconds` is a step at the GPUs' peak. With `on_gpus`, it uses GPUs even if its reports name none. `now` is
    the time if it still runs.
    """
    verdict = judge(windows, expected, now)
    if verdict is None:
        return None
    step = verdict.step_seconds
    last = find_last_window(windows)
    rate = None if last is None else last.samples / last.steps / step
    mfu = None if ideal_seconds is None else ideal_seconds / step
    lost = verdict.lost_share
    if not lost:
        return JudgedRun(verdict, expected, rate, mfu, None)
    if price is None and (gpu := find_gpu(windows)) is not None:
        price = find_price(gpu, count_gpus(windows), max(len(w.products) for w in windows))
    on_gpus = on_gpus or price is not None or any(w.gpu is not None or w.products for w in windows)
    gap = GapCost(
        lost,
        _HOURS_PER_DAY * lost * count_gpus(windows) if on_gpus else None,
        None if price is None else _HOURS_PER_DAY * lost * price.usd_per_hour,
        "" if price is None else price.basis,
    )
    return JudgedRun(verdict, expected, rate, mfu, gap)


def find_last_window(windows: Sequence[RankWindow]) -> RankWindow | None:
    """Return the newest report after the warm-up that has samples, which only rank 0 writes."""
    return next((w for w in reversed(windows) if w.samples and not w.warmup), None)


def count_gpus(windows: Sequence[RankWindow]) -> int:
    """Return the GPUs of the whole training: rank 0 knows them, even if the other ranks' reports are elsewhere."""
    ranks = len({window.rank for window in windows})
    return max([ranks, *(window.gpus for window in windows)])


def find_gpu(windows: Sequence[RankWindow]) -> "Gpu | None":
    """Return the catalog's entry for the GPUs that rank 0 reports; None if it names none, or different ones."""
    products = {product for window in windows for product in window.products}
    if len(products) != 1:
        return None
    from gpuyard.hardware.product_names import find_catalog_gpu

    return find_catalog_gpu(products.pop())


def find_price(gpu: "Gpu", gpus: int, gpus_per_machine: int) -> TrainingPrice | None:
    """Return the cheapest on-demand price of as many such GPUs, from the catalog."""
    from gpuyard.catalog.prices import find_cheapest_price

    cheapest = find_cheapest_price(gpu.id, gpus_per_machine)
    if cheapest is None:
        return None
    basis = f"on-demand price of {cheapest.gpus} × {gpu.id} at {cheapest.cloud}, {cheapest.date}"
    return TrainingPrice(gpus * cheapest.usd_per_gpu_hour, basis)


def expect_speed(
    windows: Sequence[RankWindow], speed: "ExpectedSpeed | None"
) -> Expectation | None:
    """Convert a throughput that was predicted at the submission to that of a step.

    Its parts are compared only if the step has as many samples as was predicted.
    """
    last = find_last_window(windows)
    if last is None or speed is None or not speed.low > 0:
        return None
    samples = last.samples / last.steps
    low, high, parts = samples / speed.high, samples / speed.low, speed.parts
    if parts is None or abs(samples / parts.samples - 1) > _SAMPLES_TOLERANCE:
        return Expectation(low, high)
    return Expectation(low, high, parts.compute_seconds, parts.exchange_seconds, samples)


def find_ideal_seconds(
    windows: Sequence[RankWindow], workload: "Workload", profile: "ModelProfile", gpu: "Gpu"
) -> float | None:
    """Return the time of a step at the GPUs' peak rate, for the MFU; None if that rate is unknown."""
    from gpuyard.predictor.compute import resolve_precision

    last = find_last_window(windows)
    if last is None:
        return None
    peak = gpu.peak_flops(resolve_precision(gpu, workload, profile))
    if not peak:
        return None
    # the backward pass has twice the operations of the forward pass
    return 3 * profile.forward_flops * last.samples / last.steps / count_gpus(windows) / peak


def find_reported_ideal_seconds(
    windows: Sequence[RankWindow], workload: "Workload"
) -> float | None:
    """Return the same for the GPUs that rank 0 reports; None for the user's own model, which is not run here."""
    gpu = find_gpu(windows)
    if gpu is None:
        return None
    from gpuyard.workloads.profiles import catalog_profile

    profile = catalog_profile(workload)
    return None if profile is None else find_ideal_seconds(windows, workload, profile, gpu)
