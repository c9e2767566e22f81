"""One GPU's step without anybody else: t(b) = t0 + b/r, measured, scaled from another GPU, or estimated; and the
precision it trains in, at whose rate it computes.

`fp32` and `tf32` keep everything in 32 bits; tf32 rounds what tensor cores multiply. `fp16` and `bf16` are
PyTorch's autocast: 16-bit numbers where they do, fp32 where they must; weights, gradients and the
optimizer stay in fp32, so an exchange is no smaller.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gpuyard.catalog import Gpu, ModelProfile, gpus
from gpuyard.errors import UserMistake
from gpuyard.predict import constants as c
from gpuyard.predict.constants import Constant, RooflineFit, fitted_roofline
from gpuyard.predict.table import Configurations, Floats
from gpuyard.specs import Precision, Workload

HALVES: tuple[Precision, ...] = ("bf16", "fp16")
# No tensor cores: PyTorch has 16-bit products added up in fp32, and these then have the vector rate of fp32,
# also on a P100, whose datasheet has a rate for sums in fp16.
_WITHOUT_TENSOR_CORES = ("Kepler", "Maxwell", "Pascal")


def default_precision(profile: ModelProfile, gpu: Gpu | None) -> Precision:
    """What PyTorch does without a setting: `torch.backends.cudnn.allow_tf32` is True, and
    `torch.backends.cuda.matmul.allow_tf32` is False. ROCm and others have no tf32 unasked."""
    tensor_cores = gpu is not None and gpu.vendor == "NVIDIA" and gpu.tf32_tflops is not None
    return "tf32" if tensor_cores and profile.mostly_cudnn else "fp32"


def trained_in(precision: Precision, gpu: Gpu) -> Precision:
    """tf32 is a permission: a GPU without it computes in fp32."""
    return "fp32" if precision == "tf32" and gpu.tf32_tflops is None else precision


def precision_on(gpu: Gpu | None, workload: Workload, profile: ModelProfile) -> Precision:
    """What the workload trains in there: as it says, or as PyTorch does."""
    asked = workload.precision or default_precision(profile, gpu)
    return trained_in(asked, gpu) if gpu else asked


def computed_in(precision: Precision, gpu: Gpu) -> Precision:
    """Whose rate it gets. 16-bit numbers that a GPU has no fast units for are computed as fp32, and only
    take less memory: bf16 before Ampere (emulated, PyTorch's pull request 148322), fp16 before Volta
    (Lambda's GTX 1080 Ti: 196 images/s in fp32, 230 in fp16 at 1.8 times the batch; SSD 70 and 65)."""
    precision = trained_in(precision, gpu)
    slow = gpu.peak_flops(precision) is None or gpu.architecture in _WITHOUT_TENSOR_CORES
    if precision in HALVES and slow and gpu.peak_flops("fp32") is not None:
        return "fp32"
    return precision


def rated(precision: Precision, gpu: Gpu) -> tuple[Precision, float]:
    """Whose rate it gets, and that peak."""
    used = computed_in(precision, gpu)
    peak_flops = gpu.peak_flops(used)
    if peak_flops is None:
        has = [p for p in ("fp32", "tf32", *HALVES) if gpu.peak_flops(p) is not None]
        raise UserMistake(
            f"the catalog has no {precision} rate for {gpu.id}, so no estimate can be made; "
            f"it has {' and '.join(has)} (--precision)"
        )
    return used, peak_flops


def faster_half(gpu: Gpu) -> Precision:
    """Which 16-bit numbers to train with: bf16 needs no loss scaling, where it is fast."""
    return "bf16" if computed_in("bf16", gpu) == "bf16" else "fp16"


def at_precision(workload: Workload, profile: ModelProfile, precision: Precision) -> Workload:
    """The workload trained in another precision. Figures that it has stay those of the precision that
    they were measured in."""
    measured = tuple(
        known.model_copy(update={"precision": figure_precision(known.gpu, known.precision, workload, profile)})
        for known in workload.measured
    )  # fmt: skip
    return workload.model_copy(update={"precision": precision, "measured": measured})


def figure_precision(
    gpu: str, given: Precision | None, workload: Workload, profile: ModelProfile
) -> Precision:
    """What a figure of some GPU was measured in; if nobody says, in what the workload trains there."""
    found = gpus().get(gpu)
    return trained_in(given, found) if given else precision_on(found, workload, profile)


def precision_words(gpu: Gpu | None, workload: Workload, profile: ModelProfile) -> str:
    """In which precision, why, and what it means there: a sentence."""
    used = precision_on(gpu, workload, profile)
    return f"Precision: {used}{_meaning(used, gpu, workload, profile) if gpu else ''}."


def _meaning(used: Precision, gpu: Gpu, workload: Workload, profile: ModelProfile) -> str:
    if used in HALVES:
        if computed_in(used, gpu) != used:
            return (
                f", which {gpu.name} computes at the speed of fp32 or slower: it saves memory, "
                "not time"
            )
        return " by autocast; weights, gradients and optimizer state stay in fp32"
    if workload.precision is not None:
        return (
            ""
            if workload.precision == used
            else f", because {gpu.name} has no {workload.precision}"
        )
    choices = "(--precision fp32, tf32, fp16 or bf16)"
    if used == "tf32":
        return f" for convolutions and RNNs, PyTorch's default on this GPU {choices}"
    products = " for matrix products" if gpu.tf32_tflops and not profile.mostly_cudnn else ""
    return f", PyTorch's default{products} on this GPU {choices}"


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

    def columns(self, rows: Configurations) -> tuple[Floats, Floats]:
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

    def columns(self, rows: Configurations) -> tuple[Floats, Floats]:
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
    for known in workload.measured_alone:
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
