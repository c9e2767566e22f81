"""One GPU's step without anybody else: t(b) = t0 + b/r, measured, scaled from another GPU, or estimated."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gpuyard.catalog import Gpu, ModelProfile, gpus
from gpuyard.predict import constants as c
from gpuyard.predict.constants import Constant, RooflineFit, fitted_roofline
from gpuyard.predict.precision import figure_precision, precision_on, rated
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
    """The best that is known: this GPU's own figures, those of another precision or GPU scaled, or a roofline."""
    precision = precision_on(gpu, workload, profile)
    estimate = roofline(profile, gpu, precision)
    figures: dict[tuple[str, Precision], list[tuple[float, float]]] = {}
    for known in workload.measured:
        at = figure_precision(known.gpu, known.precision, workload, profile)
        seconds = known.batch_per_gpu / known.samples_per_second
        figures.setdefault((known.gpu, at), []).append((known.batch_per_gpu, seconds))
    if (gpu.id, precision) in figures:
        fixed, per_sample = _through(figures[gpu.id, precision], estimate)
        return ComputeLine(fixed, per_sample, "measured", f"figures for {gpu.id} in the workload")
    if figures:

        def near(figure: tuple[str, Precision]) -> tuple[bool, bool, int]:
            other, at = figure
            same = at == precision_on(gpus().get(other), workload, profile)
            return other == gpu.id, same, len(figures[figure])

        other, at = max(figures, key=near)
        there = roofline(profile, gpus().get(other), at)
        fixed, per_sample = _through(figures[other, at], there)
        return ComputeLine(
            fixed * estimate.fixed_seconds / there.fixed_seconds,
            per_sample * estimate.seconds_per_sample / there.seconds_per_sample,
            "scaled",
            f"figures for {other} in the workload, {scaled_words(gpu, precision, other, at)}",
            estimate.constants,
        )
    return estimate


def scaled_words(gpu: Gpu, precision: Precision, other: str, at: Precision) -> str:
    """By what a figure becomes one of another GPU, or of another precision."""
    if other == gpu.id:
        return f"scaled by the GPU's rooflines in {at} and {precision}"
    differ = "" if at == precision else f", in {at} and {precision}"
    return f"scaled by the two GPUs' rooflines{differ}"


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
    used, peak_flops = rated(precision, gpu)
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
