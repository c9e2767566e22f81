"""The smallest change that makes a model fit."""

from dataclasses import replace

from gpuyard.errors import UserMistake
from gpuyard.hardware.clusters import resolve_machine
from gpuyard.predictor.large.evaluation import evaluate
from gpuyard.predictor.large.search import Choices
from gpuyard.predictor.large.training import LargeTraining
from gpuyard.specs import Cluster

_MIN_SEQUENCE = 1024
_SLOWEST = "--strategy fsdp --offload parameters"


def find_remedy(training: LargeTraining, cluster: Cluster, gpus: int) -> str:
    """Return the smallest change that makes a model fit, as options to add, or an empty string."""
    choices = training.choices
    lora = replace(
        training, strategy="auto", choices=Choices(), lora_rank=16, qlora_rank=None, offload=None
    )
    qlora = replace(lora, lora_rank=None, qlora_rank=16)
    qlora_in_host = replace(qlora, strategy="fsdp", offload="parameters")
    changes: list[tuple[str, LargeTraining]] = [
        ("--recompute full", replace(training, choices=replace(choices, recompute=2))),
        (
            "--recompute full --micro-batch 1",
            replace(training, choices=replace(choices, recompute=2, micro_batch=1)),
        ),
        ("--strategy fsdp", replace(training, strategy="fsdp", choices=Choices())),
        ("--strategy auto", replace(training, strategy="auto", choices=Choices())),
        (
            "--strategy fsdp --offload optimizer",
            replace(training, strategy="fsdp", choices=Choices(), offload="optimizer"),
        ),
        (
            _SLOWEST,
            replace(training, strategy="fsdp", choices=Choices(), offload="parameters"),
        ),
        ("--lora 16", lora),
        ("--qlora 16", qlora),
        (f"--qlora 16 {_SLOWEST}", qlora_in_host),
    ]
    _, machine = resolve_machine(cluster)
    for option, changed in changes:
        if _fits(changed, cluster, gpus):
            slow = option == _SLOWEST and _fits(lora, cluster, gpus)
            return f"{option} or --lora 16" if slow else option
    whole = replace(training, strategy="auto", choices=Choices())
    count = gpus
    while (count := count * 2) <= cluster.nodes * machine.gpus:
        if _fits(whole, cluster, count):
            return f"--gpus {count} --strategy auto"
    shorter = [
        ("--strategy auto", whole),
        ("--qlora 16", qlora),
        (f"--qlora 16 {_SLOWEST}", qlora_in_host),
    ]
    for option, changed in shorter:
        length = training.length
        while (length := length // 2) >= _MIN_SEQUENCE:
            if _fits(replace(changed, sequence=length), cluster, gpus):
                return f"--sequence {length} {option}"
    return ""


def _fits(training: LargeTraining, cluster: Cluster, gpus: int) -> bool:
    try:
        return bool(evaluate(training, cluster, gpus).fits.any())
    except UserMistake:  # nothing divides evenly
        return False
