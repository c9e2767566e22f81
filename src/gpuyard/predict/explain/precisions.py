"""What another precision would bring: tf32, or training in 16-bit numbers."""

from collections.abc import Iterator

from gpuyard.predict.compute import computed_in, faster_half
from gpuyard.predict.scenario import PlatformScenario
from gpuyard.predict.strategies.remedies import Proposal
from gpuyard.predict.table import Placement


def other_precisions(scenario: PlatformScenario, here: Placement) -> Iterator[Proposal]:
    """On a described GPU; whether it helps or not. The exchange stays as large as it is."""
    gpu, today = scenario.gpu, scenario.precision
    if gpu is None:
        return
    # elsewhere it takes more than this setting
    if today == "fp32" and gpu.vendor == "NVIDIA" and gpu.tf32_tflops is not None:
        yield Proposal(
            "tf32 instead of fp32",
            scenario.with_precision("tf32"),
            "torch.set_float32_matmul_precision('high'); products are rounded, seldom harmful",
        )
    half = faster_half(gpu)
    if computed_in(today, gpu) not in ("bf16", "fp16") and today != half:
        other = scenario.with_precision(half)
        scaling = "needs loss scaling (GradScaler); " if half == "fp16" else ""
        exchanged = "gradients are exchanged in fp32 as before; " if here.gpus > 1 else ""
        yield Proposal(
            f"{half} training (mixed precision, autocast)",
            other,
            f"{exchanged}{scaling}compare the loss",
            other.memory_bytes(here.gpus),
        )
