"""What could be changed about the exchange of gradients; what has been chosen already is left out."""

from collections.abc import Iterator

from gpuyard.predict.explain.change import Change
from gpuyard.predict.explain.general import ACCUMULATED_STEPS
from gpuyard.predict.placement import Placement
from gpuyard.predict.setting import Setting
from gpuyard.predict.strategies import powersgd
from gpuyard.specs import ExchangeOptions

BUCKET_MEGABYTES = (5, 10, 25, 50, 100)


def other_exchanges(setting: Setting, here: Placement) -> Iterator[Change]:
    """Another strategy, fewer bits, fewer exchanges, other packs, two levels."""
    strategy, chosen = setting.strategy, setting.exchange
    if strategy in ("dataparallel", "parameter-server"):
        yield Change(
            f"DistributedDataParallel instead of {strategy}",
            setting.with_strategy("ddp").samples_per_second,
            "one process a GPU",
        )
    if strategy == "dataparallel":
        return
    if chosen.compress is None:
        sent = "gradients" if chosen.local_sgd == 1 else "parameters"
        yield Change(
            f"{sent} sent as 16-bit numbers",
            setting.exchanging(compress="fp16").samples_per_second,
            f"{sent} are rounded; seldom harmful",
        )
    yield _accumulation(setting)
    if strategy == "parameter-server":
        return
    if chosen == ExchangeOptions(bucket_mb=chosen.bucket_mb, hierarchical=chosen.hierarchical):
        yield _local_sgd(setting)
    if chosen.compress is None and chosen.local_sgd == 1:
        yield _power_sgd(setting)
    if not chosen.hierarchical and here.nodes > 1 and here.gpus_per_node > 1:
        yield _hierarchical(setting)
    if chosen.local_sgd == 1:
        yield max(
            _bucket_sizes(setting),
            key=lambda change: float(change.samples_per_second([here])[0]),
        )


def _accumulation(setting: Setting) -> Change:
    times = setting.exchange.accumulate * ACCUMULATED_STEPS
    return Change(
        f"gradients exchanged every {times} steps (accumulation)",
        setting.exchanging(accumulate=times).samples_per_second,
        f"an update sees {ACCUMULATED_STEPS} × the samples: learning rate and accuracy may need care",
    )


def _local_sgd(setting: Setting) -> Change:
    return Change(
        f"parameters averaged every {ACCUMULATED_STEPS} steps (local SGD)",
        setting.exchanging(local_sgd=ACCUMULATED_STEPS, bucket_mb=None).samples_per_second,
        "workers drift apart in between: accuracy may fall, compare it first",
    )


def _power_sgd(setting: Setting) -> Change:
    other = setting.exchanging(compress=f"powersgd:{powersgd.RANK}")
    ratio = setting.profile.gradient_bytes / other.method.buckets.total_bytes
    return Change(
        f"PowerSGD of rank {powersgd.RANK} (lossy, about {ratio:.0f} × fewer bytes)",
        other.samples_per_second,
        "lossy: accuracy may fall, compare it first; shapes of layers are assumed",
        other.memory_bytes,
    )


def _hierarchical(setting: Setting) -> Change:
    caveats = {
        "horovod": "HOROVOD_HIERARCHICAL_ALLREDUCE=1; between machines it goes through host memory",
        "ddp": "a communication hook of your own: reduce-scatter, all-reduce, all-gather",
    }
    return Change(
        "hierarchical all-reduce (inside each machine first)",
        setting.exchanging(hierarchical=True).samples_per_second,
        caveats[setting.strategy],
    )


def _bucket_sizes(setting: Setting) -> Iterator[Change]:
    option = {"ddp": "bucket_cap_mb", "horovod": "HOROVOD_FUSION_THRESHOLD"}[setting.strategy]
    for megabytes in BUCKET_MEGABYTES:
        other = setting.exchanging(bucket_mb=float(megabytes))
        count = len(other.method.buckets.size_bytes)
        many = "1 bucket" if count == 1 else f"{count} buckets"
        yield Change(f"{megabytes} MiB in {option} ({many})", other.samples_per_second)
