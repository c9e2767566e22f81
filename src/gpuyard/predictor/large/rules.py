"""The rules that a layout must obey, each with the nearest layout that works."""

from gpuyard.errors import UserMistake
from gpuyard.predictor.large.search import SearchSpace, divisors, possible_chunks

MAX_SEQUENCE = 100_000_000


def check_request(space: SearchSpace, strategy: str) -> None:
    """Raise UserMistake with the nearest value that works if a chosen number divides nothing evenly."""
    shape, choices, layers = space.shape, space.choices, space.layers
    if not 1 <= space.sequence <= MAX_SEQUENCE:
        raise UserMistake(
            f"--sequence must be 1 to {MAX_SEQUENCE:,} tokens, got {space.sequence:,}"
        )
    tensor, pipeline, context = choices.tensor or 1, choices.pipeline or 1, choices.context or 1
    gpus, batch = space.gpus, space.global_batch
    _check_divides("tp", tensor, shape.heads, "heads")
    if pipeline > layers:
        raise UserMistake(
            f"pp={pipeline} is more than the model's {layers} layers; use pp={layers} or less"
        )
    if choices.virtual_pipeline:
        allowed = possible_chunks(layers, pipeline)
        if choices.virtual_pipeline not in allowed:
            raise UserMistake(
                f"vp={choices.virtual_pipeline} does not divide the {allowed[-1]} layers of a stage; "
                f"the nearest that works is vp={_nearest(choices.virtual_pipeline, allowed)}"
            )
    if choices.expert and choices.expert > max(shape.experts, 1):
        have = f"{shape.experts} experts" if shape.experts else "no experts"
        raise UserMistake(
            f"ep={choices.expert} is more than the model's {have}; use ep={max(shape.experts, 1)} or less"
        )
    if choices.expert and shape.experts:
        _check_divides("ep", choices.expert, shape.experts, "experts")
    used = tensor * pipeline * context
    if gpus % used:
        raise UserMistake(
            f"tp × pp × cp = {used} does not divide {gpus} GPUs; use {_nearest(gpus, _multiples(used, gpus))} GPUs "
            "or a smaller layout"
        )
    if strategy == "ddp" or choices.tensor or choices.pipeline or choices.context:
        _check_batch(batch, gpus // used, choices.micro_batch)
    elif choices.micro_batch and batch % choices.micro_batch:
        raise UserMistake(
            f"a global batch of {batch} is not a multiple of the micro-batch {choices.micro_batch}"
        )


def _check_batch(batch: int, data: int, micro: int | None) -> None:
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


def _check_divides(name: str, value: int, total: int, noun: str) -> None:
    if total % value:
        nearest = _nearest(value, divisors(total))
        raise UserMistake(
            f"{name}={value} does not divide the model's {total} {noun}; the nearest that works is {name}={nearest}"
        )


def _nearest(value: int, allowed: list[int]) -> int:
    return min(allowed, key=lambda candidate: abs(candidate - value))


def _multiples(unit: int, around: int) -> list[int]:
    below = max(1, around // unit)
    return [below * unit, (below + 1) * unit]
