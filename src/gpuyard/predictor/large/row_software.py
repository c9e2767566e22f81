"""The software of one row in a table of published runs: whose layers run, and what is fused or overlapped."""

import re

from gpuyard.predictor.large.layout import Family

MEGATRON = re.compile(r"megatron|neox|nemo", re.IGNORECASE)
_OVERLAPPED = re.compile(r"nemo|megatron-bridge|async ?tp|tp_comm_overlap", re.IGNORECASE)
_PYTORCH = re.compile(
    r"torch|fsdp|litgpt|accelerate|lightning|composer|foundry|trl|axolotl|deepspeed|transformers|"
    r"hugging ?face|\bhf\b|swift|factory|unsloth|xtuner|peft",
    re.IGNORECASE,
)
_COMPILED = re.compile(r"compile|fused|flash-attn training|\bjax\b|maxtext|\bxla\b", re.IGNORECASE)
_SEPARATE = re.compile(
    r"\beager\b|\bhf\b|hugging ?face|transformers|xtuner|swift|factory", re.IGNORECASE
)


def parse_compiled(text: str) -> bool | None:
    """Return whether PyTorch fused its operations; Hugging Face's models are separate ones unless compiled."""
    if _COMPILED.search(text):
        return True
    return False if _SEPARATE.search(text) else None


def parse_family(framework: str, zero: int) -> Family:
    """Return whose layers run: Megatron-LM's also with its own FSDP, and PyTorch's with any other ZeRO 3."""
    if MEGATRON.search(framework):
        return "megatron"
    return "pytorch" if zero >= 3 or _PYTORCH.search(framework) else "megatron"


def overlaps_tensor(text: str) -> bool:
    """Return whether tensor-parallel exchanges run beside the matrices, as NVIDIA's recipes and asynchronous TP do."""
    return _OVERLAPPED.search(text) is not None
