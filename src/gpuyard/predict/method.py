"""A way to exchange gradients, made of a strategy and what the training script chooses about it."""

from dataclasses import dataclass

from gpuyard.catalog import ModelProfile
from gpuyard.errors import UserMistake
from gpuyard.predict.strategies import powersgd
from gpuyard.predict.strategies.buckets import Buckets, bucket_caps, fill
from gpuyard.specs import DEFAULT_EXCHANGE, ExchangeOptions, StrategyName

_HALF = 0.5  # of fp32 gradients as fp16 or bf16


@dataclass(frozen=True)
class Method:
    """What goes over the links, how often, and what it costs a GPU besides."""

    buckets: Buckets
    sent_share: float = 1.0  # of the buckets' bytes
    accumulate: int = 1
    local_sgd: int = 1
    hierarchical: bool = False
    seconds: float = 0.0  # a step in the mean, of every GPU that has something to exchange
    memory_bytes: float = 0.0  # of every GPU


def method_of(
    profile: ModelProfile,
    strategy: StrategyName,
    exchange: ExchangeOptions,
    memory_bytes_per_second: float | None,
) -> Method:
    """Refuses what a strategy can't do."""
    _check(strategy, exchange)
    rank = exchange.powersgd_rank
    caps = bucket_caps(strategy, exchange.bucket_bytes)
    return Method(
        buckets=fill(profile, caps) if rank is None else powersgd.compressed(profile, caps, rank),
        sent_share=_HALF if exchange.compress in ("fp16", "bf16") else 1.0,
        accumulate=exchange.accumulate,
        local_sgd=exchange.local_sgd,
        hierarchical=exchange.hierarchical,
        # a CPU's memory rate is not known, and its passes over gradients are in no formula
        seconds=powersgd.seconds(profile, memory_bytes_per_second) / exchange.accumulate
        if rank is not None and memory_bytes_per_second is not None
        else 0.0,
        # the error that is fed back
        memory_bytes=profile.gradient_bytes if rank is not None else 0.0,
    )


def _check(strategy: StrategyName, exchange: ExchangeOptions) -> None:
    chosen = {name for name, value in exchange if value != getattr(DEFAULT_EXCHANGE, name)}
    refused = {
        "dataparallel": (
            {"accumulate", "local_sgd", "compress", "bucket_mb", "hierarchical"},
            "DataParallel copies all parameters and gradients at every pass",
        ),
        "parameter-server": (
            {"local_sgd", "bucket_mb", "hierarchical"},
            "workers and a parameter server exchange every layer on its own",
        ),
    }.get(strategy)
    if refused and chosen & refused[0]:
        what = ", ".join(sorted(chosen & refused[0]))
        raise UserMistake(f"{refused[1]}: {what} needs ddp or horovod")
    if strategy == "parameter-server" and exchange.powersgd_rank is not None:
        raise UserMistake("PowerSGD is a hook of an all-reduce: compress needs ddp or horovod")
