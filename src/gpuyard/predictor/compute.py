"""The step of a single GPU, t(b) = t0 + b/r: measured, scaled from another GPU, published, or estimated.

The module also resolves the training precision and the rate that a GPU reaches in it. `fp32` and `tf32` keep everything
in 32 bits; tf32 rounds the factors of tensor-core products. `fp16` and `bf16` are PyTorch's autocast, which uses fp32
for some operations. Weights, gradients, and the optimizer stay in fp32, so an exchange is no smaller.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from gpuyard.catalog import Gpu, ModelProfile, gpus
from gpuyard.errors import UserMistake
from gpuyard.predictor import constants as c
from gpuyard.predictor.constants import Constant, RooflineFit, load_roofline_fit
from gpuyard.predictor.speed_evidence import (
    Correction,
    create_case,
    load_speed_evidence,
)
from gpuyard.predictor.table import Configurations, Floats
from gpuyard.specs import Precision, Workload

HALVES: tuple[Precision, ...] = ("bf16", "fp16")
_HALF_BYTES = 2
# Without tensor cores, PyTorch accumulates 16-bit products in fp32, at the vector rate of fp32. This includes the P100,
# whose datasheet has a rate for sums in fp16.
_WITHOUT_TENSOR_CORES = ("Kepler", "Maxwell", "Pascal")


def default_precision(profile: ModelProfile, gpu: Gpu | None) -> Precision:
    """Return PyTorch's default precision.

    `torch.backends.cudnn.allow_tf32` is True, and `torch.backends.cuda.matmul.allow_tf32` is False. ROCm and others
    don't use tf32 by default. A module with 16-bit weights computes with them.
    """
    if profile.bytes_per_parameter <= _HALF_BYTES:
        return "bf16"
    tensor_cores = gpu is not None and gpu.vendor == "NVIDIA" and gpu.tf32_tflops is not None
    return "tf32" if tensor_cores and profile.mostly_cudnn else "fp32"


def resolve_supported_precision(precision: Precision, gpu: Gpu) -> Precision:
    """Return the precision that the GPU supports: tf32 is only a permission, and without it a GPU uses fp32."""
    return "fp32" if precision == "tf32" and gpu.tf32_tflops is None else precision


def resolve_precision(gpu: Gpu | None, workload: Workload, profile: ModelProfile) -> Precision:
    """Return the training precision on a GPU: the workload's, or PyTorch's default."""
    precision = workload.precision or default_precision(profile, gpu)
    return resolve_supported_precision(precision, gpu) if gpu else precision


def resolve_compute_precision(precision: Precision, gpu: Gpu) -> Precision:
    """Return the precision whose rate the GPU reaches.

    A GPU without fast 16-bit units computes 16-bit numbers as fp32 and only saves memory: bf16 before Ampere (emulated,
    PyTorch's pull request 148322), fp16 before Volta (Lambda's GTX 1080 Ti: 196 images/s in fp32, 230 in fp16 at 1.8
    times the batch; SSD 70 and 65).
    """
    precision = resolve_supported_precision(precision, gpu)
    slow = gpu.peak_flops(precision) is None or gpu.architecture in _WITHOUT_TENSOR_CORES
    if precision in HALVES and slow and gpu.peak_flops("fp32") is not None:
        return "fp32"
    return precision


def find_peak_rate(precision: Precision, gpu: Gpu) -> tuple[Precision, float]:
    """Return the precision whose rate the GPU reaches, and its peak rate."""
    used = resolve_compute_precision(precision, gpu)
    peak_flops = gpu.peak_flops(used)
    if peak_flops is None:
        available = [p for p in ("fp32", "tf32", *HALVES) if gpu.peak_flops(p) is not None]
        raise UserMistake(
            f"the catalog has no {precision} rate for {gpu.id}, so its speed cannot be estimated; "
            f"it has {' and '.join(available)} (--precision)"
        )
    return used, peak_flops


def choose_half_precision(gpu: Gpu) -> Precision:
    """Return the 16-bit format to train with: bf16 if it is fast, because it needs no loss scaling."""
    return "bf16" if resolve_compute_precision("bf16", gpu) == "bf16" else "fp16"


def change_workload_precision(
    workload: Workload, profile: ModelProfile, precision: Precision
) -> Workload:
    """Return the workload in another precision; its figures keep the precision they were measured in."""
    measured = tuple(
        figure.model_copy(update={"precision": resolve_figure_precision(figure.gpu, figure.precision, workload, profile)})
        for figure in workload.measured
    )  # fmt: skip
    return workload.model_copy(update={"precision": precision, "measured": measured})


def resolve_figure_precision(
    gpu: str, precision: Precision | None, workload: Workload, profile: ModelProfile
) -> Precision:
    """Return the precision of a measured figure; by default, the workload's precision on that GPU."""
    entry = gpus().get(gpu)
    if precision:
        return resolve_supported_precision(precision, entry)
    return resolve_precision(entry, workload, profile)


def describe_precision(gpu: Gpu | None, workload: Workload, profile: ModelProfile) -> str:
    """Return a sentence about the precision, the reason for it, and its effect on this GPU."""
    used = resolve_precision(gpu, workload, profile)
    return f"Precision: {used}{_explain_precision(used, gpu, workload, profile) if gpu else ''}."


def _explain_precision(used: Precision, gpu: Gpu, workload: Workload, profile: ModelProfile) -> str:
    if used in HALVES:
        if resolve_compute_precision(used, gpu) != used:
            return (
                f", which {gpu.name} computes at the speed of fp32 or slower: it saves memory, "
                "not time"
            )
        return " by autocast; weights, gradients, and optimizer state stay in fp32"
    if workload.precision is not None:
        return (
            ""
            if workload.precision == used
            else f", because {gpu.name} has no {workload.precision}"
        )
    choices = "(--precision fp32, tf32, fp16, or bf16)"
    if used == "tf32":
        return f" for convolutions and RNNs, PyTorch's default on this GPU {choices}"
    products = " for matrix products" if gpu.tf32_tflops and not profile.mostly_cudnn else ""
    return f", PyTorch's default{products} on this GPU {choices}"


# the fixed part of a step is launches and passes over the parameters; it cannot be nearly all of a step
MAX_FIXED = 0.8
ComputeBasis = Literal["measured here", "measured", "scaled", "published", "roofline"]


@dataclass(frozen=True)
class ComputeLine:
    """The compute time for a per-GPU batch b: fixed + b · per_sample."""

    fixed_seconds: float
    seconds_per_sample: float
    basis: ComputeBasis
    source: str
    constants: tuple[Constant, ...] = ()
    sigma: float | None = None  # one relative σ; None: that of the basis
    caveat: str = ""  # set if nothing is published for this GPU or its vendor

    @property
    def relative_uncertainty(self) -> float:
        return c.UNCERTAINTY[self.basis] if self.sigma is None else self.sigma

    def scale(self, factor: float) -> "ComputeLine":
        """Return the line with another length of both parts."""
        return replace(
            self,
            fixed_seconds=self.fixed_seconds * factor,
            seconds_per_sample=self.seconds_per_sample * factor,
        )

    def columns(self, rows: Configurations) -> tuple[Floats, Floats]:
        """Return both parts for every row."""
        like = rows.batch_per_gpu
        fixed, per_sample = self.fixed_seconds, self.seconds_per_sample
        return np.full_like(like, fixed), np.full_like(like, per_sample)


@dataclass(frozen=True)
class ComputeLines:
    """Compute lines, one per entry of a fleet."""

    fixed_seconds: Floats
    seconds_per_sample: Floats
    constants: tuple[Constant, ...] = ()

    def columns(self, rows: Configurations) -> tuple[Floats, Floats]:
        return self.fixed_seconds[rows.fleet_index], self.seconds_per_sample[rows.fleet_index]


def fit_line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Fit t0 and 1/r to (batch, seconds) by least squares, neither below zero.

    Points are weighted by 1/t², so that relative errors of small and large batches count the same.
    """
    batch = np.array([b for b, _ in points], dtype=float)
    seconds = np.array([t for _, t in points], dtype=float)
    weight = 1 / seconds
    design = np.stack([np.ones_like(batch), batch], axis=1) * weight[:, None]
    fixed, per_sample = np.linalg.lstsq(design, seconds * weight, rcond=None)[0]
    if fixed < 0 or per_sample <= 0:
        # fit through the origin: if noise hides the slope, a larger batch must not appear to be free
        return 0.0, float(np.sum(batch / seconds) / np.sum((batch / seconds) ** 2))
    return float(fixed), float(per_sample)


def estimate_compute_line(workload: Workload, profile: ModelProfile, gpu: Gpu) -> ComputeLine:
    """Return the best compute line.

    In order, it comes from the workload's figures for this GPU, from its figures in another precision or for another
    GPU, or from published figures and a roofline.
    """
    precision = resolve_precision(gpu, workload, profile)
    estimate = estimate_from_published(workload, profile, gpu, precision)
    figures: dict[tuple[str, Precision], list[tuple[float, float]]] = {}
    for figure in workload.single_gpu_measurements:
        at = resolve_figure_precision(figure.gpu, figure.precision, workload, profile)
        seconds = figure.batch_per_gpu / figure.samples_per_second
        figures.setdefault((figure.gpu, at), []).append((figure.batch_per_gpu, seconds))
    if (gpu.id, precision) in figures:
        fixed, per_sample = _fit_points(figures[gpu.id, precision], estimate)
        return ComputeLine(fixed, per_sample, "measured", f"figures for {gpu.id} in the workload")
    if figures:

        def rank(key: tuple[str, Precision]) -> tuple[bool, bool, int]:
            other, at = key
            same = at == resolve_precision(gpus().get(other), workload, profile)
            return other == gpu.id, same, len(figures[key])

        other, at = max(figures, key=rank)
        other_estimate = estimate_from_published(workload, profile, gpus().get(other), at)
        fixed, per_sample = _fit_points(figures[other, at], other_estimate)
        return ComputeLine(
            fixed * estimate.fixed_seconds / other_estimate.fixed_seconds,
            per_sample * estimate.seconds_per_sample / other_estimate.seconds_per_sample,
            "scaled",
            f"figures for {other} in the workload, {describe_scaling(gpu, precision, other, at)}",
            estimate.constants,
            caveat=estimate.caveat,
        )
    return estimate


def estimate_from_published(
    workload: Workload, profile: ModelProfile, gpu: Gpu, precision: Precision
) -> ComputeLine:
    """Estimate the compute line by a roofline that published throughputs correct.

    On a GPU with tf32, fp32 is never estimated faster than tf32, because tf32 is only a permission to round.
    """
    line = _correct_roofline(workload, profile, gpu, precision)
    if precision == "fp32" and gpu.tf32_tflops is not None:
        line = _limit_speed(line, _correct_roofline(workload, profile, gpu, "tf32"))
    for sibling in _find_stronger_siblings(gpu, precision):
        line = _limit_speed(line, _correct_roofline(workload, profile, sibling, precision))
    return line


def _limit_speed(line: ComputeLine, fastest: ComputeLine) -> ComputeLine:
    return replace(
        line,
        fixed_seconds=max(line.fixed_seconds, fastest.fixed_seconds),
        seconds_per_sample=max(line.seconds_per_sample, fastest.seconds_per_sample),
    )


@functools.cache
def _find_stronger_siblings(gpu: Gpu, precision: Precision) -> tuple[Gpu, ...]:
    """Return variants of a GPU with figures that have more power and a higher peak, but slower memory.

    A GPU without figures is not estimated faster than these, because faster memory alone is no evidence: the H100 NVL is
    not estimated faster than the H100 SXM5.
    """
    published = {case.gpu for case in load_speed_evidence().cases}
    if gpu.id in published:
        return ()
    peak = find_peak_rate(precision, gpu)[1]
    return tuple(
        other
        for other in map(gpus().get, sorted(published))
        if other.id.split("-")[0] == gpu.id.split("-")[0]
        and other.architecture == gpu.architecture
        and other.board_watts > gpu.board_watts
        and (other.peak_flops(precision) or 0.0) > peak
        and other.memory_bytes_per_second < gpu.memory_bytes_per_second
    )


def _correct_roofline(
    workload: Workload, profile: ModelProfile, gpu: Gpu, precision: Precision
) -> ComputeLine:
    line = roofline(profile, gpu, precision)
    used, _ = find_peak_rate(precision, gpu)
    case = create_case(
        workload.model_name,
        profile,
        gpu,
        used,
        channels_last=workload.channels_last,
        compiled=workload.compile,
        fused_attention=workload.fused_attention,
    )
    evidence = load_speed_evidence()
    correction = evidence.correct(case)
    corrected = replace(
        line.scale(math.exp(correction.log_factor)),
        sigma=correction.sigma,
        caveat=_describe_missing_evidence(gpu, correction),
    )
    if correction.figures:
        publishers = dict.fromkeys(evidence.cases[i].publisher for i in correction.figures)
        by = ", ".join(publisher for publisher in publishers if publisher)
        figures = f"figures for {profile.id} on {gpu.id} by {by}"
        return replace(corrected, basis="published", source=figures)
    known = [
        name
        for name, yes in (("this GPU", correction.gpu_known), (f"{case.family} models", correction.family_known))
        if yes
    ]  # fmt: skip
    published = f", corrected by published figures for {' and '.join(known)}" if known else ""
    return replace(corrected, source=line.source + published)


def _describe_missing_evidence(gpu: Gpu, correction: Correction) -> str:
    """Say that nothing is published for a GPU, so that its interval is wide."""
    if correction.gpu_known:
        return ""
    if correction.vendor_known:
        return f"No training speed of {gpu.name} is published in the tables of gpuyard: its interval is wide."
    return (
        f"No training speed of any {gpu.vendor} GPU is published in the tables of gpuyard: {gpu.name} is estimated from "
        "its datasheet as if its software were as good as NVIDIA's, with a very wide interval. Measure it first."
    )


def describe_scaling(gpu: Gpu, precision: Precision, other: str, at: Precision) -> str:
    """Describe how a figure is scaled to another GPU or precision."""
    if other == gpu.id:
        return f"scaled by the GPU's rooflines in {at} and {precision}"
    differ = "" if at == precision else f", in {at} and {precision}"
    return f"scaled by the two GPUs' rooflines{differ}"


def _fit_points(
    points: Sequence[tuple[float, float]], estimate: ComputeLine
) -> tuple[float, float]:
    """Fit a line through measured points; with a single batch size, use the estimate's fixed part."""
    if len({batch for batch, _ in points}) > 1:
        return fit_line(points)
    batch, seconds = points[0]
    fixed = min(estimate.fixed_seconds, MAX_FIXED * seconds)
    return fixed, (seconds - fixed) / batch


def roofline(
    profile: ModelProfile, gpu: Gpu, precision: Precision, fit: RooflineFit | None = None
) -> ComputeLine:
    """Estimate the compute line from FLOPs, bytes moved, and the datasheet.

    Arithmetic and memory times are added because few kernels keep both busy at once.
    """
    used, peak_flops = find_peak_rate(precision, gpu)
    fit = fit or load_roofline_fit()
    efficiency = {"fp32": fit.math_fp32, "tf32": fit.math_tf32}.get(used, fit.math_fp16)
    width = 4 if used in ("fp32", "tf32") else 2
    flops = (
        3 * profile.forward_flops * (fit.convolution_flops if _is_convolutional(profile) else 1.0)
    )
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


def _is_convolutional(profile: ModelProfile) -> bool:
    return profile.sample.startswith("image") and not profile.id.startswith("vit")
