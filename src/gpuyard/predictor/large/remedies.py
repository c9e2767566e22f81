"""The smallest change that makes a model fit."""

from dataclasses import replace

from gpuyard.errors import UserMistake
from gpuyard.hardware.clusters import resolve_machine
from gpuyard.predictor.large.evaluation import evaluate
from gpuyard.predictor.large.search import Choices
from gpuyard.predictor.large.training import LargeTraining
from gpuyard.specs import Cluster


def find_remedy(training: LargeTraining, cluster: Cluster, gpus: int) -> str:
    """Return the smallest change that makes a model fit, as options to add, or an empty string."""
    choices = training.choices
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
        ("--lora 16", replace(training, strategy="auto", choices=Choices(), lora_rank=16)),
        ("--qlora 16", replace(training, strategy="auto", choices=Choices(), qlora_rank=16)),
    ]
    _, machine = resolve_machine(cluster)
    for option, changed in changes:
        try:
            evaluation = evaluate(changed, cluster, gpus)
        except UserMistake:
            continue
        if evaluation.fits.any():
            return option
    count = gpus
    while (count := count * 2) <= cluster.nodes * machine.gpus:
        whole = replace(training, strategy="auto", choices=Choices())
        if evaluate(whole, cluster, count).fits.any():
            return f"--gpus {count} --strategy auto"
    return ""
