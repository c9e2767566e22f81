"""The free constants of the predictor, each with where it comes from.

A prediction lists the ones that it used and says of each whether it was measured, published, fitted or
counted.
"""

from dataclasses import dataclass
from typing import Literal

from gpuyard.predict.platform import transport
from gpuyard.predict.tuning import fitted, fitted_roofline, one_gpu_spread, spread
from gpuyard.specs import StrategyName

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


DDP_FIRST_BUCKET = Constant(
    "ddp_first_bucket", 1024 * 1024, "bytes", "published", "torch DDP: first bucket of 1 MiB"
)
DDP_BUCKET = Constant(
    "ddp_bucket", 25 * 1024 * 1024, "bytes", "published", "torch DDP: bucket_cap_mb=25"
)
HOROVOD_FUSION = Constant(
    "horovod_fusion_buffer",
    64 * 1024 * 1024,
    "bytes",
    "published",
    "Horovod: fusion threshold 64 MiB",
)
HOROVOD_CYCLE = Constant(
    "horovod_cycle", 1e-3, "seconds", "published", "Horovod: 1 ms since 0.21, 5 ms before"
)
DATA_PARALLEL_BUFFER = Constant(
    "dataparallel_buffer", 10 * 1024 * 1024, "bytes", "published",
    "torch DataParallel: broadcast and reduce in buffers of 10 MiB",
)  # fmt: skip
CPU_RANKS = "two cores of a Xeon, by scripts/measure_cpu_constants.py"
_FIT = fitted()
_FITTED = "the published tables, by scripts/fit_constants.py"
_HIDES = "of what could hide"
OVERLAP: dict[StrategyName, Constant] = {
    "ddp": Constant("overlap", _FIT.overlap_inside, _HIDES, "fitted", _FITTED),
    "horovod": Constant("overlap", _FIT.overlap_inside, _HIDES, "fitted", _FITTED),
    "parameter-server": Constant(
        "overlap", _FIT.overlap_parameter_server, _HIDES, "fitted", _FITTED
    ),
    "dataparallel": Constant(
        "overlap", 0.0, _HIDES, "published",
        "DataParallel copies before forward and reduces after backward",
    ),
}  # fmt: skip
OVERLAP_BETWEEN: dict[StrategyName, Constant] = {
    "ddp": Constant("overlap_between", _FIT.overlap_between, _HIDES, "fitted", _FITTED),
    "horovod": Constant("overlap_between", _FIT.overlap_between, _HIDES, "fitted", _FITTED),
    "parameter-server": Constant(
        "overlap_between", _FIT.overlap_parameter_server, _HIDES, "fitted", _FITTED
    ),
}
BACKWARD_SHARE = Constant(
    "backward_share", _FIT.backward_share, "of a step that can hide", "fitted", _FITTED
)
STAGED_RATE = Constant(
    "staged_rate", _FIT.staged_bytes_per_second, "bytes/s through host memory", "fitted", _FITTED
)
STAGED_SOCKET_SHARE = Constant(
    "staged_socket_share", _FIT.staged_socket_share, "of it across sockets", "fitted", _FITTED
)
TCP_PAYLOAD = Constant(
    "payload_share", transport.TCP_PAYLOAD, "of a wire or flow", "published",
    "Ethernet frames of 1,500 bytes with TCP/IP headers carry 1,448 of 1,538 bytes",
)  # fmt: skip
TCP_HOST = Constant(
    "tcp_host", _FIT.tcp_host_bytes_per_second, "bytes/s that a host copies", "fitted", _FITTED
)
TCP_VARIATION = Constant(
    "tcp_variation", _FIT.tcp_variation, "between flows, 1 σ", "fitted", _FITTED
)
TCP_HOP = Constant("tcp_hop", _FIT.tcp_hop_seconds, "seconds", "fitted", _FITTED)
RDMA_SHARE = Constant("rdma_share", _FIT.rdma_share, "of a wire", "fitted", _FITTED)
LAUNCH = Constant("collective_launch", _FIT.launch_seconds, "seconds", "fitted", _FITTED)
HOP_FACTOR = Constant("hop_factor", _FIT.hop_factor, "NCCL's LL latencies", "fitted", _FITTED)
GLOO_OVERLAP = Constant(
    "overlap", 0.0, "of what could hide", "elsewhere",
    f"gloo's threads share the cores that compute: {CPU_RANKS}",
)  # fmt: skip
SLOWDOWN = Constant("slowdown", _FIT.slowdown, "of compute beside others", "fitted", _FITTED)
SLOWDOWN_BETWEEN = Constant(
    "slowdown_between", _FIT.slowdown_between, "of compute beside other machines", "fitted", _FITTED
)
INPUT_WORKERS = Constant(
    "input_workers",
    4.0,
    "a GPU",
    "published",
    "abhik.ai/concepts/pytorch/num-workers, rule of thumb; where the workload does not say how many",
)
GPU_VARIATION = Constant("step_variation", _FIT.variation, "of compute, 1 σ", "fitted", _FITTED)
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
DATA_PARALLEL_HOST = Constant(
    "dataparallel_host", 36e-6, "seconds a layer and GPU", "elsewhere",
    f"one process copies the module to every GPU in Python for each step: {CPU_RANKS}",
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


def exchange_constants(strategy: StrategyName) -> tuple[Constant, ...]:
    """What a strategy's exchange of gradients is reckoned with."""
    match strategy:
        case "ddp":
            return (DDP_FIRST_BUCKET, DDP_BUCKET, LAUNCH, BACKWARD_SHARE)
        case "horovod":
            return (HOROVOD_FUSION, HOROVOD_CYCLE, LAUNCH, BACKWARD_SHARE)
        case "dataparallel":
            return (DATA_PARALLEL_BUFFER, DATA_PARALLEL_HOST)
        case "parameter-server":
            return (BACKWARD_SHARE,)


def slowdown_constants(strategy: StrategyName) -> tuple[Constant, ...]:
    """What a worker among others loses of its compute. Only DDP's tables show more of it over machines."""
    return (SLOWDOWN, SLOWDOWN_BETWEEN) if strategy == "ddp" else (SLOWDOWN,)


def default_slowdown_between(strategy: StrategyName) -> float:
    """What of it there is only where workers are on several machines."""
    return SLOWDOWN_BETWEEN.value if SLOWDOWN_BETWEEN in slowdown_constants(strategy) else 0.0


def default_overlap(strategy: StrategyName) -> Constant:
    """How much of the exchange that could hide behind backward really does."""
    return OVERLAP[strategy]


def default_overlap_between(strategy: StrategyName) -> Constant:
    """The same, where the exchange leaves the machine."""
    return OVERLAP_BETWEEN.get(strategy, OVERLAP[strategy])
