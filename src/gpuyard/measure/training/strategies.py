"""Checks, before anything starts, that a way of exchanging gradients can be measured on this machine."""

import importlib.util
from collections.abc import Sequence
from typing import get_args

from gpuyard.choices import Launcher
from gpuyard.errors import GpuyardError, MissingRequirement, UnknownName, UserMistake
from gpuyard.run.protocol import RankDevice
from gpuyard.specs import ExchangeOptions, Precision, Workload

NO_TF32_MESSAGE = (
    "tf32 needs an NVIDIA GPU, and this machine has none; measure fp32 or bf16 instead"
)
DIVIDING_STRATEGIES = ("fsdp", "tensor", "pipeline")  # each rank holds a part of the model
MEASURABLE_STRATEGIES = ("ddp", "dataparallel", "horovod", *DIVIDING_STRATEGIES)


def check_strategy(strategy: str, *, precision: Precision, device: RankDevice, gpus: int) -> None:
    """Raise an error with the reason if this strategy cannot be measured on this machine."""
    if strategy == "parameter-server":
        raise GpuyardError(
            "a parameter server can be predicted but not measured; "
            f"measure one of {', '.join(MEASURABLE_STRATEGIES)}, or use: gpuyard predict"
        )
    if strategy not in MEASURABLE_STRATEGIES:
        raise UnknownName("strategy", strategy, [*MEASURABLE_STRATEGIES, "parameter-server"])
    if strategy == "dataparallel" and gpus < 2:
        raise MissingRequirement(
            f"dataparallel needs at least 2 CUDA GPUs, and this machine has {gpus}; "
            "measure ddp instead"
        )
    if strategy == "horovod" and importlib.util.find_spec("horovod") is None:
        raise MissingRequirement(
            "horovod is not installed; build it with gpuyard horovod install, or measure ddp instead"
        )
    if strategy in (*DIVIDING_STRATEGIES, "horovod") and precision == "fp16":
        raise UserMistake(f"{strategy} cannot be measured in fp16; use fp32, tf32, or bf16")
    if precision == "tf32" and device == "cpu":
        raise UserMistake(NO_TF32_MESSAGE)


def check_division(workload: Workload, strategy: str, workers: Sequence[int]) -> None:
    """Raise UserMistake if tensor groups or a pipeline cannot divide this model among these numbers of workers."""
    if strategy not in ("tensor", "pipeline"):
        return
    from gpuyard.workloads.zoo import MODELS
    from gpuyard.workloads.zoo.gpt2 import CONFIGS

    config = CONFIGS.get(workload.model_name) if workload.model_name in MODELS else None
    if config is None:
        raise UserMistake(
            f"{strategy} can be measured with {', '.join(CONFIGS)}, and not with {workload.model_name}; measure fsdp instead"
        )
    total, noun = (config.heads, "heads") if strategy == "tensor" else (config.depth, "layers")
    for count in workers:
        if total % count:
            nearest = min(
                (n for n in range(1, total + 1) if total % n == 0), key=lambda n: abs(n - count)
            )
            raise UserMistake(
                f"{count} workers cannot divide the {total} {noun} of {workload.model_name} evenly; use {nearest}"
            )


def check_launcher(launcher: str, strategy: str) -> None:
    """Raise UserMistake if the launcher is unknown or cannot start this strategy's ranks."""
    if launcher not in get_args(Launcher):
        raise UnknownName("launcher", launcher, get_args(Launcher))
    if launcher == "torchrun" and strategy in ("dataparallel", "horovod"):
        raise UserMistake(f"torchrun cannot start {strategy}; use --launcher direct")


def check_remedy(remedy: ExchangeOptions, strategy: str, *, synthetic: bool) -> None:
    """Raise UserMistake with the reason if this remedy cannot be measured with this strategy."""
    if remedy.hierarchical:
        raise UserMistake(
            "a hierarchical all-reduce can be predicted but not measured; use: gpuyard predict"
        )
    if strategy == "horovod":
        if remedy.local_sgd > 1 or remedy.compress not in (None, "fp16"):
            raise UserMistake(
                "with horovod only fp16 compression, accumulation, and the bucket size can be measured; "
                f"measure {remedy.label} with ddp"
            )
    elif strategy != "ddp" and not remedy.is_default:
        raise UserMistake(f"{remedy.label} cannot be measured with {strategy}; use ddp or horovod")
    if strategy in (*DIVIDING_STRATEGIES, "dataparallel") and synthetic:
        raise UserMistake(f"a synthetic GPU cannot be measured with {strategy}; use ddp or horovod")
