"""The free constants of the predictor, each with where it comes from.

A prediction lists the ones that it used and says of each whether it was measured, published, fitted or
counted.
"""

from dataclasses import dataclass
from typing import Literal

from gpuyard.predict.platform import transport
from gpuyard.predict.tuning import Tuning, fitted, fitted_roofline, one_gpu_spread, spread

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
    "payload_share", transport.TCP_PAYLOAD, "of a wire or flow", "published",
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

# One σ, relative, of what a figure stands on; `spread().ends` says how many of them an interval reaches
# to each side. Measured steps and links from a catalog: by the published tables. Scaled and roofline: so
# that the interval holds 90 % of the figures of GPUs that the constants had not seen. All of these by
# scripts/fit_constants.py; the rest by scripts/measure_spread.py.
UNCERTAINTY: dict[str, float] = {
    "measured here": 0.0975,
    "measured": spread().compute,
    "scaled": one_gpu_spread()["scaled"],
    "roofline": one_gpu_spread()["roofline"],
    "more machines": spread().between,
    "measured link": 0.318,
    "input": 0.321,
}
