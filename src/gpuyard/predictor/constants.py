"""The constants of the predictor with their sources, and the fitted sets.

A prediction lists the constants that it used and whether each was measured, published, fitted, or counted.
`scripts/fit_constants.py` writes `data/fitted.json`. It holds the default set, fitted to all published tables. For
every table it also holds a set fitted without it, with which `gpuyard validate` predicts that table. The widths of
intervals are stored for all sources and without each source.
"""

import functools
import json
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

from gpuyard.predictor.speed_evidence import load_sigmas

CALIBRATED = "calibrated with"  # prefix of the source of a calibrated constant


@dataclass(frozen=True)
class Tuning:
    """One set of fitted constants.

    The defaults are the starting point and the prior of a fit: constants that the tables don't determine keep them.
    """

    # the share of a hidden exchange that costs no compute, inside a machine and between machines; the rest is
    # lost to communication kernels on the SMs, memory traffic, and waiting for the last worker
    overlap_inside: float = 0.6
    overlap_between: float = 0.8
    overlap_between_horovod: float = 0.95
    overlap_parameter_server: float = 0.5
    # the share of a step that an exchange can hide behind: two thirds of compute are backward, but
    # optimizer, input, and launches are in a measured step too
    backward_share: float = 0.45
    # the share of compute that every worker loses among others, whatever their number: communication kernels
    # use SMs, memory, and PCIe, and GPUs of one host compete for clocks and launches
    slowdown: float = 0.015
    # the additional loss of a worker of PyTorch's DDP on several machines
    slowdown_between: float = 0.02
    # one σ of a worker's step as a share of it; the second applies if samples differ in size
    variation: float = 0.005
    variation_variable: float = 0.15
    # the rate of one staged message through host memory, as a share of the memory's own rate
    staged_memory_share: float = 0.07
    # the rate of a host's TCP copies in addition to the wire: Ethernet frames leave 0.94 of a wire, and 7 GB/s
    # give the 0.6 that was the best result at 32 Gbit/s (NVIDIA/nccl issue 209)
    tcp_host_bytes_per_second: float = 7e9
    # one σ between concurrent TCP flows of a public cloud; a ring waits for the slowest
    tcp_variation: float = 0.45
    rdma_share: float = 0.9
    tcp_hop_seconds: float = 60e-6
    # the launch time of a collective, and its hops as multiples of NCCL's planning latencies of the LL protocol
    launch_seconds: float = 25e-6
    hop_factor: float = 4.0


@dataclass(frozen=True)
class Spread:
    """The log widths of 90% intervals for unknown software stacks, by cause (`interval.PredictionInterval`)."""

    tax: float = 0.1  # slow side, per doubling of the GPUs
    exchange: float = 0.5  # slow side, for a step that is all communication
    exchange_fast: float = 0.1  # fast side; grows with the root of the exposed share
    batch: float = 0.1  # slow side, for a batch e times the measured one
    batch_fast: float = 0.1


@dataclass(frozen=True)
class RooflineFit:
    """The efficiency of a single GPU relative to its datasheet, fitted to published throughputs."""

    math_fp32: float = 0.6  # share of the peak
    math_tf32: float = 0.5
    math_fp16: float = 0.45
    # cuDNN's Winograd and FFT algorithms multiply less than a convolution's FLOP count
    convolution_flops: float = 0.5  # share of the counted FLOPs
    activation_passes: float = 10.0  # through memory at its datasheet rate
    # small kernels leave the GPU partly idle: the fixed time of a layer, in FLOPs at the peak
    layer_flops: float = 2e9


@functools.cache
def load_tuning(without: str | None = None) -> Tuning:
    """Return the default set, or the one that was fitted without a table."""
    sets = _load_sets()
    return Tuning(**(sets["all"] if without is None else sets["without"][without])["constants"])


@functools.cache
def spread(without_source: str | None = None) -> Spread:
    """Return the default spread, or the one that was fitted without a source."""
    sets = _load_sets()["spread"]
    return Spread(**(sets["all"] if without_source is None else sets["without"][without_source]))


def load_nested_spreads() -> dict[str, Spread]:
    """Return, for each source that influenced the stretch of intervals, the spread chosen by the others."""
    return {name: Spread(**values) for name, values in _load_sets()["spread"]["nested"].items()}


def list_spread_sources() -> tuple[str, ...]:
    """List the sources that intervals were sized with."""
    return tuple(_load_sets()["spread"]["without"])


@functools.cache
def load_roofline_fit(without_gpu: str | None = None) -> RooflineFit:
    """Return the default set, or the one that was fitted without a GPU's rows."""
    sets = _load_sets()["roofline"]
    return RooflineFit(**(sets["all"] if without_gpu is None else sets["without"][without_gpu]))


LinkClass = Literal["nvlink", "pcie", "staged", "network"]


def link_log_width(link: LinkClass, without_thread: str | None = None) -> float:
    """Return half the 90% interval of the logarithm of a bus bandwidth, also as sized without a published thread."""
    widths = _load_sets()["links"]
    without: dict[str, dict[str, float]] = widths["without"]
    of_all: dict[str, float] = widths["all"]
    return without.get(without_thread or "", of_all).get(link, of_all[link])


@functools.cache
def _load_sets() -> dict[str, Any]:
    text = (resources.files(__package__) / "data" / "fitted.json").read_text(encoding="utf-8")
    sets: dict[str, Any] = json.loads(text)
    return sets


Basis = Literal["measured", "given", "published", "catalog", "fitted", "counted", "elsewhere"]
"""`given`: set in the user's spec; `fitted`: to the published tables, by `scripts/fit_constants.py`;
`counted`: from the operations of a framework in a step; `elsewhere`: measured, but not on the user's machine."""


@dataclass(frozen=True)
class Constant:
    """A number that the formulas need and the spec does not contain."""

    name: str
    value: float
    unit: str
    basis: Basis
    source: str


CPU_RANKS = "two cores of a Xeon, by scripts/measure_cpu_constants.py"
_FITTED = "the published tables, by scripts/fit_constants.py"
OVERLAP_UNIT = "of what could hide"


def _create_fitted(name: str, value: float, unit: str) -> Constant:
    return Constant(name, value, unit, "fitted", _FITTED)


def overlap(value: float) -> Constant:
    return _create_fitted("overlap", value, OVERLAP_UNIT)


def overlap_between(value: float) -> Constant:
    return _create_fitted("overlap_between", value, OVERLAP_UNIT)


def backward_share(tuning: Tuning) -> Constant:
    return _create_fitted("backward_share", tuning.backward_share, "of a step that can hide")


def launch(tuning: Tuning) -> Constant:
    return _create_fitted("collective_launch", tuning.launch_seconds, "seconds")


def slowdown(tuning: Tuning) -> Constant:
    return _create_fitted("slowdown", tuning.slowdown, "of compute beside others")


def slowdown_between(tuning: Tuning) -> Constant:
    return _create_fitted(
        "slowdown_between", tuning.slowdown_between, "of compute beside other machines"
    )


def variation(value: float) -> Constant:
    return _create_fitted("step_variation", value, "of compute, 1 σ")


_FIT = load_tuning()
BACKWARD_SHARE = backward_share(_FIT)
LAUNCH = launch(_FIT)
GPU_VARIATION = variation(_FIT.variation)
STAGED_MEMORY_SHARE = _create_fitted(
    "staged_memory_share", _FIT.staged_memory_share, "of a socket's memory rate, for staged rings"
)
TCP_PAYLOAD = Constant(
    "payload_share", 0.94, "of a wire or flow", "published",
    "Ethernet frames of 1,500 bytes with TCP/IP headers carry 1,448 of 1,538 bytes",
)  # fmt: skip
TCP_HOST = _create_fitted("tcp_host", _FIT.tcp_host_bytes_per_second, "bytes/s that a host copies")
TCP_VARIATION = _create_fitted("tcp_variation", _FIT.tcp_variation, "between flows, 1 σ")
TCP_HOP = _create_fitted("tcp_hop", _FIT.tcp_hop_seconds, "seconds")
RDMA_SHARE = _create_fitted("rdma_share", _FIT.rdma_share, "of a wire")
HOP_FACTOR = _create_fitted("hop_factor", _FIT.hop_factor, "NCCL's LL latencies")
GLOO_OVERLAP = Constant(
    "overlap", 0.0, OVERLAP_UNIT, "elsewhere",
    f"gloo's threads share the cores that compute: {CPU_RANKS}",
)  # fmt: skip
INPUT_WORKERS = Constant(
    "input_workers",
    4.0,
    "per GPU",
    "published",
    "abhik.ai/concepts/pytorch/num-workers, rule of thumb; if the workload does not set a number",
)
CPU_VARIATION = Constant("step_variation", 0.104, "of compute, 1 σ", "elsewhere", CPU_RANKS)
_ROOFLINE = load_roofline_fit()
_ONE_GPU = "published throughputs of one GPU, by scripts/fit_constants.py"
_PEAK = "of the datasheet peak"
MATH_EFFICIENCY = {
    "fp32": Constant("math_efficiency", _ROOFLINE.math_fp32, _PEAK, "fitted", _ONE_GPU),
    "tf32": Constant("math_efficiency", _ROOFLINE.math_tf32, _PEAK, "fitted", _ONE_GPU),
    "fp16": Constant("math_efficiency", _ROOFLINE.math_fp16, _PEAK, "fitted", _ONE_GPU),
    "bf16": Constant("math_efficiency", _ROOFLINE.math_fp16, _PEAK, "fitted", _ONE_GPU),
}
CONVOLUTION_FLOPS = Constant(
    "convolution_flops", _ROOFLINE.convolution_flops, "of those counted", "fitted", _ONE_GPU
)
ACTIVATION_PASSES = Constant(
    "activation_passes", _ROOFLINE.activation_passes, "times through memory", "fitted", _ONE_GPU
)
PARAMETER_PASSES = Constant(
    "parameter_passes", 14.0, "times through memory", "counted",
    "weights read twice; gradients written, exchanged (2), scaled back (2); Adam reads 4, writes 3",
)  # fmt: skip
LAYER_FLOPS = Constant(
    "layer_flops", _ROOFLINE.layer_flops, "FLOPs at the peak per layer, whatever the batch", "fitted",
    "published throughputs of one GPU at several batches, by scripts/fit_constants.py",
)  # fmt: skip
KERNELS_PER_LAYER = Constant(
    "kernels_per_layer", 5.0, "per step", "counted",
    "forward, two backward, optimizer, one element-wise",
)  # fmt: skip
# The blog was available only in quotes. Its 9.6 µs include a wait after every kernel; with launches ahead of the GPU
# it reports 3.8 µs.
KERNEL_LAUNCH = Constant(
    "kernel_launch", 6.7e-6, "seconds", "published",
    "NVIDIA, developer.nvidia.com/blog/cuda-graphs, as quoted: 2.9 µs of kernel take 9.6 µs on a V100",
)  # fmt: skip

# One relative σ of each basis of a prediction, in addition to `spread()` for an unknown stack. Scaled (from a GPU that the
# fit has seen to another) and roofline (without any correction) hold 90% of the published figures, by
# scripts/fit_speed.py; corrected rooflines have a σ for every case.
# Measured is the difference between steps of published tables without exchange. Waiting and more machines are the
# residuals of the tables in that part of a step. The rest comes from scripts/measure_spread.py.
UNCERTAINTY: dict[str, float] = {
    "measured here": 0.0975,
    "measured": 0.0142,
    **load_sigmas(),
    "more machines": 0.0295,
    "waiting": 1.08,
    "measured link": 0.318,
    "input": 0.321,
}
