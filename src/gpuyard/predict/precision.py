"""In which precision a workload trains on a GPU, and at whose rate the GPU computes in it.

`fp32` and `tf32` keep everything in 32 bits; tf32 rounds what tensor cores multiply. `fp16` and `bf16` are
PyTorch's autocast: 16-bit numbers where they do, fp32 where they must; weights, gradients and the
optimizer stay in fp32, so an exchange is no smaller.
"""

from gpuyard.catalog import Gpu, ModelProfile, gpus
from gpuyard.errors import UserMistake
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
