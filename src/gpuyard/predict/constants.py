"""The free constants of the predictor, each with where it comes from.

A prediction lists the ones that it used and says of each whether it was measured, published or only
assumed; the interval around the prediction is as wide as the assumed ones deserve.
"""

from dataclasses import dataclass
from typing import Literal

from gpuyard.specs import Strategy

Basis = Literal["measured", "given", "published", "catalog", "assumed"]
"""`given`: the user's spec says so."""


@dataclass(frozen=True)
class Constant:
    """One number that the formulas need and the spec does not give."""

    name: str
    value: float
    unit: str
    basis: Basis
    source: str


FORWARD_SHARE = Constant(
    "forward_share", 1 / 3, "of compute", "published",
    "backward costs two multiplications for each of forward's (Goodfellow et al., Deep Learning, 6.5)",
)  # fmt: skip
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
DATA_PARALLEL_BUFFER = Constant(
    "dataparallel_buffer", 10 * 1024 * 1024, "bytes", "published",
    "torch DataParallel: broadcast and reduce in buffers of 10 MiB",
)  # fmt: skip
OVERLAP: dict[Strategy, Constant] = {
    "ddp": Constant("overlap", 0.7, "of what could hide", "assumed", "no fit yet"),
    "horovod": Constant("overlap", 0.6, "of what could hide", "assumed", "no fit yet"),
    "parameter-server": Constant("overlap", 0.3, "of what could hide", "assumed", "no fit yet"),
    "dataparallel": Constant(
        "overlap", 0.0, "of what could hide", "published",
        "DataParallel copies before forward and reduces after backward",
    ),
}  # fmt: skip
GLOO_OVERLAP = Constant(
    "overlap", 0.0, "of what could hide", "assumed",
    "gloo's threads share the cores that compute, so little hides",
)  # fmt: skip
GPU_VARIATION = Constant(
    "step_variation", 0.02, "of compute, 1 σ", "assumed", "workers on equal GPUs differ little"
)
CPU_VARIATION = Constant(
    "step_variation", 0.04, "of compute, 1 σ", "assumed", "workers on shared CPU cores"
)
MATH_EFFICIENCY = {
    "fp32": Constant("math_efficiency", 0.55, "of the datasheet peak", "assumed", "no fit yet"),
    "tf32": Constant("math_efficiency", 0.40, "of the datasheet peak", "assumed", "no fit yet"),
    "fp16": Constant("math_efficiency", 0.35, "of the datasheet peak", "assumed", "no fit yet"),
    "bf16": Constant("math_efficiency", 0.35, "of the datasheet peak", "assumed", "no fit yet"),
}
MEMORY_EFFICIENCY = Constant(
    "memory_efficiency", 0.75, "of the datasheet rate", "assumed", "no fit yet"
)
ACTIVATION_PASSES = Constant(
    "activation_passes", 3.0, "times through memory", "assumed",
    "written forward, read backward, its gradient written",
)  # fmt: skip
PARAMETER_PASSES = Constant(
    "parameter_passes", 8.0, "times through memory", "assumed",
    "read forward and backward; gradient written, exchanged, read; momentum and weights updated",
)  # fmt: skip
DATA_PARALLEL_HOST = Constant(
    "dataparallel_host", 30e-6, "seconds a layer and GPU", "assumed",
    "one process copies the module to every GPU in Python for each step",
)  # fmt: skip
KERNEL_LAUNCH = Constant("kernel_launch", 8e-6, "seconds", "assumed", "no fit yet")
KERNELS_PER_LAYER = Constant(
    "kernels_per_layer",
    5.0,
    "a step",
    "assumed",
    "forward, two backward, optimiser, one element-wise",
)

# relative standard deviations of what a figure stands on, for the interval
UNCERTAINTY: dict[str, float] = {
    "measured here": 0.03,
    "measured": 0.05,
    "scaled": 0.12,
    "roofline": 0.25,
    "assumed link": 0.25,
    "measured link": 0.10,
    "straggling": 0.5,
    "input": 0.15,
}


def exchange_constants(strategy: Strategy) -> tuple[Constant, ...]:
    """What a strategy's exchange of gradients is reckoned with."""
    match strategy:
        case "ddp":
            return (DDP_FIRST_BUCKET, DDP_BUCKET)
        case "horovod":
            return (HOROVOD_FUSION,)
        case "dataparallel":
            return (DATA_PARALLEL_BUFFER, DATA_PARALLEL_HOST)
        case "parameter-server":
            return ()


def default_overlap(strategy: Strategy) -> Constant:
    """How much of the exchange that could hide behind backward really does."""
    return OVERLAP[strategy]
