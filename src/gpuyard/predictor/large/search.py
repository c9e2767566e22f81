"""All layouts of a model on a number of GPUs that are worth considering, as columns."""

from dataclasses import dataclass

import numpy as np

from gpuyard.predictor.large.layout import Family, LayoutColumns
from gpuyard.predictor.table import Floats
from gpuyard.specs.transformer import TransformerShape

_MAX_MICRO_BATCH = 64
_MIN_CONTEXT_TOKENS = 4096  # a smaller piece of a sequence is not worth a ring


@dataclass(frozen=True)
class Choices:
    """The values that a search may use; None: all that are sensible."""

    tensor: int | None = None
    pipeline: int | None = None
    virtual_pipeline: int | None = None
    context: int | None = None
    expert: int | None = None
    zero: int | None = None
    shard: int | None = None
    micro_batch: int | None = None
    recompute: int | None = None  # index into RECOMPUTE


def divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]


def enumerate_layouts(
    shape: TransformerShape,
    gpus: int,
    domain: int,
    global_batch: int,
    sequence: int,
    families: tuple[Family, ...],
    choices: Choices,
) -> LayoutColumns:
    """Return every combination that divides heads, layers, experts, and batch evenly."""
    blocks = [
        _family_layouts(shape, gpus, domain, global_batch, sequence, family, choices)
        for family in families
    ]
    rows = np.concatenate([block for block in blocks if len(block)] or [np.empty((0, 13))])
    return LayoutColumns(*rows.T)


def _family_layouts(
    shape: TransformerShape, gpus: int, domain: int, global_batch: int, sequence: int,
    family: Family, choices: Choices,
) -> Floats:  # fmt: skip
    layers = shape.layers + shape.encoder_layers
    pytorch = family == "pytorch"
    tensors = _pick(choices.tensor, [t for t in divisors(shape.heads) if t <= min(domain, gpus)])
    pipelines = _pick(
        choices.pipeline, [1] if pytorch else [p for p in divisors(layers) if p <= gpus]
    )
    contexts = _pick(
        choices.context,
        [2**i for i in range(11) if 2**i == 1 or sequence // 2**i >= _MIN_CONTEXT_TOKENS],
    )
    zeros = _pick(choices.zero, [2, 3] if pytorch else [1])
    recomputes = _pick(choices.recompute, [0, 1, 2])
    micros = _pick(choices.micro_batch, [2**i for i in range(7) if 2**i <= _MAX_MICRO_BATCH])
    rows: list[tuple[float, ...]] = []
    for tensor in tensors:
        for pipeline in pipelines:
            for context in contexts:
                used = tensor * pipeline * context
                if gpus % used:
                    continue
                data = gpus // used
                if global_batch % data:
                    continue
                per_replica = global_batch // data
                chunks = _pick(
                    choices.virtual_pipeline,
                    [v for v in divisors(layers // pipeline) if v <= 8] if pipeline > 1 else [1],
                )
                experts = _pick(
                    choices.expert,
                    [e for e in divisors(shape.experts) if (data * context * tensor) % e == 0]
                    if shape.experts
                    else [1],
                )
                for micro in micros:
                    if per_replica % micro:
                        continue
                    for chunk in chunks:
                        if chunk > 1 and (per_replica // micro) % pipeline:
                            continue  # interleaving needs whole groups of micro-batches
                        for expert in experts:
                            for zero in zeros:
                                for recompute in recomputes:
                                    rows.append(
                                        (tensor, pipeline, chunk, context, expert, data,
                                         zero if data * context > 1 else 0,
                                         choices.shard or data * context, micro, global_batch,
                                         recompute, 1, float(pytorch))
                                    )  # fmt: skip
    return np.array(rows, dtype=float) if rows else np.empty((0, 13))


def _pick(choice: int | None, values: list[int]) -> list[int]:
    return values if choice is None else [choice]
