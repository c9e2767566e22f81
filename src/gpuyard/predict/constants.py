"""The free constants of the predictor, each with where it comes from, and those that were fitted.

A prediction lists the ones that it used and says of each whether it was measured, published, fitted or
counted. `scripts/fit_constants.py` writes `data/fitted.json`: one set fitted to all published tables, which
ships, and for every table one fitted without it, which is what `gpuyard validate` predicts it with; and what
intervals reach, once for all sources and once without each.
"""

import functools
import json
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal


@dataclass(frozen=True)
class Tuning:
    """One set of fitted constants. The defaults are where a fit starts, and it is drawn back to them:
    what the tables say nothing about keeps its default."""

    # what of a hidden exchange costs no compute, inside a machine and between machines; the rest is
    # lost to communication kernels on the SMs, memory traffic and waiting for the last worker
    overlap_inside: float = 0.6
    overlap_between: float = 0.8
    overlap_between_horovod: float = 0.95
    overlap_parameter_server: float = 0.5
    # the share of a step that an exchange can hide behind: two thirds of compute are backward, but
    # optimiser, input and launches are in a measured step too
    backward_share: float = 0.45
    # what every worker among others loses of its compute, whatever their number: communication kernels
    # take SMs, memory and PCIe traffic, and GPUs that share a host take clocks and launches
    slowdown: float = 0.015
    # what a worker of PyTorch's DDP loses besides, once they are on several machines
    slowdown_between: float = 0.02
    # one σ of a worker's step, in shares of it; and where samples differ in size
    variation: float = 0.005
    variation_variable: float = 0.15
    # what a ring through host memory reaches, and the share that is left of it across sockets
    staged_bytes_per_second: float = 3e9
    staged_socket_share: float = 0.5
    # what a host's TCP copies at, beside the wire: with 0.94 of a wire left by Ethernet frames, 7 GB/s
    # make the 0.6 that was the best obtained at 32 Gbit/s (NVIDIA/nccl issue 209)
    tcp_host_bytes_per_second: float = 7e9
    # one σ between TCP flows of a public cloud that work at once; a ring waits for the slowest
    tcp_variation: float = 0.45
    rdma_share: float = 0.9
    tcp_hop_seconds: float = 60e-6
    # a collective's start, and its hops in NCCL's planning latencies of the LL protocol
    launch_seconds: float = 25e-6
    hop_factor: float = 4.0


@dataclass(frozen=True)
class Spread:
    """How far predictions lie off for a software stack that the fit has not seen: what an interval of 90 %
    reaches to each side, as a logarithm, for each reason (`interval.Reach`)."""

    tax: float = 0.1  # slow side: a doubling of the GPUs
    exchange: float = 0.5  # slow side: a step that is all exchange
    exchange_fast: float = 0.1  # fast side: the same; it grows with the root of what does not hide
    batch: float = 0.1  # slow side: a batch e times that of the figure that it stands on
    batch_fast: float = 0.1


@dataclass(frozen=True)
class RooflineFit:
    """What one GPU makes of its datasheet, fitted to published throughputs of one GPU."""

    math_fp32: float = 0.6  # of the peak
    math_tf32: float = 0.5
    math_fp16: float = 0.45
    # cuDNN's Winograd and FFT algorithms multiply less than a convolution's FLOPs say
    convolution_flops: float = 0.5  # of those counted
    activation_passes: float = 10.0  # through memory at its datasheet rate
    # kernels that are too small to fill the GPU leave it idle: what a layer takes whatever the batch, in
    # FLOPs at the peak
    layer_flops: float = 2e9


@functools.cache
def fitted(without: str | None = None) -> Tuning:
    """The set that ships, or the one that was fitted without a table."""
    return Tuning(**_set(without)["constants"])


@functools.cache
def spread(without_source: str | None = None) -> Spread:
    """The set that ships, or the one that was fitted without a source."""
    sets = _sets()["spread"]
    return Spread(**(sets["all"] if without_source is None else sets["without"][without_source]))


def nested_spreads() -> dict[str, Spread]:
    """Of sources without which intervals would have been stretched otherwise: the sets that the others chose."""
    return {name: Spread(**off) for name, off in _sets()["spread"]["nested"].items()}


def spread_sources() -> tuple[str, ...]:
    """Those that intervals were sized with."""
    return tuple(_sets()["spread"]["without"])


@functools.cache
def fitted_roofline(without_gpu: str | None = None) -> RooflineFit:
    """The set that ships, or the one that was fitted without a GPU's rows."""
    sets = _sets()["roofline"]
    return RooflineFit(**(sets["all"] if without_gpu is None else sets["without"][without_gpu]))


def one_gpu_spread() -> dict[str, float]:
    """One σ of a GPU's step that was not measured, scaled from another GPU's or by a roofline."""
    found: dict[str, float] = _sets()["roofline"]["spread"]
    return found


@functools.cache
def _sets() -> dict[str, Any]:
    text = (resources.files(__package__) / "data" / "fitted.json").read_text(encoding="utf-8")
    sets: dict[str, Any] = json.loads(text)
    return sets


def _set(without: str | None) -> dict[str, Any]:
    chosen: dict[str, Any] = _sets()["all"] if without is None else _sets()["without"][without]
    return chosen


Basis = Literal["measured", "given", "published", "catalog", "fitted", "counted", "elsewhere"]
"""`given`: the user's spec says so; `fitted`: to the published tables, by `scripts/fit_constants.py`;
`counted`: from what a framework does in a step; `elsewhere`: measured, but not on the user's machine."""


@dataclass(frozen=True)
class Constant:
    """One number that the formulas need and the spec does not give."""

    name: str
    value: float
    unit: str
    basis: Basis
    source: str


CPU_RANKS = "two cores of a Xeon, by scripts/measure_cpu_constants.py"
_FITTED = "the published tables, by scripts/fit_constants.py"
HIDES = "of what could hide"


def _tuned(name: str, value: float, unit: str) -> Constant:
    return Constant(name, value, unit, "fitted", _FITTED)


def overlap(value: float) -> Constant:
    return _tuned("overlap", value, HIDES)


def overlap_between(value: float) -> Constant:
    return _tuned("overlap_between", value, HIDES)


def backward_share(tuning: Tuning) -> Constant:
    return _tuned("backward_share", tuning.backward_share, "of a step that can hide")


def launch(tuning: Tuning) -> Constant:
    return _tuned("collective_launch", tuning.launch_seconds, "seconds")


def slowdown(tuning: Tuning) -> Constant:
    return _tuned("slowdown", tuning.slowdown, "of compute beside others")


def slowdown_between(tuning: Tuning) -> Constant:
    return _tuned("slowdown_between", tuning.slowdown_between, "of compute beside other machines")


def variation(value: float) -> Constant:
    return _tuned("step_variation", value, "of compute, 1 σ")


_FIT = fitted()
BACKWARD_SHARE = backward_share(_FIT)
LAUNCH = launch(_FIT)
SLOWDOWN = slowdown(_FIT)
SLOWDOWN_BETWEEN = slowdown_between(_FIT)
GPU_VARIATION = variation(_FIT.variation)
STAGED_RATE = _tuned("staged_rate", _FIT.staged_bytes_per_second, "bytes/s through host memory")
STAGED_SOCKET_SHARE = _tuned(
    "staged_socket_share", _FIT.staged_socket_share, "of it across sockets"
)
TCP_PAYLOAD = Constant(
    "payload_share", 0.94, "of a wire or flow", "published",
    "Ethernet frames of 1,500 bytes with TCP/IP headers carry 1,448 of 1,538 bytes",
)  # fmt: skip
TCP_HOST = _tuned("tcp_host", _FIT.tcp_host_bytes_per_second, "bytes/s that a host copies")
TCP_VARIATION = _tuned("tcp_variation", _FIT.tcp_variation, "between flows, 1 σ")
TCP_HOP = _tuned("tcp_hop", _FIT.tcp_hop_seconds, "seconds")
RDMA_SHARE = _tuned("rdma_share", _FIT.rdma_share, "of a wire")
HOP_FACTOR = _tuned("hop_factor", _FIT.hop_factor, "NCCL's LL latencies")
GLOO_OVERLAP = Constant(
    "overlap", 0.0, HIDES, "elsewhere",
    f"gloo's threads share the cores that compute: {CPU_RANKS}",
)  # fmt: skip
INPUT_WORKERS = Constant(
    "input_workers",
    4.0,
    "a GPU",
    "published",
    "abhik.ai/concepts/pytorch/num-workers, rule of thumb; where the workload does not say how many",
)
CPU_VARIATION = Constant("step_variation", 0.104, "of compute, 1 σ", "elsewhere", CPU_RANKS)
_ROOFLINE = fitted_roofline()
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
    "layer_flops", _ROOFLINE.layer_flops, "FLOPs at the peak a layer, whatever the batch", "fitted",
    "published throughputs of one GPU at several batches, by scripts/fit_constants.py",
)  # fmt: skip
KERNELS_PER_LAYER = Constant(
    "kernels_per_layer", 5.0, "a step", "counted",
    "forward, two backward, optimiser, one element-wise",
)  # fmt: skip
# The blog was read in others' quotes only. Its 9.6 µs are with a wait after every kernel; where launches
# run ahead of the GPU it has 3.8 µs.
KERNEL_LAUNCH = Constant(
    "kernel_launch", 6.7e-6, "seconds", "published",
    "NVIDIA, developer.nvidia.com/blog/cuda-graphs, as quoted: 2.9 µs of kernel take 9.6 µs on a V100",
)  # fmt: skip

# One σ, relative, of what a figure stands on, beside what `spread()` says of a stack that nobody knows. Scaled
# and roofline: so that the interval holds 90 % of the figures of GPUs that the constants had not seen, by
# scripts/fit_constants.py. Measured: what steps of published tables differ by where nothing is exchanged;
# waiting and more machines: what the tables left open in that part of a step. The rest by
# scripts/measure_spread.py.
UNCERTAINTY: dict[str, float] = {
    "measured here": 0.0975,
    "measured": 0.0142,
    "scaled": one_gpu_spread()["scaled"],
    "roofline": one_gpu_spread()["roofline"],
    "more machines": 0.0295,
    "waiting": 1.08,
    "measured link": 0.318,
    "input": 0.321,
}
