"""The departures of GPUs and precisions from the common shares of their peaks."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from gpuyard.catalog import Gpu
from gpuyard.predictor.large.constants import LargeConstants, LargeFit


def effect_keys(gpu: Gpu, precision: str, variant: str = "") -> tuple[str, ...]:
    """Return the names of the effects on matrices and, last, on attention."""
    name = gpu.architecture
    return (
        precision,
        f"{name}/{precision}",
        f"{name}{variant}" if variant else "",
        f"{name}/attention",
    )


def find_effects(fit: LargeFit, gpu: Gpu, precision: str) -> tuple[str, ...]:
    """Return the effects of a prediction. fp16 is like bf16 where both have one peak and only bf16 was measured."""
    measured = f"{gpu.architecture}/{precision}" in fit.effects
    alike = precision == "fp16" and gpu.bf16_tflops == gpu.fp16_tflops
    return effect_keys(gpu, "bf16" if alike and not measured else precision)


def apply_effects(
    constants: LargeConstants, effects: Mapping[str, float], keys: Sequence[tuple[str, ...]]
) -> LargeConstants:
    """Return the constants with shares of peaks per row."""
    matrices = np.array([sum(effects.get(key, 0.0) for key in row[:-1]) for row in keys])
    attention = np.array([effects.get(row[-1], 0.0) + effects.get(row[-2], 0.0) for row in keys])
    return replace(
        constants,
        gemm_share=constants.gemm_share * np.exp(matrices),
        attention_share=constants.attention_share * np.exp(attention),
        older_attention_share=constants.older_attention_share * np.exp(attention),
    )


def attention_is_older(gpu: Gpu, *, pytorch: bool, name: str = "") -> bool:
    """Return whether attention runs in a kernel of the previous generation: what PyTorch has on Hopper and later.

    FlashAttention 2 was written for Ampere; on Hopper it reaches a third of the peak (arXiv 2407.08608).
    """
    if gpu.architecture in ("Volta", "Turing", "Ampere", "Ada Lovelace"):
        return "flash1" in name
    return "flash3" not in name and (pytorch or "flash2" in name)


def has_evidence(fit: LargeFit, gpu: Gpu, precision: str, experts: int = 0) -> str:
    """Return the kind of GPU whose published runs support a prediction, or an empty string.

    Dense models say little of a kind of GPU on which no model with experts was measured.
    """
    is_fitted = f"{gpu.architecture}/{precision}" in fit.effects
    measured = not experts or gpu.architecture in fit.expert_evidence
    return gpu.architecture if is_fitted and measured else ""
