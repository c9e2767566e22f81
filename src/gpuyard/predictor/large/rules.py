"""The rules that a layout must obey, each with the nearest layout that works."""

import math
from itertools import product

from gpuyard import units
from gpuyard.errors import UserMistake
from gpuyard.predictor.large.search import Choices, SearchSpace, list_divisors, list_possible_chunks

MAX_SEQUENCE = 100_000_000


def find_contradiction(strategy: str, choices: Choices) -> str:
    """Return why a strategy cannot have the chosen sizes, or an empty string."""
    zero = choices.zero
    if strategy == "fsdp" and zero in (0, 1):
        other = "ddp" if zero == 0 else "megatron"
        return f"FSDP is zero=2 or zero=3, got zero={zero}; use zero=2, or --strategy {other}"
    if strategy != "ddp":
        return ""
    if zero:
        return f"DDP divides no states, got zero={zero}; use zero=0, or --strategy {'fsdp' if zero > 1 else 'megatron'}"
    sizes = {
        "tp": choices.tensor,
        "pp": choices.pipeline,
        "cp": choices.context,
        "ep": choices.expert,
    }
    divided = next((f"{name}={size}" for name, size in sizes.items() if size and size > 1), None)
    if divided:
        return f"DDP keeps the whole model on each GPU, got {divided}; use --strategy auto, or leave it out"
    return ""


def check_request(space: SearchSpace, strategy: str) -> None:
    """Raise UserMistake with the nearest value that works if a chosen number divides nothing evenly."""
    if not 1 <= space.sequence <= MAX_SEQUENCE:
        raise UserMistake(
            f"--sequence must be 1 to {MAX_SEQUENCE:,} tokens, got {space.sequence:,}"
        )
    choices = space.choices
    _check_divides("tp", choices.tensor or 1, space.shape.heads, "the model's {} heads")
    _check_divides("cp", choices.context or 1, space.sequence, "a sequence of {} tokens")
    _check_pipeline(space)
    used = (choices.tensor or 1) * (choices.pipeline or 1) * (choices.context or 1)
    _check_groups(space)
    _check_experts(space)
    replicas = space.gpus // ((choices.tensor or 1) * (choices.pipeline or 1))
    _check_divides("shard", choices.shard or 1, replicas, "the {} replicas (data × context)")
    _check_batch(space, strategy, space.gpus // used)


def _check_groups(space: SearchSpace) -> None:
    """Tensor, pipeline, and context groups together must divide the GPUs."""
    choices, gpus = space.choices, space.gpus
    sizes = (("tp", choices.tensor), ("pp", choices.pipeline), ("cp", choices.context))
    chosen = {name: size for name, size in sizes if size and size > 1}
    used = math.prod(chosen.values())
    if gpus % used == 0:
        return
    possible = {
        "tp": [d for d in list_divisors(gpus) if space.shape.heads % d == 0],
        "pp": [d for d in list_divisors(gpus) if d <= space.layers],
        "cp": [d for d in list_divisors(gpus) if space.sequence % d == 0],
    }
    nearest = min(
        (c for c in product(*(possible[name] for name in chosen)) if gpus % math.prod(c) == 0),
        key=lambda c: sum(abs(math.log(a / b)) for a, b in zip(c, chosen.values(), strict=True)),
    )
    given = " × ".join(f"{name}={size}" for name, size in chosen.items())
    works = ",".join(f"{name}={size}" for name, size in zip(chosen, nearest, strict=True))
    count = _find_nearest(gpus, _list_multiples(used, gpus))
    raise UserMistake(
        f"{given} does not divide {units.format_count(gpus, 'GPU')}; the nearest that works is {works}, "
        f"or {units.format_count(count, 'GPU')}"
    )


def _check_pipeline(space: SearchSpace) -> None:
    choices, layers = space.choices, space.layers
    pipeline, chunks = choices.pipeline, choices.virtual_pipeline
    if pipeline and pipeline > layers:
        raise UserMistake(
            f"pp={pipeline} is more than the model's {layers} layers; use pp={layers} or less"
        )
    if pipeline == 1 and ((chunks or 1) > 1 or choices.zero_bubble):
        name = "zb=1" if choices.zero_bubble else f"vp={chunks}"
        raise UserMistake(f"{name} needs a pipeline; use pp=2 or more, or leave it out")
    if pipeline and chunks:
        allowed = list_possible_chunks(layers, pipeline)
        if chunks not in allowed:
            raise UserMistake(
                f"vp={chunks} does not divide the {allowed[-1]} layers of a stage; "
                f"the nearest that works is vp={_find_nearest(chunks, allowed)}"
            )


def _check_experts(space: SearchSpace) -> None:
    chosen, experts = space.choices.expert, space.shape.experts
    if not chosen:
        return
    if chosen > 1 and not experts:
        raise UserMistake(
            f"ep={chosen} divides experts, and the model has no experts; leave it out"
        )
    if chosen > max(experts, 1):
        raise UserMistake(
            f"ep={chosen} is more than the model's {experts} experts; use ep={experts} or less"
        )
    _check_divides("ep", chosen, max(experts, 1), "the model's {} experts")
    stage = space.gpus // (space.choices.pipeline or 1)
    _check_divides("ep", chosen, stage, "the {} GPUs of a stage (tp × cp × dp)")


def _check_batch(space: SearchSpace, strategy: str, data: int) -> None:
    choices, batch, micro = space.choices, space.global_batch, space.choices.micro_batch
    if not (strategy == "ddp" or choices.tensor or choices.pipeline or choices.context):
        if micro and batch % micro:
            nearest = _find_nearest(micro, list_divisors(batch))
            raise UserMistake(
                f"a global batch of {batch} is not a multiple of the micro-batch {micro}; "
                f"the nearest that works is --micro-batch {nearest}"
            )
        return
    if batch < data:
        raise UserMistake(
            f"a global batch of {batch} is smaller than the {data} data-parallel replicas; "
            f"use --global-batch {data} or more"
        )
    unit = data * (micro or 1)
    if batch % unit:
        nearest = max(1, round(batch / unit)) * unit
        raise UserMistake(
            f"a global batch of {batch} is not a multiple of {data} replicas × micro-batch {micro or 1}; "
            f"the nearest that works is --global-batch {nearest}"
        )


def _check_divides(name: str, value: int, total: int, what: str) -> None:
    if total % value:
        nearest = _find_nearest(value, [d for d in range(1, 2 * value) if total % d == 0])
        raise UserMistake(
            f"{name}={value} does not divide {what.format(total)}; the nearest that works is {name}={nearest}"
        )


def _find_nearest(value: int, allowed: list[int]) -> int:
    return min(allowed, key=lambda candidate: abs(candidate - value))


def _list_multiples(unit: int, around: int) -> list[int]:
    below = max(1, around // unit)
    return [below * unit, (below + 1) * unit]
