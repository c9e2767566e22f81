"""Which ways of exchanging gradients can be measured here; said before anything starts."""

import importlib.util
from typing import get_args

from gpuyard.errors import GpuyardError, MissingRequirement, UnknownName, UserMistake
from gpuyard.run.launch import Launcher
from gpuyard.run.protocol import RankDevice
from gpuyard.specs import ExchangeOptions, Precision

NO_TF32 = "tf32 is a mode of NVIDIA GPUs and there is none here; measure fp32 or bf16 instead"
MEASURED = ("ddp", "dataparallel", "horovod")


def check_strategy(strategy: str, *, precision: Precision, device: RankDevice, gpus: int) -> None:
    """Raise the sentence that says why this strategy can't be measured on this machine."""
    if strategy == "parameter-server":
        raise GpuyardError(
            "a parameter server is predicted, not measured; "
            f"measure one of {', '.join(MEASURED)} or use: gpuyard predict"
        )
    if strategy not in MEASURED:
        raise UnknownName("strategy", strategy, [*MEASURED, "parameter-server"])
    if strategy == "dataparallel" and gpus < 2:
        raise MissingRequirement(
            f"dataparallel needs 2 or more CUDA GPUs in this machine, it has {gpus}; "
            "measure ddp instead"
        )
    if strategy == "horovod" and importlib.util.find_spec("horovod") is None:
        raise MissingRequirement(
            "horovod is not installed; build it with: gpuyard horovod install, or measure ddp instead"
        )
    if strategy == "horovod" and precision == "fp16":
        raise UserMistake("horovod is measured in fp32, tf32 and bf16, not in fp16")
    if precision == "tf32" and device == "cpu":
        raise UserMistake(NO_TF32)


def check_launcher(launcher: str, strategy: str) -> None:
    """Raise where it is unknown, or is not how this strategy's ranks are started."""
    if launcher not in get_args(Launcher):
        raise UnknownName("launcher", launcher, get_args(Launcher))
    if launcher == "torchrun" and strategy != "ddp":
        raise UserMistake(f"torchrun starts the ranks of ddp; {strategy} is started directly")


def check_remedy(remedy: ExchangeOptions, strategy: str, *, synthetic: bool) -> None:
    """Raise the sentence that says why this remedy can't be measured so."""
    if remedy.hierarchical:
        raise UserMistake("a hierarchical all-reduce is predicted, not measured")
    if strategy == "horovod":
        if remedy.local_sgd > 1 or remedy.compress not in (None, "fp16"):
            raise UserMistake(
                f"horovod has compression to fp16, accumulation and a size of its fusion buffer; "
                f"measure {remedy.label} with ddp"
            )
    elif strategy != "ddp" and not remedy.plain:
        raise UserMistake(
            f"remedies are measured with ddp and horovod; {remedy.label} has no place in {strategy}"
        )
    if strategy != "ddp" and synthetic:
        raise UserMistake(f"a synthetic GPU exchanges its gradients with ddp, not with {strategy}")
