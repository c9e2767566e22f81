"""One GPU's step without anybody else: t(b) = t0 + b/r, measured, scaled from another GPU, or estimated."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gpuyard.catalog import Gpu, ModelProfile, gpus
from gpuyard.errors import UserMistake
from gpuyard.predict import constants as c
from gpuyard.predict.constants import Constant, RooflineFit, fitted_roofline
from gpuyard.predict.table import Floats, Rows
from gpuyard.specs import Precision, Workload

# a step's fixed part is launches and passes over the parameters; it can't be nearly all of a step
MOST_FIXED = 0.8
ComputeBasis = Literal["measured here", "measured", "scaled", "roofline"]


@dataclass(frozen=True)
class ComputeLine:
    """Seconds of compute for a per-GPU batch b: fixed + b · per_sample."""

    fixed_seconds: float
    seconds_per_sample: float
    basis: ComputeBasis
    source: str
    constants: tuple[Constant, ...] = ()

    @property
    def relative_uncertainty(self) -> float:
        return c.UNCERTAINTY[self.basis]

    def columns(self, rows: Rows) -> tuple[Floats, Floats]:
        """Both parts, for every row."""
        like = rows.batch_per_gpu
        fixed, per_sample = self.fixed_seconds, self.seconds_per_sample
        return np.full_like(like, fixed), np.full_like(like, per_sample)


@dataclass(frozen=True)
class ComputeLines:
    """The same for every spot of a fleet."""

    fixed_seconds: Floats
    seconds_per_sample: Floats
    constants: tuple[Constant, ...] = ()

    def columns(self, rows: Rows) -> tuple[Floats, Floats]:
        return self.fixed_seconds[rows.spot], self.seconds_per_sample[rows.spot]


def fit_line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Least-squares t0 and 1/r through (batch, seconds), neither below zero.

    Weighted by 1/t², so that a small batch counts as much as a large one in relative terms.
    """
    batch = np.array([b for b, _ in points], dtype=float)
    seconds = np.array([t for _, t in points], dtype=float)
    weight = 1 / seconds
    design = np.stack([np.ones_like(batch), batch], axis=1) * weight[:, None]
    fixed, per_sample = np.linalg.lstsq(design, seconds * weight, rcond=None)[0]
    if fixed < 0 or per_sample <= 0:
        # through the origin: where noise hid the slope, a larger batch must not seem to be free
        return 0.0, float(np.sum(batch / seconds) / np.sum((batch / seconds) ** 2))
    return float(fixed), float(per_sample)


def compute_line(workload: Workload, profile: ModelProfile, gpu: Gpu) -> ComputeLine:
    """The best that is known: this GPU's own figures, another GPU's scaled, or a roofline."""
    estimate = roofline(profile, gpu, workload.precision)
    by_gpu: dict[str, list[tuple[float, float]]] = {}
    for known in workload.measured:
        seconds = known.batch_per_gpu / known.samples_per_second
        by_gpu.setdefault(known.gpu, []).append((known.batch_per_gpu, seconds))
    if gpu.id in by_gpu:
        fixed, per_sample = _through(by_gpu[gpu.id], estimate)
        return ComputeLine(fixed, per_sample, "measured", f"figures for {gpu.id} in the workload")
    if by_gpu:
        other = max(by_gpu, key=lambda name: len(by_gpu[name]))
        there = roofline(profile, gpus().get(other), workload.precision)
        fixed, per_sample = _through(by_gpu[other], there)
        return ComputeLine(
            fixed * estimate.fixed_seconds / there.fixed_seconds,
            per_sample * estimate.seconds_per_sample / there.seconds_per_sample,
            "scaled",
            f"figures for {other} in the workload, scaled by the two GPUs' rooflines",
            estimate.constants,
        )
    return estimate


def _through(points: Sequence[tuple[float, float]], estimate: ComputeLine) -> tuple[float, float]:
    """A line through measured points; with a single batch size its fixed part is the estimate's."""
    if len({batch for batch, _ in points}) > 1:
        return fit_line(points)
    batch, seconds = points[0]
    fixed = min(estimate.fixed_seconds, MOST_FIXED * seconds)
    return fixed, (seconds - fixed) / batch


def roofline(
    profile: ModelProfile, gpu: Gpu, precision: Precision, fit: RooflineFit | None = None
) -> ComputeLine:
    """From FLOPs, bytes moved and the datasheet. Arithmetic and memory are added: few kernels keep
    both busy at once."""
    used = _usable_precision(gpu, precision)
    peak_flops = gpu.peak_flops(used)
    if peak_flops is None:
        raise UserMistake(
            f"the catalog has no {precision} rate for {gpu.id}, so no estimate can be made"
        )
    fit = fit or fitted_roofline()
    efficiency = {"fp32": fit.math_fp32, "tf32": fit.math_tf32}.get(used, fit.math_fp16)
    width = 4 if used in ("fp32", "tf32") else 2
    flops = 3 * profile.forward_flops * (fit.convolution_flops if _convolves(profile) else 1.0)
    moved = fit.activation_passes * profile.activation_bytes * width / 4
    launches = c.KERNELS_PER_LAYER.value * c.KERNEL_LAUNCH.value
    layers = len(profile.layers) * (launches + fit.layer_flops / peak_flops)
    parameters = c.PARAMETER_PASSES.value * profile.gradient_bytes / gpu.memory_bytes_per_second
    return ComputeLine(
        layers + parameters,
        flops / (peak_flops * efficiency) + moved / gpu.memory_bytes_per_second,
        "roofline",
        f"estimated from {profile.id}'s profile and {gpu.id}'s datasheet",
        (c.MATH_EFFICIENCY[used], c.CONVOLUTION_FLOPS, c.ACTIVATION_PASSES, c.PARAMETER_PASSES,
         c.LAYER_FLOPS, c.KERNEL_LAUNCH, c.KERNELS_PER_LAYER),
    )  # fmt: skip


def _convolves(profile: ModelProfile) -> bool:
    return profile.sample.startswith("image") and not profile.id.startswith("vit")


def _usable_precision(gpu: Gpu, precision: Precision) -> Precision:
    # a GPU without tf32 runs such a model in fp32, as torch does
    if precision == "tf32" and gpu.peak_flops("tf32") is None:
        return "fp32"
    return precision
