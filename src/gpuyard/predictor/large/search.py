"""All layouts of a model on a number of GPUs that are worth considering, as columns."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from gpuyard.predictor.large.layout import Family, LayoutColumns
from gpuyard.specs.transformer import TransformerShape

_MAX_MICRO_BATCH_POWER = 6
_MAX_CONTEXT_POWER = 10
_MAX_CHUNKS = 8
_MIN_CONTEXT_TOKENS = 4096  # a smaller piece of a sequence is not worth a ring


@dataclass(frozen=True)
class Choices:
    """The values that a search must use; None: all that are sensible."""

    tensor: int | None = None
    pipeline: int | None = None
    virtual_pipeline: int | None = None
    context: int | None = None
    expert: int | None = None
    zero: int | None = None
    shard: int | None = None
    micro_batch: int | None = None
    recompute: int | None = None  # index into RECOMPUTE
    zero_bubble: int | None = None  # None: no, because few frameworks have it


def list_divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]


def list_possible_chunks(layers: int, pipeline: int) -> list[int]:
    """Return the numbers of chunks per stage that leave the fullest stage as it is."""
    most = -(-layers // pipeline)
    return [v for v in range(1, most + 1) if v * -(-layers // (pipeline * v)) == most]


@dataclass(frozen=True)
class SearchSpace:
    """The layouts that divide heads, experts, and the batch evenly; a stage may hold one layer less than others."""

    shape: TransformerShape
    gpus: int
    domain: int  # GPUs of one machine
    global_batch: int
    sequence: int
    choices: Choices

    @property
    def layers(self) -> int:
        return self.shape.layers + self.shape.encoder_layers

    def enumerate(self, families: Sequence[Family]) -> LayoutColumns:
        """Return every combination as one row."""
        rows = [row for family in families for row in self._iterate_rows(family)]
        return LayoutColumns(*np.array(rows, dtype=float).reshape(-1, 14).T)

    def _iterate_rows(self, family: Family) -> Iterator[tuple[float, ...]]:
        choices, pytorch = self.choices, family == "pytorch"
        zeros = _fix_or_try(choices.zero, [2, 3] if pytorch else [1])
        recomputes = _fix_or_try(choices.recompute, [0, 1, 2])
        micros = _fix_or_try(choices.micro_batch, [2**i for i in range(_MAX_MICRO_BATCH_POWER + 1)])
        for tensor, pipeline, context in self._iterate_groups(pytorch=pytorch):
            data = self.gpus // (tensor * pipeline * context)
            if self.global_batch % data:
                continue
            per_replica = self.global_batch // data
            shard = choices.shard or data * context
            if data * context % shard or (choices.zero_bubble and pipeline == 1):
                continue
            for micro, chunk, expert, zero, recompute in product(
                [micro for micro in micros if per_replica % micro == 0],
                self._list_chunks(pipeline),
                self._list_expert_degrees(data * context * tensor),
                zeros if data * context > 1 else [0],
                recomputes,
            ):
                if chunk > 1 and per_replica // micro % pipeline:
                    continue  # interleaving needs whole groups of micro-batches
                yield (tensor, pipeline, chunk, context, expert, data, zero, shard, micro,
                       self.global_batch, recompute, 1, float(pytorch),
                       float(choices.zero_bubble or 0) if pipeline > 1 else 0.0)  # fmt: skip

    def _iterate_groups(self, *, pytorch: bool) -> Iterator[tuple[int, int, int]]:
        """Yield sizes of tensor, pipeline, and context groups that divide the GPUs."""
        choices = self.choices
        most = min(self.domain, self.gpus)
        tensors = _fix_or_try(
            choices.tensor, [t for t in list_divisors(self.shape.heads) if t <= most]
        )
        stages = [p for p in range(1, self.layers + 1) if self.gpus % p == 0]
        pipelines = _fix_or_try(choices.pipeline, [1] if pytorch else stages)
        powers = [2**i for i in range(_MAX_CONTEXT_POWER + 1)]
        long_enough = [
            c
            for c in powers
            if c == 1 or (self.sequence % c == 0 and self.sequence // c >= _MIN_CONTEXT_TOKENS)
        ]
        contexts = _fix_or_try(choices.context, long_enough)
        for tensor, pipeline, context in product(tensors, pipelines, contexts):
            if self.gpus % (tensor * pipeline * context) == 0:
                yield tensor, pipeline, context

    def _list_chunks(self, pipeline: int) -> list[int]:
        sizes = list_possible_chunks(self.layers, pipeline) if pipeline > 1 else [1]
        chosen = self.choices.virtual_pipeline
        return [v for v in sizes if (v == chosen if chosen else v <= _MAX_CHUNKS)]

    def _list_expert_degrees(self, replicas: int) -> list[int]:
        if not self.shape.experts:
            return [1]
        sizes = [e for e in list_divisors(self.shape.experts) if replicas % e == 0]
        return [e for e in sizes if self.choices.expert in (None, e)]


def _fix_or_try(choice: int | None, values: list[int]) -> list[int]:
    """Return the user's choice alone, or all values to try if the user leaves it open."""
    return values if choice is None else [choice]
